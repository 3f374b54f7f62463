"""The eleven operations of A2A, as one table."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from dragoman.model import request as r
from dragoman.model.push import TaskPushNotificationConfig


class Operation(StrEnum):
    """An operation, named as A2A 1.0 names it."""

    SEND = "SendMessage"
    STREAM = "SendStreamingMessage"
    GET = "GetTask"
    LIST = "ListTasks"
    CANCEL = "CancelTask"
    SUBSCRIBE = "SubscribeToTask"
    CREATE_PUSH = "CreateTaskPushNotificationConfig"
    GET_PUSH = "GetTaskPushNotificationConfig"
    LIST_PUSH = "ListTaskPushNotificationConfigs"
    DELETE_PUSH = "DeleteTaskPushNotificationConfig"
    EXTENDED_CARD = "GetExtendedAgentCard"

    @property
    def streams(self) -> bool:
        """True when the answer is a stream of events."""
        return self in (Operation.STREAM, Operation.SUBSCRIBE)

    @property
    def reads(self) -> bool:
        """True when it shows tasks and changes nothing: it can be refused when all is done but its answer."""
        return self in (Operation.GET, Operation.LIST)


REQUEST_TYPES: dict[Operation, type[Any]] = {
    Operation.SEND: r.SendMessageRequest,
    Operation.STREAM: r.SendMessageRequest,
    Operation.GET: r.GetTaskRequest,
    Operation.LIST: r.ListTasksRequest,
    Operation.CANCEL: r.CancelTaskRequest,
    Operation.SUBSCRIBE: r.SubscribeToTaskRequest,
    Operation.CREATE_PUSH: TaskPushNotificationConfig,
    Operation.GET_PUSH: r.GetPushConfigRequest,
    Operation.LIST_PUSH: r.ListPushConfigsRequest,
    Operation.DELETE_PUSH: r.GetPushConfigRequest,
    Operation.EXTENDED_CARD: r.GetExtendedAgentCardRequest,
}
