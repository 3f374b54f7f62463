"""The command `dragoman`: its table of subcommands, which are imported when used, and its exit codes."""

from __future__ import annotations

import errno
import io
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
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

# Set by the scripts for completion in a shell; the name is click's.
COMPLETE_ENV = "_DRAGOMAN_COMPLETE"


class Verb(NamedTuple):
    """A subcommand: the module with its `command`, below this folder, its line in `--help`, and its exit codes.

    `exits` is empty where success is 0, a failure 1 and wrong usage 2.
    """

    module: str
    help: str
    exits: tuple[int, ...] = ()


class ExitCode(NamedTuple):
    """An exit code: its line in `--help`, and the errors that lead to it."""

    code: int
    help: str
    errors: tuple[type[DragomanError], ...] = ()


EXIT_CODES = (
    ExitCode(0, "success"),
    ExitCode(1, "the task failed, was rejected or canceled, or a check failed", (DragomanError,)),
    ExitCode(2, "invalid usage or settings", (ConfigError,)),
    ExitCode(3, "no A2A agent answered at this address, or no database", (CannotConnect, BadCard, BadResponse)),
    ExitCode(4, "the agent answered with an A2A error", (A2AError,)),
    ExitCode(5, "credentials are missing, invalid or insufficient", (AuthError, Unauthenticated, Unauthorized)),
    ExitCode(6, "the agent asked a question and nobody could answer it", (InputRequired,)),
    ExitCode(130, "interrupted with Ctrl-C"),
)
_EVERY = tuple(each.code for each in EXIT_CODES)
_READS = (0, 2, 3, 4, 5, 130)

VERBS = {
    "init": Verb("init.command", "Create a folder with a new agent."),
    "serve": Verb("serve.command", "Serve agents over A2A.", (0, 2, 3, 5, 130)),
    "open": Verb("open", "Open the console of a server in the browser.", (0, 1, 2, 3, 130)),
    "mcp": Verb("mcp", "Offer A2A agents to an MCP host as tools."),
    "send": Verb("talk.send", "Send a message and print the answer.", _EVERY),
    "call": Verb("talk.call", "Call a skill and print the result.", _EVERY),
    "chat": Verb("talk.chat", "Chat with an agent.", _EVERY),
    "watch": Verb("tasks.watch", "Follow a task to its end.", _EVERY),
    "get": Verb("tasks.get", "Show a task.", _READS),
    "cancel": Verb("tasks.cancel", "Cancel a task.", _READS),
    "tasks": Verb("tasks.list", "List your tasks, newest first.", _READS),
    "card": Verb("card.command", "Show or validate an agent's card.", (0, 1, 2, 3, 5, 130)),
    "users": Verb("store.users", "Manage users: passwords, permissions, API keys and cookies."),
    "push": Verb("store.push", "Show and retry undelivered webhooks."),
    "nodes": Verb("store.nodes", "List the servers of a store, and what they do."),
    "top": Verb("top.command", "Watch what a server does, live.", (0, 2, 3, 130)),
    "listen": Verb("listen", "Receive, check and print webhooks."),
    "backup": Verb("store.backup", "Back up the store, even while servers run."),
    "migrate": Verb("store.migrate", "Move a SQLite store into PostgreSQL.", (0, 1, 2, 130)),
    "doctor": Verb("doctor.command", "Check an agent, or the local store and settings."),
    "completion": Verb("completion.command", "Print the shell completion script."),
}


class LazyGroup(click.Group):
    """A group that lists its subcommands without importing them, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the subcommands in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        command: click.Command = import_module(f"dragoman.cli.{verb.module}").command
        if verb.exits and command.epilog is None:
            command.epilog = exit_codes_help(verb.exits)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a subcommand from the table, or an option."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name, help=verb.help) for name, verb in VERBS.items() if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand. Raises UsageError with the nearest match."""
        if not args[0].startswith("-") and args[0] not in VERBS and not ctx.resilient_parsing:
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


def exit_codes_help(codes: Sequence[int]) -> str:
    """Return the part of a help text that lists these exit codes, one per line."""
    lines = (f"  {each.code:<4} {each.help}" for each in EXIT_CODES if each.code in codes)
    return "\n".join(("\b", "Exit codes:", *lines))


ADDRESSES = """\
Commands that call an agent take its address, such as localhost:8080, or a name from [remotes] in dragoman.toml. The
default is DRAGOMAN_AGENT, or else 127.0.0.1:8080.

To complete commands with the Tab key, see `dragoman completion --help`.
"""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{exit_codes_help(_EVERY)}\n\n{ADDRESSES}",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def group() -> None:
    """Make agents talk: serve almost anything as an A2A agent, and call any A2A agent."""


def exit_code(error: DragomanError) -> int:
    """Return the exit code for an error: that of its nearest class in the table."""
    codes = {kind: each.code for each in EXIT_CODES for kind in each.errors}
    return next(codes[kind] for kind in type(error).__mro__ if kind in codes)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit. A DragomanError is one sentence on stderr, never a traceback."""
    _prepare_streams()
    if COMPLETE_ENV in os.environ:
        from dragoman.cli.completion.shell import register

        register()
    run_and_exit(lambda: group.main(args=args, prog_name="dragoman", standalone_mode=False))


def _prepare_streams() -> None:
    """Open an output that the shell has closed, as `>&-` does, and print what the encoding of stdout lacks as `?`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False))
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")


def run_and_exit(run: Callable[[], object]) -> NoReturn:
    """Call a function and exit as a command does: with its exit code, or with that of its error."""
    try:
        _run_and_exit(run)
    finally:
        if (telemetry := sys.modules.get("dragoman.cli.telemetry")) is not None:
            telemetry.flush_exports()


def _run_and_exit(run: Callable[[], object]) -> NoReturn:
    try:
        code = run()
    except click.ClickException as error:
        from dragoman.telemetry.printable import replace_controls

        # The message repeats what was typed, which may have been pasted with control characters.
        vars(error)["message"] = replace_controls(error.message)
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            # The nearest; click would sort them by name, and count the dashes.
            typed = error.option_name.lstrip("-")
            is_near = bool(get_close_matches(typed, [error.possibilities[0].lstrip("-")]))
            vars(error)["possibilities"] = error.possibilities[:1] if is_near else None
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
    except OSError as error:
        from dragoman.cli.printing import say

        if error.errno == errno.ENOSPC:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            say(f"dragoman: {error.strerror}: {error.filename or 'the output'} cannot be written")
            sys.exit(1)
        if not _has_folder():
            say("dragoman: the current folder does not exist any more: change to another one")
            sys.exit(2)
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib need not be imported
    except FileNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
