"""`dragoman completion`: prints the script with which a shell completes."""

from __future__ import annotations

import click

_PLACES = {
    "bash": ('eval "$(dragoman completion bash)"', "~/.bashrc"),
    "zsh": ('eval "$(dragoman completion zsh)"', "~/.zshrc, after compinit"),
    "fish": ("dragoman completion fish | source", "~/.config/fish/config.fish"),
}


@click.command("completion", short_help="Print the shell completion script.")
@click.argument("shell", type=click.Choice(list(_PLACES)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options, addresses, skills and task ids in your shell.

    Add one of these lines to the startup file of your shell:

    \b
      ~/.bashrc                             eval "$(dragoman completion bash)"
      ~/.zshrc, after compinit              eval "$(dragoman completion zsh)"
      ~/.config/fish/config.fish            dragoman completion fish | source
    """
    from dragoman.cli.completion.shell import script_of
    from dragoman.cli.printing import on_terminal, out, say

    out(script_of(shell, ctx.find_root().command), nl=False)
    if on_terminal():
        line, file = _PLACES[shell]
        say(f"\nTo turn on completion, add this line to {file}:\n\n  {line}")
