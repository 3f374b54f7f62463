"""`dragoman watch`: follows a task to its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli.options import raw_option, save_option
from dragoman.cli.remote.address import AddressCommand, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import find_task, task_argument

if TYPE_CHECKING:
    from dragoman.cli.talk.conversation import StreamPrinter
    from dragoman.client.client import Client
    from dragoman.model.message import Message
    from dragoman.model.task import Task


@click.command("watch", cls=AddressCommand, short_help="Follow a task to its end.")
@url_argument
@task_argument
@save_option
@raw_option
@in_session
def command(session: CommandSession, task: str, save: Path | None, raw: bool) -> None:
    """Follow a task to its end and print the answer as it arrives.

    TASK is a full id, its unique beginning, or `last` for your most recent task.

    If the agent asks a question, you answer it on the terminal. Without a terminal, the question is printed and the
    exit code is 6.
    """
    from dragoman.cli.talk.conversation import StreamPrinter, converse, print_outcome
    from dragoman.model.state import State

    task = find_task(session, task)
    printer = StreamPrinter(session, quiet=session.options.as_json, raw=raw, save=save)
    printer.task_id, printer.state = task, State.WORKING
    print_outcome(session, printer, converse(session, printer, _follow(session.client, printer, task)))


async def _follow(client: Client, printer: StreamPrinter, task_id: str) -> Task | Message:
    from dragoman.model.error import MethodNotFound, UnsupportedOperation

    task = await client.get_task(task_id)
    if task.state.final or task.state.waiting:
        printer.state = task.state
        return task
    try:
        return await printer.read(client.subscribe(task_id), task.state)
    except (MethodNotFound, UnsupportedOperation):
        # The task has ended meanwhile, or the agent does not stream.
        return await client.wait(task_id)
