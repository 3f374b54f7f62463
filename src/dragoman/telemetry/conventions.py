"""Attributes of spans by OpenTelemetry's draft conventions for A2A, read from requests and results of any operation.

They are objects of the model, which this layer does not import: whatever has such an attribute is described by it.
"""

from __future__ import annotations

from typing import Any

from dragoman.telemetry.spans import Value

# The error of what was ended because its caller has left, or because the server stops.
CANCELED = "CANCELED"
# Longer ids and names are cut, and no more references are listed: spans describe what a caller has sent before it is
# checked, and what another agent has answered.
_MAX_TEXT, _MAX_REFERENCES = 256, 16


def call_attributes(method: str, version: str, agent: str) -> dict[str, Value]:
    """Return what is known of every operation before it begins, for a sampler to decide by."""
    attributes: dict[str, Value] = {"a2a.method.name": method}
    if version:
        attributes["a2a.protocol.version"] = version
    if agent:
        attributes["gen_ai.agent.name"] = agent[:_MAX_TEXT]
    return attributes


def request_attributes(request: Any) -> dict[str, Value]:
    """Return the ids that the parameters of an operation have, and its tenant."""
    attributes: dict[str, Value] = {}
    if tenant := getattr(request, "tenant", None):
        attributes["a2a.tenant"] = tenant[:_MAX_TEXT]
    message: Any = getattr(request, "message", None)
    if message is not None:
        attributes["a2a.message.id"] = message.message_id[:_MAX_TEXT]
        if message.reference_task_ids:
            references = message.reference_task_ids[:_MAX_REFERENCES]
            attributes["a2a.message.reference_task_ids"] = [each[:_MAX_TEXT] for each in references]
        request = message
    task_id = getattr(request, "task_id", None)
    if task_id is None and message is None:
        task_id = getattr(request, "id", None)
    if task_id:
        attributes["a2a.task.id"] = task_id[:_MAX_TEXT]
    if context_id := getattr(request, "context_id", None):
        attributes["gen_ai.conversation.id"] = context_id[:_MAX_TEXT]
    return attributes


def result_attributes(result: Any) -> dict[str, Value]:
    """Return the ids and the state of a task, a message or an event of either; nothing for other results."""
    attributes: dict[str, Value] = {}
    state = getattr(getattr(result, "status", None), "state", None)
    if state is not None:
        attributes["a2a.task.state"] = state.value
    # A task has an id of its own, a message and an event have that of their task.
    task_id = getattr(result, "task_id", None) or (getattr(result, "id", None) if state is not None else None)
    if task_id:
        attributes["a2a.task.id"] = task_id[:_MAX_TEXT]
    if context_id := getattr(result, "context_id", None):
        attributes["gen_ai.conversation.id"] = context_id[:_MAX_TEXT]
    return attributes
