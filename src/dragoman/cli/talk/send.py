"""`dragoman send`: sends a message to an agent and prints the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.completion.candidates import complete_skill
from dragoman.cli.options import raw_option, save_option
from dragoman.cli.remote.address import AddressCommand, misread_word, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import find_task, task_option
from dragoman.model.error import ConfigError, MethodNotFound, TaskNotFound, UnsupportedOperation

if TYPE_CHECKING:
    from dragoman.client.client import Client
    from dragoman.model.task import Task


@click.command("send", cls=AddressCommand, short_help="Send a message and print the answer.")
@url_argument
@click.argument("words", nargs=-1, metavar="[TEXT|-]...")
@click.option("--tool", metavar="NAME", shell_complete=complete_skill, help="Call this skill.")
@click.option("--arguments", metavar="JSON", help="Arguments for the skill, as a JSON object.")
@click.option("--data", metavar="JSON", help="Send JSON data; with --tool, it is the arguments.")
@click.option(
    "--file",
    "files",
    metavar="PATH",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send this file; repeatable.",
)
@click.option("--context", metavar="ID", help="Start a new task in this conversation.")
@task_option
@click.option("--continue", "continues", is_flag=True, help="Continue the last conversation with this agent.")
@click.option("--push", metavar="URL", help="Post the task's events to this webhook.")
@click.option("--no-wait", is_flag=True, help="Print the task id and exit without waiting.")
@save_option
@raw_option
@in_session
def command(
    session: CommandSession, no_wait: bool, continues: bool, save: Path | None, raw: bool, **options: Any
) -> None:
    """Send a message and print the answer as it arrives. Use `-` to read the text from stdin.

    \b
      dragoman send hello there
      dragoman send localhost:9000 hello there
      dragoman send --file report.pdf "Summarize this"
      dragoman send --continue "And in one sentence?"

    The first word is an address if it has a port or a scheme, or names a remote. The default is DRAGOMAN_AGENT, or
    else 127.0.0.1:8080.

    ID is a full id, its unique beginning, or `last`.

    If the agent asks a question, you answer it on the terminal. Without a terminal, the question is printed and the
    exit code is 6. Ctrl-C leaves the task running and prints the command that gets back to it.
    """
    from dragoman.cli.talk.conversation import StreamPrinter, converse, print_outcome

    if continues and (options["task"] or options["context"]):
        raise click.UsageError("--continue cannot be combined with --task or --context.")
    message = _parse_message(**options)
    if session.options.target.is_default and options["words"]:
        _warn_of_misreading(options["words"][0])
    if continues:
        message |= _last_conversation(session)
    elif message["task"]:
        message["task"] = find_task(session, message["task"])
    if no_wait:
        _print_started(session, session.run(_send(session.client, message)))
        return
    printer = StreamPrinter(session, quiet=session.options.as_json, raw=raw, save=save)
    result = converse(session, printer, printer.read(session.client.stream(**message)))
    print_outcome(session, printer, result)
    _print_hint(session, "continue with", "send", "--continue")


def _warn_of_misreading(word: str) -> None:
    from dragoman.cli.printing import warn

    hint = misread_word(word)
    if hint is not None:
        warn(hint)


def _last_conversation(session: CommandSession) -> dict[str, Any]:
    """Return what a message must name to stay in the last conversation: the task that waits, or the context.

    Raises:
        ConfigError: there is no such conversation.
    """
    last = next(iter(session.recent()), None)
    waiting = session.run(_find_waiting(session.client, last.task_id)) if last is not None and last.task_id else None
    if waiting is not None:
        return {"task": waiting}
    if last is None or not last.context_id:
        raise ConfigError(
            f"there is no conversation with {session.options.target.url} to continue: omit --continue to start one"
        )
    return {"context": last.context_id}


async def _find_waiting(client: Client, task_id: str) -> Task | None:
    """Return the task if it waits for an answer; None also when the agent does not know it any more."""
    try:
        task = await client.get_task(task_id)
    except (TaskNotFound, MethodNotFound, UnsupportedOperation):
        return None
    return task if task.state.waiting else None


def _print_hint(session: CommandSession, label: str, *words: str) -> None:
    """Print the command that comes back, for somebody at a terminal."""
    from dragoman.cli.printing import colored, on_terminal, say

    if session.is_remembered and on_terminal() and on_terminal(err=True) and not session.options.as_json:
        text = ' "…"' if "--continue" in words else ""
        say(colored(f"{label}: {session.command_line(*words)}{text}", err=True, dim=True))


async def _send(client: Client, message: dict[str, Any]) -> Any:
    return await client.send(**message, wait=False)


def _print_started(session: CommandSession, result: Any) -> None:
    from dragoman.cli.printing import field, out, print_answer, print_files, print_result
    from dragoman.model.operation import Operation
    from dragoman.model.task import Task

    session.remember(result.id if isinstance(result, Task) else "", result.context_id or "")
    if session.options.as_json:
        print_result(Operation.SEND, result)
    elif isinstance(result, Task):
        out(field(result.id))
        _print_hint(session, "follow with", "watch", "last")
    else:  # a message instead of a task
        print_answer(result)
        print_files(result.files)


def _parse_message(
    words: tuple[str, ...], arguments: str | None, data: str | None, files: tuple[Path, ...], **options: Any
) -> dict[str, Any]:
    """Parse the arguments of `Client.send`, before the agent is called. Raises UsageError and ConfigError."""
    text = " ".join(words) if words else None
    if text is None and options["tool"] is None and data is None and not files:
        raise click.UsageError("Nothing to send: add TEXT, - for stdin, --tool, --data or --file.")
    if arguments is not None and options["tool"] is None:
        raise click.UsageError("--arguments needs --tool. To send data without a skill, use --data.")
    source = "--arguments"
    if options["tool"] is not None and data is not None:
        if arguments is not None:
            raise click.UsageError(
                "With --tool, --data is the arguments of the skill: give it or --arguments, not both."
            )
        # A skill reads the data part that names it, and no other.
        arguments, data, source = data, None, "--data"
    if text == "-":
        if sys.stdin is None:
            raise click.UsageError("- reads the text from stdin, which is closed.")
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    elif text is not None:
        # An argument of a shell need not be valid UTF-8, and JSON must be.
        text = text.encode("utf-8", "replace").decode()
    skill_arguments: Any = None if arguments is None else parse_json(arguments, source)
    if skill_arguments is not None and not isinstance(skill_arguments, dict):
        what = "with --tool it is the arguments of the skill, which are" if source == "--data" else "must be"
        raise ConfigError(f"{source}: {what} a JSON object, as in '{{\"a\": 3}}'")
    return options | {
        "text": text,
        "arguments": skill_arguments,
        "data": None if data is None else parse_json(data, "--data"),
        "files": files,
    }


def parse_json(text: str, source: str) -> Any:
    """Parse JSON from the command line. Raises ConfigError that says where it is wrong."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}") from None
