"""The search for tasks: filters from a query, pages of the store, and the words of tasks.

There is no index of words: a search by text reads the tasks that the other filters select, newest first, as many as one
request may cost, and the next request goes on after them.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from dragoman.clock import milliseconds
from dragoman.console.tasks.row import read_body, stored_body, title_of, words_of
from dragoman.engine.execute.threads import in_thread
from dragoman.engine.ports.store import Cursor, ScopeFilter, TaskSearch
from dragoman.model.error import InvalidParams
from dragoman.model.json import encode
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dragoman.engine.ports.store import Store, StoredTask

MAX_PAGE, DEFAULT_PAGE = 200, 50
MAX_TEXT = 200
# A page of the list ends at so many bytes of snapshots, which are read for their titles.
_PAGE_BYTES = 4_000_000
# A search by text looks at so many tasks per request, and begins no page after so many seconds. A page of it is not
# large, because a store reads it whole, and other requests wait for their turn meanwhile.
MAX_EXAMINED, _MAX_SECONDS = 5000, 0.5
_SCAN_PAGE = 500
# So many tasks are looked at in one turn, in a thread if they have more bytes.
_SLICE, _LARGE_SLICE = 20, 500_000
_CURSOR = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


class FoundTask(NamedTuple):
    """A task that was found, and its title."""

    stored: StoredTask
    title: str


class FoundPage(NamedTuple):
    """A page of what was found, where the next begins, and how many tasks were looked at for it."""

    tasks: Sequence[FoundTask]
    after: Cursor | None
    examined: int


class SearchQuery(NamedTuple):
    """A search as a request asks for it. `text` is empty, or what the words of a task contain."""

    search: TaskSearch
    text: str

    @classmethod
    def parse(cls, query: Mapping[str, str], scopes: ScopeFilter) -> SearchQuery:
        """Parse the query of a request, within the scopes that its viewer may see.

        Raises:
            InvalidParams: a value is none that it can have.
        """
        agent, owner, text = query.get("agent", ""), query.get("owner"), query.get("text", "").strip()
        if agent:
            allowed = scopes.agents is None or agent in scopes.agents
            scopes = structs.replace(scopes, agents=(agent,) if allowed else ())
        if owner is not None and scopes.owner is None:
            scopes = structs.replace(scopes, owner=owner)
        if len(text) > MAX_TEXT:
            raise InvalidParams(f"text has {MAX_TEXT} characters at most", field="text")
        search = TaskSearch(
            scopes,
            query.get("context") or None,
            _parse_state(query.get("state", "")),
            _parse_time(query, "since"),
            _parse_time(query, "until"),
            parse_number(query, "limit", DEFAULT_PAGE, 1, MAX_PAGE),
            _parse_cursor(query.get("after", "")),
            _PAGE_BYTES,
        )
        return cls(search, text)

    @property
    def is_counted(self) -> bool:
        """True when stores know how many tasks there are, without looking at them."""
        search = self.search
        return not self.text and search.context_id is None and search.since_ms is None and search.until_ms is None


def cursor_text(cursor: Cursor | None) -> str | None:
    """Write a cursor as the `after` of the next request."""
    return None if cursor is None else f"{cursor.status_ms}.{cursor.number}"


def parse_number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Parse a number of a query. Raises InvalidParams when it is none, or not between `least` and `most`."""
    text = query.get(name, "")
    if not text:
        return default
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else -1
    if not least <= number <= most:
        raise InvalidParams(f"{name} is a number from {least} to {most}", field=name)
    return number


def _parse_state(text: str) -> State | None:
    if not text:
        return None
    try:
        return State(text)
    except ValueError:
        raise InvalidParams("state is one like TASK_STATE_WORKING", field="state") from None


def _parse_time(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return milliseconds(text)
    except (ValueError, OverflowError):
        raise InvalidParams(f"{name} is a time like 2026-11-15T10:00:00Z", field=name) from None


def _parse_cursor(text: str) -> Cursor | None:
    if not text:
        return None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidParams("after is not the `next` of this list", field="after")
    return Cursor(int(match[1]), int(match[2]))


async def find_page(store: Store, query: SearchQuery, wait_for_turn: Callable[[], Awaitable[None]]) -> FoundPage:
    """Find a page of tasks, newest status first. `wait_for_turn` waits for a turn to do CPU-bound work.

    Raises:
        ServerError: the store cannot be read.
    """
    if query.text:
        return await _find_text(store, query, wait_for_turn)
    page = await store.search(query.search)
    titles = await _titles(store, page.tasks, _title, wait_for_turn)
    found = [FoundTask(stored, title or "") for stored, title in zip(page.tasks, titles, strict=True)]
    return FoundPage(found, _cursor(page.tasks[-1]) if page.more else None, len(found))


async def _find_text(store: Store, query: SearchQuery, wait_for_turn: Callable[[], Awaitable[None]]) -> FoundPage:
    search, began = query.search, perf_counter()
    title_of_match = _TextMatcher(query.text).title
    found: list[FoundTask] = []
    cursor, examined = search.after, 0
    while True:
        page = await store.search(structs.replace(search, after=cursor, limit=_SCAN_PAGE))
        titles = await _titles(store, page.tasks, title_of_match, wait_for_turn)
        for stored, title in zip(page.tasks, titles, strict=True):
            cursor = _cursor(stored)
            examined += 1
            if title is not None:
                found.append(FoundTask(stored, title))
                if len(found) == search.limit:
                    is_last = not page.more and stored is page.tasks[-1]
                    return FoundPage(found, None if is_last else cursor, examined)
        if not page.more:
            return FoundPage(found, None, examined)
        if examined >= MAX_EXAMINED or perf_counter() - began > _MAX_SECONDS:
            return FoundPage(found, cursor, examined)


async def _titles(
    store: Store,
    tasks: Sequence[StoredTask],
    find_title: Callable[[StoredTask, bytes | None], str | None],
    wait_for_turn: Callable[[], Awaitable[None]],
) -> list[str | None]:
    """Return what `find_title` says of each task, a few at a time, so that other requests are served in between."""
    titles: list[str | None] = []
    for start in range(0, len(tasks), _SLICE):
        part = tasks[start : start + _SLICE]
        bodies = await asyncio.gather(*[stored_body(store, stored) for stored in part])
        await wait_for_turn()
        if sum(len(body or b"") for body in bodies) > _LARGE_SLICE:
            titles += await in_thread(lambda *given: list(map(find_title, *given)), part, bodies)
        else:
            titles += map(find_title, part, bodies)
    return titles


def _title(stored: StoredTask, body: bytes | None) -> str:
    return title_of(read_body(stored, body))


def _cursor(stored: StoredTask) -> Cursor:
    return Cursor(stored.row.status_ms, stored.row.number)


class _TextMatcher:
    """Finds a text in the ids and the words of tasks, whatever its case."""

    def __init__(self, text: str) -> None:
        self._text = text.casefold()
        # As it is within the JSON of a task. Most tasks do not have it anywhere, and are not decoded.
        self._encoded = encode(self._text)[1:-1].decode()

    def title(self, stored: StoredTask, body: bytes | None) -> str | None:
        """Return the title of a task that matches; None for all others."""
        has_id = self._text in stored.row.id.casefold() or self._text in stored.row.context_id.casefold()
        if not has_id and (body is None or self._encoded not in body.decode().casefold()):
            return None
        task = read_body(stored, body)
        if has_id or (task is not None and any(self._text in words.casefold() for words in words_of(task))):
            return title_of(task)
        return None
