"""`dragoman cancel`: stop a task."""

from __future__ import annotations

import click

from dragoman.cli.remote import Session, in_session, url_argument


@click.command("cancel", short_help="Cancel a task.")
@url_argument()
@click.argument("task")
@in_session
def command(session: Session, task: str) -> None:
    """Cancel a task. One that has ended cannot be canceled any more: exit code 4."""
    from dragoman.cli.printing import field, print_result, say, state_shown
    from dragoman.model.operation import Operation

    found = session.run(session.client.cancel_task(task))
    if session.options.as_json:
        print_result(Operation.GET, found)
    else:
        say(field(found.id, err=True), " ", state_shown(found.state, err=True))
