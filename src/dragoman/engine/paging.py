"""Page tokens of task lists, and tasks as their callers read them: with a part of the history, or of artifacts.

A token contains a hash of the filters, so that a token used with other filters is rejected.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from dragoman.clock import milliseconds
from dragoman.engine.journal.follow import Batch
from dragoman.engine.ports.store import Cursor
from dragoman.model.error import InvalidParams
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.engine.ports.store import TaskQuery

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


def encode_token(query: TaskQuery, cursor: Cursor) -> str:
    """Encode a cursor as a page token that is valid for the query's filters only."""
    body = msgspec.json.encode([cursor.status_ms, cursor.number, _filters(query)])
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def decode_token(query: TaskQuery, text: str) -> Cursor:
    """Decode a page token.

    Raises:
        InvalidParams: it is malformed, or belongs to a list with other filters.
    """
    try:
        body = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        status_ms, number, filters = msgspec.json.decode(body, type=tuple[_Int64, _Int64, str])
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidParams("pageToken is not a token of this list", field="pageToken") from None
    if filters != _filters(query):
        raise InvalidParams("pageToken belongs to a list with other filters", field="pageToken")
    return Cursor(status_ms, number)


def _filters(query: TaskQuery) -> str:
    facts = (query.scope, query.context_id, query.state, query.since_ms)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:8]


def parse_since(text: str | None) -> int | None:
    """Parse `statusTimestampAfter` into milliseconds; None when it is absent. Raises InvalidParams."""
    if not text:
        return None
    try:
        return milliseconds(text)
    except ValueError:
        raise InvalidParams(
            "statusTimestampAfter is a time like 2026-11-15T10:00:00Z", field="statusTimestampAfter"
        ) from None


def truncate_history(task: Task, length: int | None) -> Task:
    """Return the task with at most its last `length` messages; None keeps all of them, 0 none."""
    if length is None or len(task.history) <= length:
        return task
    return structs.replace(task, history=task.history[-length:] if length else ())


async def truncate_first(batches: AsyncGenerator[Batch, None], length: int) -> AsyncGenerator[Batch, None]:
    """Truncate the history of a stream's first record when that record is the task itself."""
    async with aclosing(batches):
        async for records, ended in batches:
            if records and records[0].generation == 1 and isinstance(records[0].event, Task):
                first = Record.of(1, truncate_history(records[0].event, length))
                yield Batch([first, *records[1:]], ended)
            else:
                yield Batch(records, ended)


def with_empty_artifacts(task: Task) -> Task:
    """Return a task that an answer continues, for a caller that takes its artifacts for a part of the new answer.

    They are still there to be appended to, and a text that goes on is repeated whole when it ends.
    """
    empty = (Part(text=""),)
    return structs.replace(task, artifacts=tuple(structs.replace(each, parts=empty) for each in task.artifacts))


def has_message(task: Task, message_id: str) -> bool:
    """True when the history of a task has that message."""
    return any(message.message_id == message_id for message in task.history)
