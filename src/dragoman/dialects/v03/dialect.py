"""A2A 0.3 over JSON-RPC, which 0.2 callers understand too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.dialects import table
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.reading.checks import sound_message
from dragoman.dialects.reading.invalid import Answers, missing_field
from dragoman.dialects.reading.lenient import Reader
from dragoman.dialects.v03.codec import (
    event_from_03,
    event_to_03,
    message_from_03,
    message_to_03,
    task_from_03,
    task_to_03,
)
from dragoman.dialects.v03.push import push_from_03, push_to_03
from dragoman.dialects.v03.types import (
    Configuration03,
    Event03,
    Message03,
    NoParams03,
    PushParams03,
    SendParams03,
    Task03,
    TaskParams03,
    TaskPush03,
)
from dragoman.model.card import AgentCard
from dragoman.model.error import MethodNotFound
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
    from collections.abc import Sequence

    from dragoman.dialects.dialect import Result
    from dragoman.model.record import Record

_PARAMS: dict[Operation, type[Any]] = {
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
_READERS: dict[Operation, Reader[Any]] = {operation: Reader(type_) for operation, type_ in _PARAMS.items()}
_TASK = Reader(Task03, fill=True)
_MESSAGE = Reader(Message03, fill=True)
_EVENT = Reader(cast("type[Event03]", Event03), fill=True)
_PUSH = Reader(TaskPush03, fill=True)
_PUSHES: Reader[tuple[TaskPush03, ...]] = Reader(tuple[TaskPush03, ...], fill=True)


class V03:
    """A2A 0.3 over JSON-RPC.

    `blocking_by_default` says what a request without `blocking` means: 0.3 leaves it to the server.
    """

    row = table.row_of(table.V0_3, table.JSONRPC)
    version = origin = row.version
    projects = False
    asks = row.asks

    def __init__(self, *, blocking_by_default: bool = True) -> None:
        self._blocking = blocking_by_default
        self._answers = Answers(self.version)

    def request(self, operation: Operation, params: bytes) -> Request:
        """See `Dialect.request`."""
        return self._request(operation, self._reader(operation).json(params))

    def request_from(self, operation: Operation, params: dict[str, Any]) -> Request:
        """See `Dialect.request_from`."""
        return self._request(operation, self._reader(operation).value(params))

    def result(self, operation: Operation, result: Result) -> bytes:
        """See `Dialect.result`."""
        if isinstance(result, Task):
            return encode(task_to_03(result))
        if isinstance(result, Message):
            return encode(message_to_03(result))
        if isinstance(result, TaskPushNotificationConfig):
            return encode(_push_result(result))
        if isinstance(result, tuple):
            return encode([_push_result(config) for config in result])
        if isinstance(result, AgentCard):
            return encode(card_json(result, {}, table.V0_3))
        if result is None:
            return b"null"
        raise _no_operation(operation)

    def event(self, record: Record, *, last: bool) -> bytes:
        """See `EventWriter.event`."""
        return encode(event_to_03(record.event, last=last))

    def stream(self, artifacts: Sequence[str] = ()) -> V03:
        """See `Dialect.stream`."""
        return self

    def params(self, operation: Operation, request: Request) -> bytes:
        """See `CallingDialect.params`."""
        if isinstance(request, SendMessageRequest):
            return encode(_send_params(request))
        if isinstance(request, GetTaskRequest):
            return encode(TaskParams03(request.id, request.history_length))
        if isinstance(request, CancelTaskRequest):
            return encode(TaskParams03(request.id, metadata=request.metadata))
        if isinstance(request, SubscribeToTaskRequest):
            return encode(TaskParams03(request.id))
        if isinstance(request, TaskPushNotificationConfig):
            return encode(_push_result(request))
        if isinstance(request, GetPushConfigRequest):
            return encode(PushParams03(request.task_id, request.id or None))
        if isinstance(request, ListPushConfigsRequest):
            return encode(PushParams03(request.task_id))
        if isinstance(request, GetExtendedAgentCardRequest):
            return b"{}"
        raise _no_operation(operation)

    def result_from(self, operation: Operation, data: Any) -> Result:
        """See `CallingDialect.result_from`."""
        if operation is Operation.EXTENDED_CARD:
            return read_card(data)
        if operation is Operation.DELETE_PUSH:
            return None
        with self._answers:
            if operation in (Operation.SEND, Operation.STREAM):
                answer = event_from_03(_EVENT.read(data))
                if isinstance(answer, (Task, Message)):
                    return answer
                raise self._answers.wrong("it is neither a task nor a message")
            if operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
                return _push_from(_PUSH.read(data))
            if operation is Operation.LIST_PUSH:
                # Some spell an empty list as null.
                return () if data in (None, b"null") else tuple(map(_push_from, _PUSHES.read(data)))
        return self.task_from(data)

    def task_from(self, data: bytes | dict[str, Any]) -> Task:
        """See `CallingDialect.task_from`."""
        with self._answers:
            return task_from_03(_TASK.read(data))

    def message_from(self, data: bytes | dict[str, Any]) -> Message:
        """See `CallingDialect.message_from`."""
        with self._answers:
            return message_from_03(_MESSAGE.read(data), "message")

    def event_from(self, data: bytes | dict[str, Any]) -> StreamResponse:
        """See `CallingDialect.event_from`."""
        with self._answers:
            return response_of(event_from_03(_EVENT.read(data)))

    def _reader(self, operation: Operation) -> Reader[Any]:
        if operation not in _READERS:
            raise _no_operation(operation)
        return _READERS[operation]

    def _request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, SendParams03):
            return self._send(params)
        if isinstance(params, TaskParams03):
            return _task_request(operation, params)
        if isinstance(params, TaskPush03):
            return _push_from(params)
        if isinstance(params, PushParams03):
            return _push_request(operation, params)
        return GetExtendedAgentCardRequest()

    def _send(self, params: SendParams03) -> SendMessageRequest:
        said = params.configuration
        push = said.push_notification_config
        blocking = self._blocking if said.blocking is None else said.blocking
        return SendMessageRequest(
            message=sound_message(message_from_03(params.message, "message")),
            configuration=SendMessageConfiguration(
                accepted_output_modes=said.accepted_output_modes,
                task_push_notification_config=None
                if push is None
                else push_from_03(push, "configuration.pushNotificationConfig"),
                history_length=said.history_length,
                return_immediately=not blocking,
            ),
            metadata=params.metadata,
        )


def _task_request(operation: Operation, params: TaskParams03) -> Request:
    if params.id == "":
        raise missing_field("id")
    task_id = str(params.id)
    if operation is Operation.GET:
        return GetTaskRequest(task_id, params.history_length)
    if operation is Operation.CANCEL:
        return CancelTaskRequest(task_id, params.metadata)
    return SubscribeToTaskRequest(task_id)


def _push_request(operation: Operation, params: PushParams03) -> Request:
    if params.id == "":
        raise missing_field("id")
    task_id, config_id = str(params.id), params.push_notification_config_id or ""
    if operation is Operation.LIST_PUSH:
        return ListPushConfigsRequest(task_id)
    if operation is Operation.DELETE_PUSH and not config_id:
        raise missing_field("pushNotificationConfigId")
    # Only `get` may leave it out: then the task's first webhook is meant.
    return GetPushConfigRequest(task_id, config_id)


def _push_from(push: TaskPush03) -> TaskPushNotificationConfig:
    if push.task_id == "":
        raise missing_field("taskId")
    return push_from_03(push.push_notification_config, "pushNotificationConfig", str(push.task_id))


def _push_result(config: TaskPushNotificationConfig) -> TaskPush03:
    return TaskPush03(config.task_id or "", push_to_03(config))


def _send_params(request: SendMessageRequest) -> SendParams03:
    said = request.configuration
    push = said.task_push_notification_config
    configuration = Configuration03(
        accepted_output_modes=said.accepted_output_modes,
        blocking=not said.return_immediately,
        history_length=said.history_length,
        push_notification_config=None if push is None else push_to_03(push),
    )
    return SendParams03(message_to_03(request.message), configuration, request.metadata)


def _no_operation(operation: Operation) -> MethodNotFound:
    return MethodNotFound(f"A2A 0.3 has no {operation}: ask for it in A2A 1.0")


V03_RPC = V03()
