"""`dragoman completion`: prints the script with which a shell completes."""

from __future__ import annotations

import click

_PLACES = {
    "bash": ('eval "$(dragoman completion bash)"', "~/.bashrc"),
    "zsh": ('eval "$(dragoman completion zsh)"', "~/.zshrc, after the line with compinit"),
    "fish": ("dragoman completion fish | source", "~/.config/fish/config.fish"),
}


@click.command("completion", short_help="Print the script for completion in your shell.")
@click.argument("shell", type=click.Choice(list(_PLACES)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script with which your shell completes commands, options, addresses, skills and task ids.

    \b
      eval "$(dragoman completion bash)"     into ~/.bashrc
      eval "$(dragoman completion zsh)"      into ~/.zshrc, after the line with compinit
      dragoman completion fish | source      into ~/.config/fish/config.fish
    """
    from dragoman.cli.completion.shell import script_of
    from dragoman.cli.printing import on_terminal, out, say

    out(script_of(shell, ctx.find_root().command), nl=False)
    if on_terminal():
        line, file = _PLACES[shell]
        say(f"\nTo have it in every shell, put this line into {file}:\n\n  {line}")
