"""The A2A 0.1 dialect of tool servers, with a short form of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.dialects.spelling import LEGACY_WORDS
from dragoman.dialects.v01.codec import message_to_01
from dragoman.dialects.v01.dialect import V01
from dragoman.dialects.v01.types import Artifact01, Message01, Status01, Task01
from dragoman.dialects.v03.codec import part_to_03
from dragoman.model.json import as_object, encode
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.dialects.dialect import Result
    from dragoman.dialects.v03.types import Part03
    from dragoman.model.operation import Operation


class ToolServerDialect(V01):
    """A2A 0.1, except that results have tasks in a short form: `id`, `sessionId`, `status`, `history`, `artifacts`.

    Messages have only role and parts, artifacts only name and parts, and their parts are texts. `history` and
    `artifacts` also encode the columns of the table `a2a_tasks`. Streams and webhooks are plain 0.1.
    """

    origin = f"{V01.version}/tools"

    def write_result(self, operation: Operation, result: Result) -> bytes:
        """Encode a result; a task in the short form."""
        return encode(_task(result)) if isinstance(result, Task) else super().write_result(operation, result)

    def history(self, task: Task) -> bytes:
        """Encode the messages of a task as a JSON array."""
        return encode(_messages(task))

    def artifacts(self, task: Task) -> bytes:
        """Encode the artifacts of a task as a JSON array."""
        return encode(_artifacts(task))


def _task(task: Task) -> Task01:
    # For a task without a session the engine uses the task id as context id.
    session = task.context_id if task.context_id != task.id else None
    return Task01(
        id=task.id,
        session_id=session or None,
        status=_status(task),
        history=_messages(task),
        artifacts=_artifacts(task),
    )


def _status(task: Task) -> Status01:
    status = task.status
    # The reason of a failure is usually an artifact; without one it is in the status.
    message = status.message if status.state in (State.FAILED, State.REJECTED) and not task.artifacts else None
    return Status01(LEGACY_WORDS[status.state], None if message is None else message_to_01(message), status.timestamp)


def _messages(task: Task) -> tuple[Message01, ...]:
    # A message of this form has no place for the mark of progress.
    spelled = [message_to_01(message) for message in task.history if not message.is_progress]
    return tuple([Message01(role=each.role, parts=each.parts) for each in spelled])


def _artifacts(task: Task) -> tuple[Artifact01, ...]:
    return tuple([Artifact01(name=each.name, parts=tuple(map(_result, each.parts))) for each in task.artifacts])


def _result(part: Part) -> Part03:
    """Convert a part of a result to a text; a file stays a file. There is no place for metadata."""
    if part.kind == "text":
        return part_to_03(Part(text=part.text), "type")
    if part.kind == "data":
        return part_to_03(Part(text=encode(_unwrap(part.data)).decode()), "type")
    return part_to_03(structs.replace(part, metadata=None), "type")


def _unwrap(data: Any) -> Any:
    """Return the value that MCP servers wrap, because their structured results must be objects."""
    members = as_object(data)
    return members["result"] if list(members) == ["result"] else data


TOOL_TASKS = ToolServerDialect()
