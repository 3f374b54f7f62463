"""The completion scripts of the shells: click's, made right for words with colons and commas."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

# Works in bash 3.2, which macOS has, too: there is no `compopt`, and no `nosort`.
_BASH = r"""
%(complete_func)s() {
    local item
    COMPREPLY=()
    while IFS= read -r item; do
        case $item in
            plain,*) COMPREPLY+=("${item#*,}") ;;
            dir,*) compopt -o dirnames 2>/dev/null ;;
            file,*) compopt -o default 2>/dev/null ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null ||
    complete -o default -F %(complete_func)s %(prog_name)s
"""


class BashCompletion(BashComplete):
    """Completion in bash by the line itself: bash splits words at colons, which addresses have."""

    source_template = _BASH.lstrip()

    def source(self) -> str:
        """Return the script."""
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the whole words before the cursor, and the one at it."""
        line = os.environ.get("COMP_LINE")
        if line is None:  # a script from an earlier version
            return super().get_completion_args()
        # A blank that is quoted does not end a word: then the word is one more with something behind it.
        words = split_arg_string(line)
        is_new = len(split_arg_string(f"{line}x")) > len(words)
        return (words[1:], "") if is_new or not words else (words[1:-1], words[-1])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the candidates, each as bash wants it: without what stands before the last colon."""
        items = super().get_completions(args, incomplete)
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        cut = max((incomplete.rfind(char) + 1 for char in ":=" if char in breaks), default=0)
        for item in items:
            if cut and item.type == "plain" and str(item.value).startswith(incomplete[:cut]):
                item.value = str(item.value)[cut:]
        return items


class FishCompletion(FishComplete):
    """Completion in fish, with commas in descriptions."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def register() -> None:
    """Have click use these scripts."""
    add_completion_class(BashCompletion)
    add_completion_class(FishCompletion)


def script_of(shell: str, command: click.Command) -> str:
    """Return the script of a shell: `bash`, `zsh` or `fish`."""
    register()
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(command, {}, "dragoman", "_DRAGOMAN_COMPLETE").source()
