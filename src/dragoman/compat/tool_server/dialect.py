"""The A2A 0.1 dialect of tool servers: tasks have one short form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.dialects.spelling import LEGACY_WORDS
from dragoman.dialects.v01.codec import artifact_to_01, message_to_01
from dragoman.dialects.v01.dialect import V01
from dragoman.dialects.v01.types import Artifact01, Message01, Status01, Task01
from dragoman.model.json import encode
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Operation


class ToolTasks(V01):
    """0.1 with tasks of `id`, `status`, `history` and `artifacts`, and in each of these no more than is needed.

    Streams and webhooks are plain 0.1. It also spells the columns of the table in which such tasks stand.
    """

    origin = f"{V01.version}/tools"

    def write_result(self, operation: Operation, result: Result) -> bytes:
        """Encode a result; a task in its short form."""
        return encode(_task(result)) if isinstance(result, Task) else super().write_result(operation, result)

    def history(self, task: Task) -> bytes:
        """The messages of a task as a JSON array."""
        return encode(_messages(task))

    def artifacts(self, task: Task) -> bytes:
        """The artifacts of a task as a JSON array."""
        return encode(_artifacts(task))


def _task(task: Task) -> Task01:
    # A task without a session has its own id as context.
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
    spelled = [message_to_01(message) for message in task.history]
    return tuple([Message01(role=each.role, parts=each.parts) for each in spelled])


def _artifacts(task: Task) -> tuple[Artifact01, ...]:
    spelled = [artifact_to_01(artifact, 0) for artifact in task.artifacts]
    return tuple([Artifact01(name=each.name, parts=each.parts) for each in spelled])


TOOL_TASKS = ToolTasks()
