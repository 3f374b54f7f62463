"""What a request must hold beyond its types, whatever dialect it came in.

proto3 cannot tell an empty string from none, so an empty id that may be absent counts as absent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from dragoman.clock import milliseconds
from dragoman.dialects.reading.invalid import missing_field, quoted
from dragoman.model.error import InvalidParams
from dragoman.model.message import Message
from dragoman.model.operation import ListTasksRequest, Operation, SendMessageRequest
from dragoman.model.state import Role, State


def sound_message(message: Message, parts: str = "parts") -> Message:
    """Check a caller's message; `parts` is what this dialect calls its parts.

    Raises:
        InvalidParams: no messageId, no parts, or a message that claims to come from an agent.
    """
    if not message.message_id:
        raise missing_field("message.messageId")
    if not message.parts:
        raise InvalidParams(f"message.{parts} must hold at least one part", field=f"message.{parts}")
    if message.role is not Role.USER:
        if message.role is Role.AGENT:
            raise InvalidParams("message.role must be the user's: only the agent speaks as agent", field="message.role")
        message = replace(message, role=Role.USER)
    if message.task_id == "" or message.context_id == "":
        message = replace(message, task_id=message.task_id or None, context_id=message.context_id or None)
    return message


def sound_send(request: SendMessageRequest) -> SendMessageRequest:
    """Check a 1.x send request.

    Raises:
        InvalidParams: as `sound_message`, or a webhook without an address.
    """
    message = request.message
    push = request.configuration.task_push_notification_config
    if (
        message.role is Role.USER
        and message.message_id
        and message.parts
        and push is None
        and "" not in (message.task_id, message.context_id, request.tenant)
    ):
        return request
    message = sound_message(message)
    if push is not None and not push.url:
        raise missing_field("configuration.taskPushNotificationConfig.url")
    return replace(request, message=message, tenant=request.tenant or None)


def _sound_list(request: ListTasksRequest) -> ListTasksRequest:
    """Check a list request; an empty filter is none.

    Raises:
        InvalidParams: `statusTimestampAfter` is not a time.
    """
    after = request.status_timestamp_after
    if after:
        try:
            milliseconds(after)
        except ValueError:
            raise InvalidParams(
                f"statusTimestampAfter must be a time such as 2026-11-15T10:00:00.000Z, not {quoted(after)}",
                field="statusTimestampAfter",
            ) from None
    return replace(
        request,
        context_id=request.context_id or None,
        status=None if request.status is State.UNSPECIFIED else request.status,
        page_token=request.page_token or None,
        status_timestamp_after=after or None,
        tenant=request.tenant or None,
    )


class _Needs(NamedTuple):
    """The fields an operation cannot do without, and those that are absent when they are empty."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ("tenant",)


_OF_TASK, _OF_WEBHOOK = _Needs(("id",)), _Needs(("task_id", "id"))
_NEEDS = {
    Operation.GET: _OF_TASK,
    Operation.CANCEL: _OF_TASK,
    Operation.SUBSCRIBE: _OF_TASK,
    # One without an id gets it later.
    Operation.CREATE_PUSH: _Needs(("task_id", "url"), ("id", "tenant")),
    Operation.GET_PUSH: _OF_WEBHOOK,
    Operation.LIST_PUSH: _Needs(("task_id",), ("page_token", "tenant")),
    Operation.DELETE_PUSH: _OF_WEBHOOK,
    Operation.EXTENDED_CARD: _Needs((), ()),
}


def sound(operation: Operation, request: Any) -> Any:
    """Check a 1.x request.

    Raises:
        InvalidParams: a field is missing, empty or wrong.
    """
    if operation in (Operation.SEND, Operation.STREAM):
        return sound_send(request)
    if operation is Operation.LIST:
        return _sound_list(request)
    required, optional = _NEEDS[operation]
    for name in required:
        if not getattr(request, name):
            raise missing_field("taskId" if name == "task_id" else name)
    empty = {name: None for name in optional if getattr(request, name) == ""}
    return replace(request, **empty) if empty else request
