"""`Converter`: parts, messages and events of Google ADK and of A2A 0.3, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.adk.events.event import Event as AdkEvent
from google.genai import types

from dragoman.agents.adk.parts import content_of, from_genai, parts_of_content, to_genai
from dragoman.agents.adk.remote.events import ERROR
from dragoman.compat.executor.types import (
    Artifact,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TextPart,
    part_from_model,
)

if TYPE_CHECKING:
    from dragoman.compat.executor.types import Part, TaskStatusUpdateEvent

# The id in `long_running_tool_ids` of an event that says: a remote agent waits for an answer.
REMOTE_INPUT = "remote_input_required"
_WAITING = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
_ENDINGS = {
    TaskState.FAILED: "remote agent failed",
    TaskState.REJECTED: "remote agent rejected the request",
    TaskState.CANCELED: "remote agent canceled the task",
}


class Converter:
    """Converts between ADK and A2A, with the metadata that Google's bridges use (`adk_type`, `adk_thought`)."""

    # -- parts and messages ----------------------------------------------------------------------------------------

    @staticmethod
    def part_to_adk(part: Part) -> types.Part:
        """Convert a part for ADK. Raises InvalidParams when the bytes of a file are not base64."""
        return to_genai(part.to_model())

    @staticmethod
    def part_from_adk(part: types.Part) -> Part | None:
        """Convert a part of ADK; None when it is empty."""
        converted = from_genai(part)
        return None if converted is None else part_from_model(converted)

    @staticmethod
    def message_to_adk(message: Message) -> types.Content:
        """Convert a message to content of ADK, where the role of agents is "model". Raises BadResponse."""
        return content_of(message.to_model())

    @staticmethod
    def message_from_adk(content: types.Content) -> Message:
        """Convert content of ADK to a message with a new id."""
        return Message(Role.USER if content.role == "user" else Role.AGENT, _parts(content))

    # -- events ----------------------------------------------------------------------------------------------------

    @staticmethod
    def artifact_from_adk(event: AdkEvent, artifact_id: str) -> Artifact | None:
        """Return the content of an event as an artifact, or a piece of one; None when it has none."""
        parts = _parts(event.content)
        return Artifact(artifact_id, parts) if parts else None

    @staticmethod
    def status_from_adk(event: AdkEvent) -> TaskStatus | None:
        """Return the status that an event gives its task: failed, or waiting for the caller; else None."""
        if event.error_code or event.error_message:
            text = str(event.error_message or event.error_code)
            return TaskStatus(TaskState.FAILED, Message(Role.AGENT, (TextPart(text),)))
        is_waiting = bool(event.long_running_tool_ids) or bool(event.actions.escalate)
        return TaskStatus(TaskState.INPUT_REQUIRED) if is_waiting else None

    @staticmethod
    def event_to_adk(update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent, author: str) -> AdkEvent:
        """Convert an update of a remote task to an event. Artifacts are partial events."""
        if isinstance(update, TaskArtifactUpdateEvent):
            return AdkEvent(author=author, content=_content(update.artifact.parts), partial=True)
        status = update.status
        content = _content(status.message.parts) if status.message is not None else None
        if status.state in _ENDINGS:
            text = (status.message.text if status.message is not None else "") or _ENDINGS[status.state]
            return AdkEvent(author=author, error_code=ERROR, error_message=text)
        tools = {REMOTE_INPUT} if status.state in _WAITING else None
        return AdkEvent(author=author, content=content, long_running_tool_ids=tools)


def _parts(content: types.Content | None) -> tuple[Part, ...]:
    return tuple(part_from_model(part) for part in parts_of_content(content))


def _content(parts: tuple[Part, ...]) -> types.Content:
    return types.Content(role="model", parts=[to_genai(part.to_model()) for part in parts])
