"""`dragoman watch`: a task, followed to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dragoman.cli.remote import Session, in_session, url_argument

if TYPE_CHECKING:
    from dragoman.cli.conversation import Reader
    from dragoman.client.client import Client
    from dragoman.model.message import Message
    from dragoman.model.task import Task


@click.command("watch", short_help="Follow a task to its end.")
@url_argument()
@click.argument("task")
@in_session
def command(session: Session, task: str) -> None:
    """Follow a task to its end and print its answer as it arrives; one that has ended is printed at once.

    A question of the agent is asked on the terminal. Where nobody is there to answer, it is told with exit code 6.
    """
    from dragoman.cli.conversation import Reader, converse, finish
    from dragoman.model.state import State

    reader = Reader(session, quiet=session.options.as_json)
    reader.task_id, reader.state = task, State.WORKING
    finish(session, reader, converse(session, reader, _followed(session.client, reader, task)))


async def _followed(client: Client, reader: Reader, task_id: str) -> Task | Message:
    from dragoman.model.error import MethodNotFound, UnsupportedOperation

    found = await client.get_task(task_id)
    if found.state.final or found.state.waiting:
        reader.state = found.state
        return found
    try:
        return await reader.read(client.subscribe(task_id))
    except (MethodNotFound, UnsupportedOperation):
        # It has ended in the meantime, or is not told to anybody as it happens.
        return await client.wait(task_id)
