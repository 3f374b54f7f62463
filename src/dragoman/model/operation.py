"""The eleven operations of A2A, and the parameters of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task


class AuthenticationInfo(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The `Authorization` header that a webhook's receiver requires."""

    scheme: str
    credentials: str | None = None


class TaskPushNotificationConfig(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One webhook of one task."""

    url: str
    id: str | None = None
    task_id: str | None = None
    token: str | None = None
    authentication: AuthenticationInfo | None = None
    tenant: str | None = None


Count = Annotated[int, Meta(ge=0)]
PageSize = Annotated[int, Meta(ge=1, le=100)]
DEFAULT_PAGE_SIZE = 50


class SendMessageConfiguration(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Options for handling a message."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: Count | None = None
    return_immediately: bool = False
    if_generation_match: Count | None = None

    @property
    def accepts_only_text(self) -> bool:
        """True when the caller names the media types it reads, and all of them are text."""
        modes = [mode.partition(";")[0].strip().lower() for mode in self.accepted_output_modes]
        return bool(modes) and all(mode == "text" or mode.startswith("text/") for mode in modes)


class SendMessageRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of SendMessage and SendStreamingMessage.

    `new_task_id` is the task id that a 0.1 caller chose; later versions have no member for it.
    """

    message: Message
    configuration: SendMessageConfiguration = SendMessageConfiguration()
    metadata: dict[str, Any] | None = None
    tenant: str | None = None
    new_task_id: str | None = None


class GetTaskRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of GetTask; with `current_generation`, wait for a newer generation."""

    id: str
    history_length: Count | None = None
    current_generation: Count | None = None
    tenant: str | None = None


class ListTasksRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of ListTasks, which returns the caller's tasks, newest status first."""

    context_id: str | None = None
    status: State | None = None
    page_size: PageSize | None = None
    page_token: str | None = None
    history_length: Count | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None
    tenant: str | None = None


class ListTasksResponse(Struct, frozen=True, rename="camel"):
    """A page of tasks. `next_page_token` is empty on the last page."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class CancelTaskRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of CancelTask."""

    id: str
    metadata: dict[str, Any] | None = None
    tenant: str | None = None


class SubscribeToTaskRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of SubscribeToTask."""

    id: str
    tenant: str | None = None


class GetPushConfigRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of GetTaskPushNotificationConfig and DeleteTaskPushNotificationConfig."""

    task_id: str
    id: str
    tenant: str | None = None


class ListPushConfigsRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of ListTaskPushNotificationConfigs."""

    task_id: str
    page_size: Count | None = None
    page_token: str | None = None
    tenant: str | None = None


class GetExtendedAgentCardRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parameters of GetExtendedAgentCard."""

    tenant: str | None = None


Request = (
    SendMessageRequest
    | GetTaskRequest
    | ListTasksRequest
    | CancelTaskRequest
    | SubscribeToTaskRequest
    | TaskPushNotificationConfig
    | GetPushConfigRequest
    | ListPushConfigsRequest
    | GetExtendedAgentCardRequest
)


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
        """True when the response is a stream of events."""
        return self in (Operation.STREAM, Operation.SUBSCRIBE)

    @property
    def reads(self) -> bool:
        """True when it only reads tasks, so that it can still be refused after it was executed."""
        return self in (Operation.GET, Operation.LIST)


REQUEST_TYPES: dict[Operation, type[Any]] = {
    Operation.SEND: SendMessageRequest,
    Operation.STREAM: SendMessageRequest,
    Operation.GET: GetTaskRequest,
    Operation.LIST: ListTasksRequest,
    Operation.CANCEL: CancelTaskRequest,
    Operation.SUBSCRIBE: SubscribeToTaskRequest,
    Operation.CREATE_PUSH: TaskPushNotificationConfig,
    Operation.GET_PUSH: GetPushConfigRequest,
    Operation.LIST_PUSH: ListPushConfigsRequest,
    Operation.DELETE_PUSH: GetPushConfigRequest,
    Operation.EXTENDED_CARD: GetExtendedAgentCardRequest,
}
