"""A2A 0.3 over JSON-RPC, also for 0.2 clients.

0.3 over REST and 0.1 work alike with other types: both are subclasses of `V03`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec.structs import replace

from dragoman.dialects import table
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.reading.checks import check_message
from dragoman.dialects.reading.invalid import ResponseErrors, missing_field
from dragoman.dialects.reading.lenient import LenientReader
from dragoman.dialects.spelling import role_of
from dragoman.dialects.v03.codec import CODEC, push_from_03, push_to_03
from dragoman.dialects.v03.types import (
    Configuration03,
    Event03,
    Message03,
    NoParams03,
    Push03,
    PushParams03,
    SendParams03,
    Task03,
    TaskParams03,
    TaskPush03,
)
from dragoman.model.card import AgentCard
from dragoman.model.error import InvalidParams
from dragoman.model.event import StreamResponse, response_of
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    Operation,
    Request,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.dialects.dialect import EventWriter, Result
    from dragoman.model.record import Record

Readers = Mapping[Operation, LenientReader[Any]]
Writers = Mapping[type[Any], Callable[[Any], Any]]

SENDS = (Operation.SEND, Operation.STREAM)
_TASK = LenientReader(Task03, fill_defaults=True)
_MESSAGE = LenientReader(Message03, fill_defaults=True)
_EVENT = LenientReader(cast("type[Event03]", Event03), fill_defaults=True)
_PUSH = LenientReader(TaskPush03, fill_defaults=True)
_PUSHES: LenientReader[tuple[TaskPush03, ...]] = LenientReader(tuple[TaskPush03, ...], fill_defaults=True)


def build_readers(types: Mapping[Operation, type[Any]]) -> Readers:
    """Build the readers of the parameters of each operation."""
    return {operation: LenientReader(type_) for operation, type_ in types.items()}


def require(value: str | int | None, field: str) -> str:
    """Return a required id as text. Raises InvalidParams when it is missing."""
    if value is None or value == "":
        raise missing_field(field)
    return str(value)


def build_task_request(
    operation: Operation,
    task_id: str | int | None,
    history_length: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> Request:
    """Build the request of an operation on one task. Raises InvalidParams when the task id is missing."""
    name = require(task_id, "id")
    if operation is Operation.GET:
        return GetTaskRequest(name, history_length)
    return CancelTaskRequest(name, metadata) if operation is Operation.CANCEL else SubscribeToTaskRequest(name)


def build_configuration(
    modes: tuple[str, ...], push: Push03 | None, at: str, history_length: int | None, *, blocking: bool = True
) -> SendMessageConfiguration:
    """Build the configuration of a send request; the webhook is at the path `at`. Raises InvalidParams."""
    return SendMessageConfiguration(
        accepted_output_modes=modes,
        task_push_notification_config=None if push is None else push_from_03(push, at),
        history_length=history_length,
        return_immediately=not blocking,
    )


def _send_params(request: SendMessageRequest) -> SendParams03:
    configuration = request.configuration
    push = configuration.task_push_notification_config
    params = Configuration03(
        accepted_output_modes=configuration.accepted_output_modes,
        blocking=not configuration.return_immediately,
        history_length=configuration.history_length,
        push_notification_config=None if push is None else push_to_03(push),
    )
    return SendParams03(CODEC.message_to(request.message), params, request.metadata)


def _push_to(config: TaskPushNotificationConfig) -> TaskPush03:
    return TaskPush03(config.task_id or "", push_to_03(config))


def _push_from(push: TaskPush03) -> TaskPushNotificationConfig:
    return push_from_03(push.push_notification_config, "pushNotificationConfig", require(push.task_id, "taskId"))


# Writers of the requests on one task, shared with 0.1.
TASK_WRITERS: Writers = {
    GetTaskRequest: lambda request: TaskParams03(request.id, request.history_length),
    CancelTaskRequest: lambda request: TaskParams03(request.id, metadata=request.metadata),
    SubscribeToTaskRequest: lambda request: TaskParams03(request.id),
}


class V03:
    """A2A 0.3 over JSON-RPC.

    `blocking_by_default` says whether a request without `blocking` blocks: 0.3 leaves that to the server.
    """

    row = table.row_of(table.V0_3)
    version = row.version
    origin = row.version
    asks = row.asks
    appends = True
    readers: ClassVar[Readers] = build_readers(
        {
            Operation.SEND: SendParams03,
            Operation.STREAM: SendParams03,
            Operation.GET: TaskParams03,
            Operation.CANCEL: TaskParams03,
            Operation.SUBSCRIBE: TaskParams03,
            Operation.CREATE_PUSH: TaskPush03,
            Operation.GET_PUSH: PushParams03,
            Operation.LIST_PUSH: PushParams03,
            Operation.DELETE_PUSH: PushParams03,
            Operation.EXTENDED_CARD: NoParams03,
        }
    )
    writers: ClassVar[Writers] = {
        **TASK_WRITERS,
        SendMessageRequest: _send_params,
        TaskPushNotificationConfig: _push_to,
        GetPushConfigRequest: lambda request: PushParams03(request.task_id, request.id or None),
        ListPushConfigsRequest: lambda request: PushParams03(request.task_id),
        GetExtendedAgentCardRequest: lambda _: NoParams03(),
    }
    empty: ClassVar[bytes] = b"null"
    no_result: ClassVar[str] = "it is neither a task nor a message"

    def __init__(self, *, blocking_by_default: bool = True) -> None:
        self._blocking = blocking_by_default
        self._response_errors = ResponseErrors(self.version)

    def read_request(self, operation: Operation, params: bytes) -> Request:
        table.method_of(operation, self.version)
        return self._to_request(operation, self.readers[operation].read_json(params))

    def read_values(self, operation: Operation, params: dict[str, Any]) -> Request:
        table.method_of(operation, self.version)
        return self._to_request(operation, self.readers[operation].read_value(params))

    def write_result(self, operation: Operation, result: Result) -> bytes:
        table.method_of(operation, self.version)
        if isinstance(result, (Task, Message)):
            return encode(self._result_to(operation, result))
        if isinstance(result, TaskPushNotificationConfig):
            return encode(self._webhook_to(result))
        if isinstance(result, tuple):
            return encode(self._webhooks_to(result))
        return encode(card_json(result, {}, table.V0_3)) if isinstance(result, AgentCard) else self.empty

    def write_event(self, record: Record, *, last: bool) -> bytes:
        return encode(CODEC.event_to(record.event, last=last))

    def event_writer(self, artifacts: Sequence[str] = ()) -> EventWriter:
        return self

    def write_params(self, operation: Operation, request: Request) -> bytes:
        table.method_of(operation, self.version)
        return encode(self.writers[type(request)](request))

    def read_result(self, operation: Operation, data: Any) -> Result:
        if operation in SENDS:
            return self._result_from(data)
        if operation is Operation.EXTENDED_CARD:
            return read_card(data)
        if operation is Operation.DELETE_PUSH:
            return None
        with self._response_errors:
            if operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
                return self._webhook_from(data)
            if operation is Operation.LIST_PUSH:
                return self._webhooks_from(data)
        return self.read_task(data)

    def read_task(self, data: bytes | dict[str, Any]) -> Task:
        with self._response_errors:
            return CODEC.task_from(_TASK.read(data))

    def read_message(self, data: bytes | dict[str, Any]) -> Message:
        with self._response_errors:
            return CODEC.message_from(_MESSAGE.read(data), "message")

    def read_event(self, data: bytes | dict[str, Any]) -> StreamResponse:
        with self._response_errors:
            return response_of(CODEC.event_from(_EVENT.read(data)))

    # -- overridden in the subclasses ----------------------------------------------------------------------------------

    def _to_request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, SendParams03):
            return self._to_send_request(params)
        if isinstance(params, TaskParams03):
            return build_task_request(operation, params.id, params.history_length, params.metadata)
        if isinstance(params, TaskPush03):
            return _push_from(params)
        return _push_request(operation, params) if isinstance(params, PushParams03) else GetExtendedAgentCardRequest()

    def _to_send_request(self, params: SendParams03) -> SendMessageRequest:
        configuration = params.configuration
        blocking = self._blocking if configuration.blocking is None else configuration.blocking
        push, at = configuration.push_notification_config, "configuration.pushNotificationConfig"
        if params.message.role and role_of(params.message.role) is None:
            raise InvalidParams("message.role must be user", field="message.role")
        return SendMessageRequest(
            message=check_message(CODEC.message_from(params.message, "message")),
            configuration=build_configuration(
                configuration.accepted_output_modes, push, at, configuration.history_length, blocking=blocking
            ),
            metadata=params.metadata,
        )

    def _result_to(self, operation: Operation, result: Task | Message) -> Any:
        written = CODEC.event_to(result, last=False)
        if operation is Operation.GET and isinstance(result, Task) and not result.history:
            # Who asks for no messages is told that there are none. A list, as an empty tuple would be left out.
            return replace(cast("Task03", written), history=[])
        return written

    def _result_from(self, data: Any) -> Task | Message:
        event = self.read_event(data)
        result = event.task or event.message
        if result is None:
            raise self._response_errors.bad_response(self.no_result)
        return result

    def _webhook_to(self, config: TaskPushNotificationConfig) -> Any:
        return _push_to(config)

    def _webhooks_to(self, configs: tuple[TaskPushNotificationConfig, ...]) -> Any:
        return [_push_to(config) for config in configs]

    def _webhook_from(self, data: Any) -> TaskPushNotificationConfig:
        return _push_from(_PUSH.read(data))

    def _webhooks_from(self, data: Any) -> tuple[TaskPushNotificationConfig, ...]:
        # Some servers send an empty list as null.
        return () if data in (None, b"null") else tuple(map(_push_from, _PUSHES.read(data)))


def _push_request(operation: Operation, params: PushParams03) -> Request:
    task_id, config_id = require(params.id, "id"), params.push_notification_config_id or ""
    if operation is Operation.LIST_PUSH:
        return ListPushConfigsRequest(task_id)
    if operation is Operation.DELETE_PUSH:
        require(config_id, "pushNotificationConfigId")
    # Only `get` may omit it: then it means the first webhook of the task.
    return GetPushConfigRequest(task_id, config_id)


V03_RPC = V03()
