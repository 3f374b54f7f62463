"""`dragoman tasks`: lists the caller's tasks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import click

from dragoman.cli.completion.candidates import complete_state
from dragoman.cli.remote.address import url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import LAST
from dragoman.model.error import ConfigError, MethodNotFound, UnsupportedOperation

if TYPE_CHECKING:
    from dragoman.client.client import Client
    from dragoman.model.message import Message
    from dragoman.model.task import Task

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PAGE = 100
_WORDS = 60


@click.command("tasks", short_help="List your tasks, newest first.")
@url_argument
@click.option(
    "--state",
    metavar="STATE",
    shell_complete=complete_state,
    help="Only tasks in this state, such as working or input-required.",
)
@click.option("--context", metavar="ID", help="Only tasks of this conversation.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only tasks that changed since this time: 2h for the last two hours, 30m, 7d, or 2026-11-15T10:00:00Z.",
)
@click.option(
    "--limit", metavar="NUMBER", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of tasks."
)
@in_session
def command(session: CommandSession, state: str | None, context: str | None, since: str | None, limit: int) -> None:
    """List your tasks, most recently changed first: id, state, time and first words."""
    from dragoman.cli.printing import print_result, print_table, say, state_color
    from dragoman.model.operation import ListTasksResponse, Operation

    filters = {"state": state, "context": context, "since": _parse_since(since)}
    try:
        tasks = session.run(_list_tasks(session.client, limit, **filters))
    except (MethodNotFound, UnsupportedOperation) as error:
        last = session.command_line("get", LAST)
        raise type(error)(f"this agent cannot list tasks; your last one: {last} ({error})") from error
    page = tasks[:limit]
    if session.options.as_json:
        print_result(Operation.LIST, ListTasksResponse(tuple(page), "", len(page), len(page)))
        return
    print_table(map(_row, page), [state_color(task.state) for task in page])
    if not page:
        say("no tasks")
    elif len(tasks) > limit:
        say(f"there are more: use --limit {2 * limit}")


async def _list_tasks(client: Client, limit: int, **filters: Any) -> list[Task]:
    """List up to `limit + 1` tasks, to see whether there are more."""
    tasks: list[Task] = []
    async for task in client.list_tasks(**filters, page_size=min(limit + 1, _PAGE)):
        tasks.append(task)
        if len(tasks) > limit:
            break
    return tasks


def _parse_since(text: str | None) -> datetime | None:
    """Parse an age, as in `2h`, or a time. Raises ConfigError."""
    if text is None:
        return None
    try:
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--since {text}: write an age, as in 2h, 30m or 7d, or a time, as in 2026-11-15T10:00:00Z"
        ) from None


def _row(task: Task) -> tuple[str, ...]:
    from dragoman.cli.printing import shorten, state_name

    time = (task.status.timestamp or "")[:19].replace("T", " ")
    return task.id, state_name(task.state), time, shorten(first_words(task), _WORDS)


def first_words(task: Task) -> str:
    """Return the first text of a task, or the name of the skill that was called."""
    messages = [*task.history, *([task.status.message] if task.status.message is not None else [])]
    return next((words for message in messages if (words := _message_text(message))), "")


def _message_text(message: Message) -> str:
    """Return the text of a message, or the name of the skill it calls."""
    data = message.data
    tool = cast("dict[str, Any]", data).get("tool") if isinstance(data, dict) else None
    return message.text or (str(tool) if tool else "")
