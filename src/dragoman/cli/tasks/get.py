"""`dragoman get`: prints the current state of a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli.options import raw_option, save_option
from dragoman.cli.remote.address import AddressCommand, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import find_task, task_argument

if TYPE_CHECKING:
    from dragoman.model.task import Task


@click.command("get", cls=AddressCommand, short_help="Show a task.")
@url_argument
@task_argument
@save_option
@raw_option
@in_session
def command(session: CommandSession, task: str, save: Path | None, raw: bool) -> None:
    """Show a task: its answer on stdout, its state and ids on stderr.

    TASK is a full id, its unique beginning, or `last` for your most recent task.
    """
    from dragoman.cli.printing import print_answer, print_files, print_result
    from dragoman.cli.talk.save import print_save_hint, save_files
    from dragoman.cli.talk.text_display import text_printer
    from dragoman.model.operation import Operation

    result = session.run(session.client.get_task(find_task(session, task)))
    if session.options.as_json:
        print_result(Operation.GET, result)
    else:
        describe(result)
    has_answer = result.artifacts or result.state.name == "COMPLETED"
    if has_answer and not session.options.as_json:
        print_answer(result, text_printer(raw=raw))
    if save is not None:
        save_files(result.files, save)
    elif has_answer and not session.options.as_json:
        print_files(result.files)
        print_save_hint(session, result)


def describe(task: Task) -> None:
    """Print ids, state and status message of a task to stderr."""
    from dragoman.cli.printing import field, say, styled_state

    ids = [("task", task.id), ("context", task.context_id), ("since", task.status.timestamp or "")]
    lines = [(name, field(value, err=True)) for name, value in ids]
    lines.insert(2, ("state", styled_state(task.state, err=True)))
    text = task.question or (task.status.message.text if task.status.message is not None else "")
    if task.state.name != "COMPLETED":  # the message of a completed task is printed with its answer
        lines.append(("asks" if task.state.waiting else "says", text))
    for name, value in lines:
        if value:
            say(f"{name:<8} ", value)
