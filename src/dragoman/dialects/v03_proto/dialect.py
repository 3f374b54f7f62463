"""A2A 0.3 over REST, whose JSON is ProtoJSON of package a2a.v1 and not that of 0.3 JSON-RPC.

A task is named by `id`, a webhook by `taskId` and `id`, as the path names them; the resource names of
the proto (`name: "tasks/ID"`, `parent`) are understood too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.dialects import table
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.reading.checks import sound_message
from dragoman.dialects.reading.invalid import Answers, missing_field
from dragoman.dialects.reading.lenient import Reader
from dragoman.dialects.v03.push import push_from_03, push_to_03
from dragoman.dialects.v03_proto.codec import (
    event_from_proto,
    event_to_proto,
    message_from_proto,
    message_to_proto,
    task_from_proto,
    task_to_proto,
)
from dragoman.dialects.v03_proto.types import (
    ProtoConfiguration,
    ProtoMessage,
    ProtoNothing,
    ProtoPushCreate,
    ProtoPushes,
    ProtoPushName,
    ProtoResponse,
    ProtoSend,
    ProtoTask,
    ProtoTaskName,
    ProtoTaskPush,
)
from dragoman.model.card import AgentCard
from dragoman.model.error import MethodNotFound
from dragoman.model.event import StreamResponse, response_of
from dragoman.model.json import decode_any, encode
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

_SENDS = (Operation.SEND, Operation.STREAM)
_PARAMS: dict[Operation, type[Any]] = {
    Operation.SEND: ProtoSend,
    Operation.STREAM: ProtoSend,
    Operation.GET: ProtoTaskName,
    Operation.CANCEL: ProtoTaskName,
    Operation.SUBSCRIBE: ProtoTaskName,
    Operation.CREATE_PUSH: ProtoPushCreate,
    Operation.GET_PUSH: ProtoPushName,
    Operation.LIST_PUSH: ProtoPushName,
    Operation.DELETE_PUSH: ProtoPushName,
    Operation.EXTENDED_CARD: ProtoNothing,
}
_READERS: dict[Operation, Reader[Any]] = {operation: Reader(type_) for operation, type_ in _PARAMS.items()}
_TASK = Reader(ProtoTask, fill=True)
_MESSAGE = Reader(ProtoMessage, fill=True)
_RESPONSE = Reader(ProtoResponse, fill=True, envelope=True)
_PUSH = Reader(ProtoTaskPush, fill=True)
_PUSHES = Reader(ProtoPushes, fill=True)


class V03Proto:
    """A2A 0.3 over REST.

    `blocking_by_default` says what a request without a `configuration` means.
    """

    row = table.row_of(table.V0_3, table.REST)
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
            task = task_to_proto(result)
            return encode(ProtoResponse(task=task) if operation in _SENDS else task)
        if isinstance(result, Message):
            return encode(ProtoResponse(message=message_to_proto(result)))
        if isinstance(result, TaskPushNotificationConfig):
            return encode(_push_to(result))
        if isinstance(result, tuple):
            return encode({"configs": [_push_to(config) for config in result]})
        if isinstance(result, AgentCard):
            return encode(card_json(result, {}, table.V0_3))
        if result is None:
            return b"{}"
        raise _no_operation(operation)

    def event(self, record: Record, *, last: bool) -> bytes:
        """See `EventWriter.event`."""
        return encode(event_to_proto(record.event, last=last))

    def stream(self, artifacts: Sequence[str] = ()) -> V03Proto:
        """See `Dialect.stream`."""
        return self

    def params(self, operation: Operation, request: Request) -> bytes:
        """See `CallingDialect.params`. What stands in the path is in the JSON too; take it from there."""
        if isinstance(request, SendMessageRequest):
            return encode(_send_params(request))
        if isinstance(request, GetTaskRequest):
            # 0 means unlimited here, so none at all cannot be asked for.
            return encode(ProtoTaskName(request.id, history_length=request.history_length or None))
        if isinstance(request, (CancelTaskRequest, SubscribeToTaskRequest)):
            return encode(ProtoTaskName(request.id))
        if isinstance(request, TaskPushNotificationConfig):
            return encode(ProtoPushCreate(request.task_id, f"tasks/{request.task_id}", request.id, _push_to(request)))
        if isinstance(request, GetPushConfigRequest):
            return encode(ProtoPushName(request.task_id, request.id))
        if isinstance(request, ListPushConfigsRequest):
            return encode(ProtoPushName(request.task_id, page_size=request.page_size, page_token=request.page_token))
        if isinstance(request, GetExtendedAgentCardRequest):
            return b"{}"
        raise _no_operation(operation)

    def result_from(self, operation: Operation, data: Any) -> Result:
        """See `CallingDialect.result_from`."""
        if operation in _SENDS:
            event = self.event_from(data)
            if event.task is None and event.message is None:
                raise self._answers.wrong("it holds neither a task nor a message")
            return event.task or event.message
        if operation is Operation.EXTENDED_CARD:
            return read_card(data)
        with self._answers:
            if operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
                return _push_from(_PUSH.read(data))
            if operation is Operation.LIST_PUSH:
                return tuple(map(_push_from, _PUSHES.read(data).configs))
        return None if operation is Operation.DELETE_PUSH else self.task_from(data)

    def task_from(self, data: bytes | dict[str, Any]) -> Task:
        """See `CallingDialect.task_from`."""
        with self._answers:
            return task_from_proto(_TASK.read(data))

    def message_from(self, data: bytes | dict[str, Any]) -> Message:
        """See `CallingDialect.message_from`."""
        with self._answers:
            return message_from_proto(_MESSAGE.read(data), "message")

    def event_from(self, data: bytes | dict[str, Any]) -> StreamResponse:
        """See `CallingDialect.event_from`."""
        with self._answers:
            event = event_from_proto(_RESPONSE.read(data))
            if event is None and isinstance(data, bytes):
                # Nothing in the envelope is required, so one in proto names reads as an empty one.
                event = event_from_proto(_RESPONSE.value(decode_any(data)))
        if event is None:
            raise self._answers.wrong("it holds none of task, message, statusUpdate and artifactUpdate")
        return response_of(event)

    def _reader(self, operation: Operation) -> Reader[Any]:
        if operation not in _READERS:
            raise _no_operation(operation)
        return _READERS[operation]

    def _request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, ProtoSend):
            return self._send(params)
        if isinstance(params, ProtoTaskName):
            return _task_request(operation, params)
        if isinstance(params, ProtoPushCreate):
            return _push_create(params)
        if isinstance(params, ProtoPushName):
            return _push_request(operation, params)
        return GetExtendedAgentCardRequest()

    def _send(self, params: ProtoSend) -> SendMessageRequest:
        # A ProtoJSON client cannot write `blocking: false`: all it can do is send a configuration without it.
        said = params.configuration or ProtoConfiguration(blocking=self._blocking)
        push = said.push_notification
        return SendMessageRequest(
            message=sound_message(message_from_proto(params.message, "message"), "content"),
            configuration=SendMessageConfiguration(
                accepted_output_modes=said.accepted_output_modes,
                task_push_notification_config=None
                if push is None
                else push_from_03(push, "configuration.pushNotification"),
                history_length=said.history_length or None,
                return_immediately=not said.blocking,
            ),
            metadata=params.metadata,
        )


def _task_request(operation: Operation, params: ProtoTaskName) -> Request:
    task_id = str(params.id or "") or _ids(params.name)[0]
    if not task_id:
        raise missing_field("id")
    if operation is Operation.GET:
        return GetTaskRequest(task_id, params.history_length or None)
    return CancelTaskRequest(task_id) if operation is Operation.CANCEL else SubscribeToTaskRequest(task_id)


def _push_create(params: ProtoPushCreate) -> TaskPushNotificationConfig:
    config = params.config or ProtoTaskPush()
    push, at = config.push_notification_config, "config.pushNotificationConfig"
    if push is None and params.push_notification_config is not None:
        push, at = params.push_notification_config, "pushNotificationConfig"
    if push is None:
        raise missing_field(at)
    named_task, named_config = _ids(config.name)
    task_id = str(params.task_id or "") or _ids(params.parent)[0] or named_task
    if not task_id:
        raise missing_field("taskId")
    found = push_from_03(push, at, task_id)
    return _with_id(found, found.id or params.config_id or named_config)


def _push_request(operation: Operation, params: ProtoPushName) -> Request:
    named_task, named_config = _ids(params.name or params.parent)
    task_id = str(params.task_id or "") or named_task
    config_id = params.id or named_config
    if not task_id:
        raise missing_field("taskId")
    if operation is Operation.LIST_PUSH:
        return ListPushConfigsRequest(task_id, params.page_size, params.page_token or None)
    if not config_id:
        raise missing_field("id")
    return GetPushConfigRequest(task_id, config_id)


def _push_to(config: TaskPushNotificationConfig) -> ProtoTaskPush:
    name = f"tasks/{config.task_id or ''}/pushNotificationConfigs/{config.id or ''}"
    return ProtoTaskPush(name, push_to_03(config))


def _push_from(push: ProtoTaskPush) -> TaskPushNotificationConfig:
    if push.push_notification_config is None:
        raise missing_field("pushNotificationConfig")
    task_id, config_id = _ids(push.name)
    found = push_from_03(push.push_notification_config, "pushNotificationConfig", task_id or None)
    return _with_id(found, found.id or config_id)


def _with_id(config: TaskPushNotificationConfig, config_id: str) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(
        config.url, config_id or None, config.task_id, config.token, config.authentication, config.tenant
    )


def _ids(name: str | None) -> tuple[str, str]:
    """The ids in `tasks/ID/pushNotificationConfigs/ID`; the proto once says `task/`."""
    words = (name or "").split("/")
    task_id = words[1] if len(words) > 1 and words[0] in ("tasks", "task") else ""
    return task_id, words[3] if task_id and len(words) > 3 else ""


def _send_params(request: SendMessageRequest) -> ProtoSend:
    said = request.configuration
    push = said.task_push_notification_config
    configuration = ProtoConfiguration(
        accepted_output_modes=said.accepted_output_modes,
        push_notification=None if push is None else push_to_03(push),
        history_length=said.history_length or None,
        blocking=not said.return_immediately,
    )
    return ProtoSend(message_to_proto(request.message), configuration, request.metadata)


def _no_operation(operation: Operation) -> MethodNotFound:
    return MethodNotFound(f"A2A 0.3 has no {operation}: ask for it in A2A 1.0")


V03_PROTO = V03Proto()
