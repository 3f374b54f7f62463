"""A2A 0.3 over REST, whose JSON is ProtoJSON of package a2a.v1 and not that of 0.3 JSON-RPC.

A task is named by `id`, a webhook by `taskId` and `id`, as the path names them; the resource names of
the proto (`name: "tasks/ID"`, `parent`) are understood too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from dragoman.dialects import table
from dragoman.dialects.reading.checks import sound_message
from dragoman.dialects.reading.invalid import missing_field
from dragoman.dialects.reading.lenient import Reader
from dragoman.dialects.v03.codec import push_from_03, push_to_03
from dragoman.dialects.v03.dialect import SENDS, V03, Spellings, configuration, readers_of, required, task_request
from dragoman.dialects.v03.types import NoParams03
from dragoman.dialects.v03_proto.codec import CODEC
from dragoman.dialects.v03_proto.types import (
    ProtoConfiguration,
    ProtoMessage,
    ProtoPushCreate,
    ProtoPushes,
    ProtoPushName,
    ProtoResponse,
    ProtoSend,
    ProtoTask,
    ProtoTaskName,
    ProtoTaskPush,
)
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
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.model.record import Record

_TASK = Reader(ProtoTask, fill=True)
_MESSAGE = Reader(ProtoMessage, fill=True)
_RESPONSE = Reader(ProtoResponse, fill=True, envelope=True)
_PUSH = Reader(ProtoTaskPush, fill=True)
_PUSHES = Reader(ProtoPushes, fill=True)


def _send_params(request: SendMessageRequest) -> ProtoSend:
    wanted = request.configuration
    push = wanted.task_push_notification_config
    spelled = ProtoConfiguration(
        accepted_output_modes=wanted.accepted_output_modes,
        push_notification=None if push is None else push_to_03(push),
        history_length=wanted.history_length or None,
        blocking=not wanted.return_immediately,
    )
    return ProtoSend(CODEC.message_to(request.message), spelled, request.metadata)


def _push_to(config: TaskPushNotificationConfig) -> ProtoTaskPush:
    name = f"tasks/{config.task_id or ''}/pushNotificationConfigs/{config.id or ''}"
    return ProtoTaskPush(name, push_to_03(config))


class V03Proto(V03):
    """A2A 0.3 over REST. What `params` spells holds what stands in the path too; it is taken from there."""

    row = table.row_of(table.V0_3, table.REST)
    readers = readers_of(
        {
            Operation.SEND: ProtoSend,
            Operation.STREAM: ProtoSend,
            Operation.GET: ProtoTaskName,
            Operation.CANCEL: ProtoTaskName,
            Operation.SUBSCRIBE: ProtoTaskName,
            Operation.CREATE_PUSH: ProtoPushCreate,
            Operation.GET_PUSH: ProtoPushName,
            Operation.LIST_PUSH: ProtoPushName,
            Operation.DELETE_PUSH: ProtoPushName,
            Operation.EXTENDED_CARD: NoParams03,
        }
    )
    spellings: ClassVar[Spellings] = {
        SendMessageRequest: _send_params,
        # 0 means unlimited here, so none at all cannot be asked for.
        GetTaskRequest: lambda request: ProtoTaskName(request.id, history_length=request.history_length or None),
        CancelTaskRequest: lambda request: ProtoTaskName(request.id),
        SubscribeToTaskRequest: lambda request: ProtoTaskName(request.id),
        TaskPushNotificationConfig: lambda config: ProtoPushCreate(
            config.task_id, f"tasks/{config.task_id}", config.id, _push_to(config)
        ),
        GetPushConfigRequest: lambda request: ProtoPushName(request.task_id, request.id),
        ListPushConfigsRequest: lambda request: ProtoPushName(
            request.task_id, page_size=request.page_size, page_token=request.page_token
        ),
        GetExtendedAgentCardRequest: lambda _: NoParams03(),
    }
    empty = b"{}"
    no_answer = "it holds neither a task nor a message"

    def event(self, record: Record, *, last: bool) -> bytes:
        """See `EventWriter.event`."""
        return encode(CODEC.response_to(record.event, last=last))

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
            event = CODEC.response_from(_RESPONSE.read(data))
            if event is None and isinstance(data, bytes):
                # Nothing in the envelope is required, so one in proto names reads as an empty one.
                event = CODEC.response_from(_RESPONSE.value(decode_any(data)))
        if event is None:
            raise self._answers.wrong("it holds none of task, message, statusUpdate and artifactUpdate")
        return response_of(event)

    def _request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, ProtoSend):
            return self._send_from(params)
        if isinstance(params, ProtoTaskName):
            return task_request(operation, params.id or _ids(params.name)[0], params.history_length or None)
        if isinstance(params, ProtoPushCreate):
            return _push_create(params)
        return _push_request(operation, params) if isinstance(params, ProtoPushName) else GetExtendedAgentCardRequest()

    def _send_from(self, params: ProtoSend) -> SendMessageRequest:
        # A ProtoJSON client cannot write `blocking: false`: all it can do is send a configuration without it.
        wanted = params.configuration or ProtoConfiguration(blocking=self._blocking)
        push, at = wanted.push_notification, "configuration.pushNotification"
        return SendMessageRequest(
            message=sound_message(CODEC.message_from(params.message, "message"), "content"),
            configuration=configuration(
                wanted.accepted_output_modes, push, at, wanted.history_length or None, blocking=bool(wanted.blocking)
            ),
            metadata=params.metadata,
        )

    def _answer(self, operation: Operation, answer: Task | Message) -> Any:
        if isinstance(answer, Task) and operation not in SENDS:
            return CODEC.task_to(answer)
        return CODEC.response_to(answer, last=False)

    def _webhook(self, config: TaskPushNotificationConfig) -> Any:
        return _push_to(config)

    def _webhooks(self, configs: tuple[TaskPushNotificationConfig, ...]) -> Any:
        return {"configs": [_push_to(config) for config in configs]}

    def _webhook_from(self, data: Any) -> TaskPushNotificationConfig:
        return _push_from(_PUSH.read(data))

    def _webhooks_from(self, data: Any) -> tuple[TaskPushNotificationConfig, ...]:
        return tuple(map(_push_from, _PUSHES.read(data).configs))


def _push_create(params: ProtoPushCreate) -> TaskPushNotificationConfig:
    config = params.config or ProtoTaskPush()
    push, at = config.push_notification_config, "config.pushNotificationConfig"
    if push is None and params.push_notification_config is not None:
        push, at = params.push_notification_config, "pushNotificationConfig"
    if push is None:
        raise missing_field(at)
    named_task, named_config = _ids(config.name)
    task_id = str(params.task_id or "") or _ids(params.parent)[0] or named_task
    found = push_from_03(push, at, required(task_id, "taskId"))
    return replace(found, id=found.id or params.config_id or named_config or None)


def _push_request(operation: Operation, params: ProtoPushName) -> Request:
    named_task, named_config = _ids(params.name or params.parent)
    task_id = required(params.task_id or named_task, "taskId")
    if operation is Operation.LIST_PUSH:
        return ListPushConfigsRequest(task_id, params.page_size, params.page_token or None)
    return GetPushConfigRequest(task_id, required(params.id or named_config, "id"))


def _push_from(push: ProtoTaskPush) -> TaskPushNotificationConfig:
    if push.push_notification_config is None:
        raise missing_field("pushNotificationConfig")
    task_id, config_id = _ids(push.name)
    found = push_from_03(push.push_notification_config, "pushNotificationConfig", task_id or None)
    return replace(found, id=found.id or config_id or None)


def _ids(name: str | None) -> tuple[str, str]:
    """The ids in `tasks/ID/pushNotificationConfigs/ID`; the proto once says `task/`."""
    words = (name or "").split("/")
    task_id = words[1] if len(words) > 1 and words[0] in ("tasks", "task") else ""
    return task_id, words[3] if task_id and len(words) > 3 else ""


V03_PROTO = V03Proto()
