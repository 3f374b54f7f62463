"""Task ids on the command line: whole, a unique beginning, or `last`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from dragoman.cli.completion.candidates import complete_task
from dragoman.model.error import A2AError, BadResponse, ConfigError

if TYPE_CHECKING:
    from dragoman.cli.remote.session import CommandSession
    from dragoman.client.client import Client
    from dragoman.model.task import Task

LAST = "last"
MIN_PREFIX = 4
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Of an agent with more tasks, only so many are looked at.
_MAX_LISTED = 300
_PAGE = 100
_MAX_MATCHES = 10


task_argument = click.argument("task", shell_complete=complete_task)
task_option = click.option(
    "--task", metavar="ID", shell_complete=complete_task, help="Continue this task: answer its question."
)


def find_task(session: CommandSession, word: str) -> str:
    """Return the id that a word means. One that fits no task is returned as it is: ids of agents can be anything.

    Raises:
        ConfigError: it is the beginning of several ids, or `last` where there is no task.
        DragomanError: what the client raises.
    """
    recent = [each.task_id for each in session.recent() if each.task_id]
    if word == LAST:
        return recent[0] if recent else _newest(session)
    if len(word) < MIN_PREFIX or word in recent or is_uuid(word):
        return word
    return _unique(session, word, recent) or _unique(session, word, _listed_ids(session, _MAX_LISTED)) or word


def _newest(session: CommandSession) -> str:
    listed = _listed_ids(session, 1)
    if not listed:
        raise ConfigError(f"there is no last task at {session.options.target.url}: start one with `dragoman send`")
    return listed[0]


def _unique(session: CommandSession, word: str, ids: Iterable[str]) -> str | None:
    found = [each for each in ids if each.startswith(word)]
    # A UUID is never the beginning of another; of other ids, the word may be a whole one.
    if not all(map(is_uuid, found)) and session.run(_is_task(session.client, word)):
        return word
    return match_beginning(word, found)


def match_beginning(word: str, ids: Iterable[str]) -> str | None:
    """Return the id that is a word or begins with it; None when there is none. Raises ConfigError for several."""
    found = [*dict.fromkeys(each for each in ids if each.startswith(word))]
    if word in found:
        return word
    if len(found) > 1:
        more = ["…"] if len(found) > _MAX_MATCHES else []
        lines = [f"`{word}` matches {len(found)} task ids; add more characters:", *found[:_MAX_MATCHES], *more]
        raise ConfigError("\n  ".join(lines))
    return found[0] if found else None


def is_uuid(task_id: str) -> bool:
    """True for an id that is never the beginning of another."""
    return _UUID.fullmatch(task_id) is not None


async def _is_task(client: Client, task_id: str) -> bool:
    try:
        await client.get_task(task_id)
    except A2AError:
        return False
    return True


def _listed_ids(session: CommandSession, limit: int) -> list[str]:
    """Return the ids of the newest tasks that the agent lists; none where it lists nothing."""
    try:
        return [task.id for task in session.run(list_newest(session.client, limit))]
    except (A2AError, BadResponse):
        return []


async def list_newest(client: Client, limit: int) -> list[Task]:
    """List up to `limit` tasks, those that changed last first. Raises what the client raises."""
    tasks: list[Task] = []
    async for task in client.list_tasks(page_size=min(limit, _PAGE)):
        tasks.append(task)
        if len(tasks) >= limit:
            break
    return tasks
