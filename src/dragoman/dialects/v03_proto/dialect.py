"""A2A 0.3 over REST, whose JSON is ProtoJSON of package a2a.v1 and not that of 0.3 JSON-RPC.

A task is identified by `id`, a webhook by `taskId` and `id`, as in the path; the resource names of the proto
(`name: "tasks/ID"`, `parent`) are accepted too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from dragoman.dialects import table
from dragoman.dialects.reading.checks import check_message
from dragoman.dialects.reading.invalid import missing_field
from dragoman.dialects.reading.lenient import LenientReader
from dragoman.dialects.spelling import role_of
from dragoman.dialects.v03.codec import push_from_03, push_to_03
from dragoman.dialects.v03.dialect import (
    SENDS,
    V03,
    Writers,
    build_configuration,
    build_readers,
    build_task_request,
    require,
)
from dragoman.dialects.v03.types import NoParams03
from dragoman.dialects.v03_proto.codec import ProtoCodec
from dragoman.dialects.v03_proto.file_bytes import ONCE, TWICE, UNKNOWN, PeerFormat
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
from dragoman.model.json import UNREADABLE, as_object, decode_any, encode
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
from dragoman.model.state import Role
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.model.record import Record

_TASK = LenientReader(ProtoTask, fill_defaults=True)
_MESSAGE = LenientReader(ProtoMessage, fill_defaults=True)
_RESPONSE = LenientReader(ProtoResponse, fill_defaults=True, envelope=True)
_PUSH = LenientReader(ProtoTaskPush, fill_defaults=True)
_PUSHES = LenientReader(ProtoPushes, fill_defaults=True)
# The origin of tasks whose caller was found to encode files twice.
TWICE_ORIGIN = f"{table.V0_3}/twice"


def _send_params(request: SendMessageRequest, codec: ProtoCodec) -> ProtoSend:
    configuration = request.configuration
    push = configuration.task_push_notification_config
    params = ProtoConfiguration(
        accepted_output_modes=configuration.accepted_output_modes,
        push_notification=None if push is None else push_to_03(push),
        history_length=configuration.history_length or None,
        blocking=not configuration.return_immediately,
    )
    return ProtoSend(codec.message_to(request.message), params, request.metadata)


def _push_to(config: TaskPushNotificationConfig) -> ProtoTaskPush:
    name = f"tasks/{config.task_id or ''}/pushNotificationConfigs/{config.id or ''}"
    return ProtoTaskPush(name, push_to_03(config))


class V03Proto(V03):
    """A2A 0.3 over REST. `write_params` includes the parameters of the path; `RestBinding` moves them there.

    `files` is the format of the peer's files. Where it is only known from a request, it is stored as the origin of the
    task, so that later requests of that caller get it too. `bare_webhooks`: the server reads a webhook without its
    wrapping `config`, see `takes_bare_webhooks`.
    """

    row = table.row_of(table.V0_3, table.REST)
    readers = build_readers(
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
    writers: ClassVar[Writers] = {
        # Here 0 means unlimited, so an empty history cannot be requested.
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
    no_result = "it holds neither a task nor a message"

    def __init__(
        self, *, blocking_by_default: bool = True, files: PeerFormat = UNKNOWN, bare_webhooks: bool = False
    ) -> None:
        super().__init__(blocking_by_default=blocking_by_default)
        self.files = files
        self.appends = files.appends
        self._bare_webhooks = bare_webhooks
        self._codec = ProtoCodec(files)
        self.origin = TWICE_ORIGIN if files.twice and files.guessed else self.row.version

    def write_params(self, operation: Operation, request: Request) -> bytes:
        if isinstance(request, SendMessageRequest):
            return encode(_send_params(request, self._codec))
        if self._bare_webhooks and isinstance(request, TaskPushNotificationConfig):
            name, webhook = _push_to(request).name, push_to_03(request)
            return encode(ProtoPushCreate(request.task_id, name=name, push_notification_config=webhook))
        return super().write_params(operation, request)

    def write_event(self, record: Record, *, last: bool) -> bytes:
        return encode(self._codec.response_to(record.event, last=last))

    def read_task(self, data: bytes | dict[str, Any]) -> Task:
        with self._response_errors:
            return self._codec.task_from(_TASK.read(data))

    def read_message(self, data: bytes | dict[str, Any]) -> Message:
        with self._response_errors:
            return self._codec.message_from(_MESSAGE.read(data), "message")

    def read_event(self, data: bytes | dict[str, Any]) -> StreamResponse:
        with self._response_errors:
            event = self._codec.response_from(_RESPONSE.read(data))
            if event is None and isinstance(data, bytes):
                # No member is required, so a response in proto names is read as empty by the strict decoder.
                event = self._codec.response_from(_RESPONSE.read_value(decode_any(data)))
        if event is None:
            raise self._response_errors.bad_response("it holds none of task, message, statusUpdate and artifactUpdate")
        return response_of(event)

    def _to_request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, ProtoSend):
            return self._from_proto_send(params)
        if isinstance(params, ProtoTaskName):
            return build_task_request(operation, params.id or _ids(params.name)[0], params.history_length or None)
        if isinstance(params, ProtoPushCreate):
            return _push_create(params)
        return _push_request(operation, params) if isinstance(params, ProtoPushName) else GetExtendedAgentCardRequest()

    def _from_proto_send(self, params: ProtoSend) -> SendMessageRequest:
        if not params.message.role or role_of(params.message.role) is Role.UNSPECIFIED:
            raise missing_field("message.role")
        # A ProtoJSON client cannot write `blocking: false`: it sends a configuration without it.
        configuration = params.configuration or ProtoConfiguration(blocking=self._blocking)
        push, at = configuration.push_notification, "configuration.pushNotification"
        return SendMessageRequest(
            message=check_message(self._codec.message_from(params.message, "message"), "content"),
            configuration=build_configuration(
                configuration.accepted_output_modes,
                push,
                at,
                configuration.history_length or None,
                blocking=bool(configuration.blocking),
            ),
            metadata=params.metadata,
        )

    def _result_to(self, operation: Operation, result: Task | Message) -> Any:
        if isinstance(result, Task) and operation not in SENDS:
            return self._codec.task_to(result)
        return self._codec.response_to(result, last=False)

    def _webhook_to(self, config: TaskPushNotificationConfig) -> Any:
        return _push_to(config)

    def _webhooks_to(self, configs: tuple[TaskPushNotificationConfig, ...]) -> Any:
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
    webhook = push_from_03(push, at, require(task_id, "taskId"))
    return replace(webhook, id=webhook.id or params.config_id or named_config or None)


def _push_request(operation: Operation, params: ProtoPushName) -> Request:
    named_task, named_config = _ids(params.name or params.parent)
    task_id = require(params.task_id or named_task, "taskId")
    if operation is Operation.LIST_PUSH:
        return ListPushConfigsRequest(task_id, params.page_size, params.page_token or None)
    return GetPushConfigRequest(task_id, require(params.id or named_config, "id"))


def _push_from(push: ProtoTaskPush) -> TaskPushNotificationConfig:
    if push.push_notification_config is None:
        raise missing_field("pushNotificationConfig")
    task_id, config_id = _ids(push.name)
    webhook = push_from_03(push.push_notification_config, "pushNotificationConfig", task_id or None)
    return replace(webhook, id=webhook.id or config_id or None)


def _ids(name: str | None) -> tuple[str, str]:
    """Return the ids in `tasks/ID/pushNotificationConfigs/ID`; the proto has `task/` in one place."""
    words = (name or "").split("/")
    task_id = words[1] if len(words) > 1 and words[0] in ("tasks", "task") else ""
    return task_id, words[3] if task_id and len(words) > 3 else ""


def takes_bare_webhooks(error: bytes) -> bool:
    """True for the error of @a2a-js/sdk, which does not read the request of the proto that creates a webhook."""
    try:
        return as_object(decode_any(error)).keys() == {"code", "message"}
    except UNREADABLE:
        return False


V03_PROTO = V03Proto()
V03_PROTO_TWICE = V03Proto(files=TWICE)
V03_PROTO_BARE = V03Proto(files=ONCE, bare_webhooks=True)
