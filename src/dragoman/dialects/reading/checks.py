"""What a request must hold beyond its types, whatever dialect it came in.

proto3 cannot tell an empty string from none, so an empty id that may be absent counts as absent.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.clock import milliseconds
from dragoman.dialects.reading.invalid import missing_field, quoted
from dragoman.model.error import InvalidParams
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
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


def sound_list(request: ListTasksRequest) -> ListTasksRequest:
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


def sound_task_id(
    request: GetTaskRequest | CancelTaskRequest | SubscribeToTaskRequest,
) -> GetTaskRequest | CancelTaskRequest | SubscribeToTaskRequest:
    """Check that a task is named.

    Raises:
        InvalidParams: `id` is empty.
    """
    if not request.id:
        raise missing_field("id")
    return replace(request, tenant=None) if request.tenant == "" else request


def sound_push(request: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    """Check a webhook to be created; one without an id gets it later.

    Raises:
        InvalidParams: `taskId` or `url` is missing or empty.
    """
    if not request.task_id:
        raise missing_field("taskId")
    if not request.url:
        raise missing_field("url")
    if request.id == "" or request.tenant == "":
        request = replace(request, id=request.id or None, tenant=request.tenant or None)
    return request


def sound_push_id(request: GetPushConfigRequest) -> GetPushConfigRequest:
    """Check that a webhook is named.

    Raises:
        InvalidParams: `taskId` or `id` is empty.
    """
    if not request.task_id:
        raise missing_field("taskId")
    if not request.id:
        raise missing_field("id")
    return replace(request, tenant=None) if request.tenant == "" else request


def sound_push_list(request: ListPushConfigsRequest) -> ListPushConfigsRequest:
    """Check that a task is named.

    Raises:
        InvalidParams: `taskId` is empty.
    """
    if not request.task_id:
        raise missing_field("taskId")
    return replace(request, page_token=request.page_token or None, tenant=request.tenant or None)
