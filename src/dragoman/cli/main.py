"""The command `dragoman`: its table of subcommands, which are imported when used, and its exit codes."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from dragoman import __version__
from dragoman.model.error import (
    A2AError,
    AuthError,
    BadCard,
    BadResponse,
    CannotConnect,
    ConfigError,
    DragomanError,
    InputRequired,
    Unauthenticated,
    Unauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb(NamedTuple):
    """A subcommand: the module with its `command`, below this folder, and its line in `--help`."""

    module: str
    help: str


VERBS = {
    "serve": Verb("serve.command", "Serve agents over A2A."),
    "mcp": Verb("mcp", "Bring A2A agents to an MCP host."),
    "send": Verb("talk.send", "Send a message and print the answer."),
    "call": Verb("talk.call", "Call a skill and print its value."),
    "chat": Verb("talk.chat", "Talk with an agent."),
    "watch": Verb("tasks.watch", "Follow a task to its end."),
    "get": Verb("tasks.get", "Show a task as it is now."),
    "cancel": Verb("tasks.cancel", "Cancel a task."),
    "tasks": Verb("tasks.list", "List your tasks, the newest first."),
    "card": Verb("card.command", "Show an agent's card, or check it."),
    "users": Verb("store.users", "Say who may call: passwords, permissions, keys, cookies."),
    "push": Verb("store.push", "Show webhooks that do not arrive, and retry them."),
    "listen": Verb("listen", "Receive webhooks, and print and check them."),
    "backup": Verb("store.backup", "Copy the SQLite store, also while the server runs."),
    "doctor": Verb("doctor.command", "Check an agent, or the store, the settings and this machine."),
}

# The first matching class counts.
EXIT_CODES: tuple[tuple[type[DragomanError], int], ...] = (
    (ConfigError, 2),
    (CannotConnect, 3),
    (BadCard, 3),
    (BadResponse, 3),
    (AuthError, 5),
    (Unauthenticated, 5),
    (Unauthorized, 5),
    (A2AError, 4),
    (InputRequired, 6),
    (DragomanError, 1),
)


class LazyGroup(click.Group):
    """A group that lists its subcommands without importing them, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the subcommands in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"dragoman.cli.{VERBS[cmd_name].module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand. Raises UsageError with the nearest match."""
        if not args[0].startswith("-") and args[0] not in VERBS:
            near = get_close_matches(args[0], VERBS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(VERBS)}."
            raise click.UsageError(f"No such command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if not is_set or ctx.resilient_parsing:
        return
    from dragoman.cli.printing import out

    out(f"dragoman {__version__}")
    ctx.exit()


COMPLETION = """\
The commands that call take an address, as in localhost:8080, or a name under [remotes] in dragoman.toml. Without one
they call the agent in DRAGOMAN_AGENT, else the one at 127.0.0.1:8080. To have the shell complete commands,
options and those names, put this into ~/.bashrc (zsh_source and fish_source are for the other shells):

\b
  eval "$(_DRAGOMAN_COMPLETE=bash_source dragoman)"
"""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=COMPLETION)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def group() -> None:
    """Make agents talk: serve anything as an A2A agent, call any A2A agent."""


def exit_code(error: DragomanError) -> int:
    """Return the exit code for an error."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit. A DragomanError is one sentence on stderr, never a traceback."""
    try:
        code = group.main(args=args, prog_name="dragoman", standalone_mode=False)
    except click.ClickException as error:
        from dragoman.telemetry.printable import replace_controls

        # The message repeats what was typed, which may have been pasted with control characters.
        vars(error)["message"] = replace_controls(error.message)
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except DragomanError as error:
        from dragoman.cli.printing import say

        # Parts of the text may come from an agent.
        say(f"dragoman: {error}")
        sys.exit(exit_code(error))
    except BrokenPipeError:
        # The reader of stdout has closed the pipe. Redirected to /dev/null, so that Python prints no error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
