"""`dragoman get`: prints the current state of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dragoman.cli.remote.address import AddressCommand, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import find_task, task_argument

if TYPE_CHECKING:
    from dragoman.model.task import Task


@click.command("get", cls=AddressCommand, short_help="Show a task as it is now.")
@url_argument
@task_argument
@in_session
def command(session: CommandSession, task: str) -> None:
    """Show a task as it is now: its answer on stdout, what there is to know about it on stderr."""
    from dragoman.cli.printing import print_answer, print_result
    from dragoman.model.operation import Operation

    result = session.run(session.client.get_task(find_task(session, task)))
    if session.options.as_json:
        print_result(Operation.GET, result)
        return
    describe(result)
    if result.artifacts or result.state.name == "COMPLETED":
        print_answer(result)


def describe(task: Task) -> None:
    """Print ids, state and status message of a task to stderr."""
    from dragoman.cli.printing import field, say, styled_state

    ids = [("task", task.id), ("context", task.context_id), ("since", task.status.timestamp or "")]
    lines = [(name, field(value, err=True)) for name, value in ids]
    lines.insert(2, ("state", styled_state(task.state, err=True)))
    text = task.question or (task.status.message.text if task.status.message is not None else "")
    if not (task.state.name == "COMPLETED" and not task.artifacts):
        lines.append(("asks" if task.state.waiting else "says", text))
    for name, value in lines:
        if value:
            say(f"{name:<8} ", value)
