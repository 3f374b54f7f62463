"""`dragoman cancel`: cancels a task."""

from __future__ import annotations

import click

from dragoman.cli.remote.address import AddressCommand, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import find_task, task_argument


@click.command("cancel", cls=AddressCommand, short_help="Cancel a task.")
@url_argument
@task_argument
@in_session
def command(session: CommandSession, task: str) -> None:
    """Cancel a task. If the task has already ended, the exit code is 4.

    TASK is a full id, its unique beginning, or `last` for your most recent task.
    """
    from dragoman.cli.printing import field, print_result, say, styled_state
    from dragoman.model.operation import Operation

    result = session.run(session.client.cancel_task(find_task(session, task)))
    if session.options.as_json:
        print_result(Operation.GET, result)
    else:
        say(field(result.id, err=True), " ", styled_state(result.state, err=True))
