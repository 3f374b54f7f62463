"""A2A 0.3 over JSON-RPC, which 0.2 callers understand too.

Its REST binding and 0.1 take the same way with other objects: both are subclasses of `V03`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from dragoman.dialects import table
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.reading.checks import sound_message
from dragoman.dialects.reading.invalid import Answers, missing_field
from dragoman.dialects.reading.lenient import Reader
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

Readers = Mapping[Operation, Reader[Any]]
Spellings = Mapping[type[Any], Callable[[Any], Any]]

SENDS = (Operation.SEND, Operation.STREAM)
_TASK = Reader(Task03, fill=True)
_MESSAGE = Reader(Message03, fill=True)
_EVENT = Reader(cast("type[Event03]", Event03), fill=True)
_PUSH = Reader(TaskPush03, fill=True)
_PUSHES: Reader[tuple[TaskPush03, ...]] = Reader(tuple[TaskPush03, ...], fill=True)


def readers_of(types: Mapping[Operation, type[Any]]) -> Readers:
    """What reads the parameters of each operation, by their types."""
    return {operation: Reader(type_) for operation, type_ in types.items()}


def required(value: str | int | None, field: str) -> str:
    """An id that must be there, as text. Raises InvalidParams."""
    if value is None or value == "":
        raise missing_field(field)
    return str(value)


def task_request(
    operation: Operation,
    task_id: str | int | None,
    history_length: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> Request:
    """The request of an operation on one task. Raises InvalidParams when the task is not named."""
    name = required(task_id, "id")
    if operation is Operation.GET:
        return GetTaskRequest(name, history_length)
    return CancelTaskRequest(name, metadata) if operation is Operation.CANCEL else SubscribeToTaskRequest(name)


def configuration(
    modes: tuple[str, ...], push: Push03 | None, at: str, history_length: int | None, *, blocking: bool = True
) -> SendMessageConfiguration:
    """How a message is to be handled; the webhook stands at the path `at`. Raises InvalidParams."""
    return SendMessageConfiguration(
        accepted_output_modes=modes,
        task_push_notification_config=None if push is None else push_from_03(push, at),
        history_length=history_length,
        return_immediately=not blocking,
    )


def _send_params(request: SendMessageRequest) -> SendParams03:
    wanted = request.configuration
    push = wanted.task_push_notification_config
    spelled = Configuration03(
        accepted_output_modes=wanted.accepted_output_modes,
        blocking=not wanted.return_immediately,
        history_length=wanted.history_length,
        push_notification_config=None if push is None else push_to_03(push),
    )
    return SendParams03(CODEC.message_to(request.message), spelled, request.metadata)


def _push_to(config: TaskPushNotificationConfig) -> TaskPush03:
    return TaskPush03(config.task_id or "", push_to_03(config))


def _push_from(push: TaskPush03) -> TaskPushNotificationConfig:
    return push_from_03(push.push_notification_config, "pushNotificationConfig", required(push.task_id, "taskId"))


# How requests about a task are spelled over JSON-RPC.
OF_TASK: Spellings = {
    GetTaskRequest: lambda request: TaskParams03(request.id, request.history_length),
    CancelTaskRequest: lambda request: TaskParams03(request.id, metadata=request.metadata),
    SubscribeToTaskRequest: lambda request: TaskParams03(request.id),
}


class V03:
    """A2A 0.3 over JSON-RPC.

    `blocking_by_default` says what a request without `blocking` means: 0.3 leaves it to the server.
    """

    row = table.row_of(table.V0_3)
    version = row.version
    origin = row.version
    asks = row.asks
    readers: ClassVar[Readers] = readers_of(
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
    spellings: ClassVar[Spellings] = {
        **OF_TASK,
        SendMessageRequest: _send_params,
        TaskPushNotificationConfig: _push_to,
        GetPushConfigRequest: lambda request: PushParams03(request.task_id, request.id or None),
        ListPushConfigsRequest: lambda request: PushParams03(request.task_id),
        GetExtendedAgentCardRequest: lambda _: NoParams03(),
    }
    empty: ClassVar[bytes] = b"null"
    no_answer: ClassVar[str] = "it is neither a task nor a message"

    def __init__(self, *, blocking_by_default: bool = True) -> None:
        self._blocking = blocking_by_default
        self._answers = Answers(self.version)

    def request(self, operation: Operation, params: bytes) -> Request:
        """See `Dialect.request`."""
        table.method_of(operation, self.version)
        return self._request(operation, self.readers[operation].json(params))

    def request_from(self, operation: Operation, params: dict[str, Any]) -> Request:
        """See `Dialect.request_from`."""
        table.method_of(operation, self.version)
        return self._request(operation, self.readers[operation].value(params))

    def result(self, operation: Operation, result: Result) -> bytes:
        """See `Dialect.result`."""
        table.method_of(operation, self.version)
        if isinstance(result, (Task, Message)):
            return encode(self._answer(operation, result))
        if isinstance(result, TaskPushNotificationConfig):
            return encode(self._webhook(result))
        if isinstance(result, tuple):
            return encode(self._webhooks(result))
        return encode(card_json(result, {}, table.V0_3)) if isinstance(result, AgentCard) else self.empty

    def event(self, record: Record, *, last: bool) -> bytes:
        """See `EventWriter.event`."""
        return encode(CODEC.event_to(record.event, last=last))

    def stream(self, artifacts: Sequence[str] = ()) -> EventWriter:
        """See `Dialect.stream`."""
        return self

    def params(self, operation: Operation, request: Request) -> bytes:
        """See `CallingDialect.params`."""
        table.method_of(operation, self.version)
        return encode(self.spellings[type(request)](request))

    def result_from(self, operation: Operation, data: Any) -> Result:
        """See `CallingDialect.result_from`."""
        if operation in SENDS:
            return self._answer_from(data)
        if operation is Operation.EXTENDED_CARD:
            return read_card(data)
        if operation is Operation.DELETE_PUSH:
            return None
        with self._answers:
            if operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
                return self._webhook_from(data)
            if operation is Operation.LIST_PUSH:
                return self._webhooks_from(data)
        return self.task_from(data)

    def task_from(self, data: bytes | dict[str, Any]) -> Task:
        """See `CallingDialect.task_from`."""
        with self._answers:
            return CODEC.task_from(_TASK.read(data))

    def message_from(self, data: bytes | dict[str, Any]) -> Message:
        """See `CallingDialect.message_from`."""
        with self._answers:
            return CODEC.message_from(_MESSAGE.read(data), "message")

    def event_from(self, data: bytes | dict[str, Any]) -> StreamResponse:
        """See `CallingDialect.event_from`."""
        with self._answers:
            return response_of(CODEC.event_from(_EVENT.read(data)))

    # -- what has other objects in the other dialects ------------------------------------------------------------------

    def _request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, SendParams03):
            return self._send(params)
        if isinstance(params, TaskParams03):
            return task_request(operation, params.id, params.history_length, params.metadata)
        if isinstance(params, TaskPush03):
            return _push_from(params)
        return _push_request(operation, params) if isinstance(params, PushParams03) else GetExtendedAgentCardRequest()

    def _send(self, params: SendParams03) -> SendMessageRequest:
        wanted = params.configuration
        blocking = self._blocking if wanted.blocking is None else wanted.blocking
        push, at = wanted.push_notification_config, "configuration.pushNotificationConfig"
        return SendMessageRequest(
            message=sound_message(CODEC.message_from(params.message, "message")),
            configuration=configuration(
                wanted.accepted_output_modes, push, at, wanted.history_length, blocking=blocking
            ),
            metadata=params.metadata,
        )

    def _answer(self, operation: Operation, answer: Task | Message) -> Any:
        return CODEC.event_to(answer, last=False)

    def _answer_from(self, data: Any) -> Task | Message:
        event = self.event_from(data)
        answer = event.task or event.message
        if answer is None:
            raise self._answers.wrong(self.no_answer)
        return answer

    def _webhook(self, config: TaskPushNotificationConfig) -> Any:
        return _push_to(config)

    def _webhooks(self, configs: tuple[TaskPushNotificationConfig, ...]) -> Any:
        return [_push_to(config) for config in configs]

    def _webhook_from(self, data: Any) -> TaskPushNotificationConfig:
        return _push_from(_PUSH.read(data))

    def _webhooks_from(self, data: Any) -> tuple[TaskPushNotificationConfig, ...]:
        # Some spell an empty list as null.
        return () if data in (None, b"null") else tuple(map(_push_from, _PUSHES.read(data)))


def _push_request(operation: Operation, params: PushParams03) -> Request:
    task_id, config_id = required(params.id, "id"), params.push_notification_config_id or ""
    if operation is Operation.LIST_PUSH:
        return ListPushConfigsRequest(task_id)
    if operation is Operation.DELETE_PUSH:
        required(config_id, "pushNotificationConfigId")
    # Only `get` may leave it out: then the task's first webhook is meant.
    return GetPushConfigRequest(task_id, config_id)


V03_RPC = V03()
