"""Protocol errors that an agent raises, in the form in which callers get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.engine.execute.outputs import json_of
from dragoman.model.error import InvalidParams

if TYPE_CHECKING:
    from dragoman.model.error import A2AError

# With the id of the failed task, a caller can read it, and knows that the message was not refused but run.
TASK_ID = "taskId"


def public_error(error: A2AError, task_id: str) -> A2AError | None:
    """Return a copy of an agent's error for its caller, with the id of the task that it failed.

    A copy, because agents may raise one object again and again. None when callers must not get it: it is the answer of
    another agent, or it cannot be written as JSON.
    """
    if error.received:
        return None
    # Exception texts may contain lone surrogates, such as undecodable bytes of a file name.
    text = str(error).encode(errors="replace").decode()
    try:
        metadata = {TASK_ID: task_id} | {key: str(value) for key, value in error.metadata.items()}
        public = error.with_content(text, json_of(error.details), metadata)
        msgspec.json.encode((public.message, public.metadata, error_mark(public)))
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
    return public


def error_mark(error: A2AError) -> dict[str, Any]:
    """Return the error as the metadata of the message that says why the task failed."""
    mark: dict[str, Any] = {"code": error.code, "reason": error.reason}
    if isinstance(error, InvalidParams) and error.field:
        mark["field"] = error.field
    metadata = {key: value for key, value in error.metadata.items() if key != TASK_ID}
    if metadata:
        mark["metadata"] = metadata
    if error.details is not None:
        mark["details"] = error.details
    return mark
