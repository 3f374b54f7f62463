"""A2A 0.1: `tasks/send`, parts with `type`, sessions, and task ids the caller chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from dragoman.dialects import table
from dragoman.dialects.reading.checks import check_message
from dragoman.dialects.reading.lenient import LenientReader
from dragoman.dialects.spelling import LEGACY_WORDS
from dragoman.dialects.v01.codec import (
    artifact_to_01,
    event_from_01,
    message_from_01,
    message_to_01,
    reply_to_01,
    status_to_01,
    task_from_01,
    task_to_01,
)
from dragoman.dialects.v01.types import Event01, Message01, SendParams01, Status01, Task01, TaskPush01
from dragoman.dialects.v03.codec import push_from_03, push_to_03
from dragoman.dialects.v03.dialect import (
    TASK_WRITERS,
    V03,
    Writers,
    build_configuration,
    build_readers,
    build_task_request,
    require,
)
from dragoman.dialects.v03.types import Part03, TaskParams03
from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse, response_of
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    GetPushConfigRequest,
    Operation,
    Request,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model.record import Record

_TASK = LenientReader(Task01, fill_defaults=True)
_MESSAGE = LenientReader(Message01, fill_defaults=True)
_EVENT = LenientReader(Event01, fill_defaults=True)
_PUSH = LenientReader(TaskPush01, fill_defaults=True)


def _send_params(request: SendMessageRequest) -> SendParams01:
    message, configuration = request.message, request.configuration
    push = configuration.task_push_notification_config
    return SendParams01(
        message=message_to_01(message),
        # In 0.1 the client chooses the task id.
        id=request.new_task_id or message.task_id or str(uuid4()),
        session_id=message.context_id,
        accepted_output_modes=configuration.accepted_output_modes,
        push_notification=None if push is None else push_to_03(push),
        history_length=configuration.history_length,
        metadata=request.metadata,
    )


def _push_to(config: TaskPushNotificationConfig) -> TaskPush01:
    return TaskPush01(config.task_id or "", push_to_03(config))


class V01(V03):
    """A2A 0.1 over JSON-RPC. Every result is a task."""

    row = table.row_of(table.V0_1)
    version = origin = row.version
    asks = row.asks
    readers = build_readers(
        {
            Operation.SEND: SendParams01,
            Operation.STREAM: SendParams01,
            Operation.GET: TaskParams03,
            Operation.CANCEL: TaskParams03,
            Operation.SUBSCRIBE: TaskParams03,
            Operation.CREATE_PUSH: TaskPush01,
            Operation.GET_PUSH: TaskParams03,
        }
    )
    writers: ClassVar[Writers] = {
        **TASK_WRITERS,
        SendMessageRequest: _send_params,
        TaskPushNotificationConfig: _push_to,
        GetPushConfigRequest: lambda request: TaskParams03(request.task_id),
    }

    def write_event(self, record: Record, *, last: bool) -> bytes:
        """Encode an event outside a stream: any artifact has index 0, since only `V01EventWriter` counts them."""
        return V01EventWriter().write_event(record, last=last)

    def event_writer(self, artifacts: Sequence[str] = ()) -> V01EventWriter:
        return V01EventWriter(artifacts)

    def read_task(self, data: bytes | dict[str, Any]) -> Task:
        with self._response_errors:
            return task_from_01(_TASK.read(data))

    def read_message(self, data: bytes | dict[str, Any]) -> Message:
        """Read a message; it gets a new id, as 0.1 has none."""
        with self._response_errors:
            return message_from_01(_MESSAGE.read(data), "message", str(uuid4()))

    def read_event(self, data: bytes | dict[str, Any]) -> StreamResponse:
        with self._response_errors:
            return response_of(event_from_01(_EVENT.read(data)))

    def _to_request(self, operation: Operation, params: Any) -> Request:
        if isinstance(params, SendParams01):
            return _to_send_request(params)
        if isinstance(params, TaskPush01):
            return _push_from(params)
        if operation is Operation.GET_PUSH:
            # 0.1 has one webhook per task, so the empty id means the first.
            return GetPushConfigRequest(require(params.id, "id"), "")
        return build_task_request(operation, params.id, params.history_length, params.metadata)

    def _result_to(self, operation: Operation, result: Task | Message) -> Any:
        return task_to_01(result) if isinstance(result, Task) else reply_to_01(result)

    def _result_from(self, data: Any) -> Task:
        return self.read_task(data)

    def _webhook_to(self, config: TaskPushNotificationConfig) -> Any:
        return _push_to(config)

    def _webhook_from(self, data: Any) -> TaskPushNotificationConfig:
        return _push_from(_PUSH.read(data))


class V01EventWriter:
    """Writes one stream of 0.1 events. It assigns artifacts their indexes, by which 0.1 identifies them."""

    __slots__ = ("_indexes",)

    def __init__(self, artifacts: Sequence[str] = ()) -> None:
        self._indexes: dict[str, int] = {each: index for index, each in enumerate(artifacts)}

    def write_event(self, record: Record, *, last: bool) -> bytes:
        """Encode an event; a task and a message become a status update."""
        event = record.event
        if isinstance(event, ArtifactUpdate):
            artifact = artifact_to_01(
                event.artifact,
                self._index(event.artifact.artifact_id),
                append=event.append,
                last_chunk=event.last_chunk,
            )
            return encode(Event01(event.task_id, artifact=artifact, metadata=event.metadata))
        if isinstance(event, StatusUpdate):
            status = status_to_01(event.status)
            return encode(Event01(event.task_id, status=status, final=last, metadata=event.metadata))
        if isinstance(event, Task):
            for artifact in event.artifacts:
                self._index(artifact.artifact_id)
            return encode(Event01(event.id, status=status_to_01(event.status), final=last))
        status = Status01(LEGACY_WORDS[State.COMPLETED], message_to_01(event))
        return encode(Event01(event.task_id or str(uuid4()), status=status, final=last))

    def _index(self, artifact_id: str) -> int:
        return self._indexes.setdefault(artifact_id, len(self._indexes))


def _to_send_request(params: SendParams01) -> SendMessageRequest:
    content = params.message
    # The oldest clients send a plain string.
    message_01 = (
        Message01(role="user", parts=(Part03(type="text", text=content),)) if isinstance(content, str) else content
    )
    message = message_from_01(message_01, "message", str(uuid4()))
    return SendMessageRequest(
        message=check_message(_with_session(message, _text(params.session_id))),
        configuration=build_configuration(
            params.accepted_output_modes, params.push_notification, "pushNotification", params.history_length
        ),
        metadata=params.metadata,
        new_task_id=_text(params.id),
    )


def _with_session(message: Message, session_id: str | None) -> Message:
    return Message(message.message_id, message.role, message.parts, session_id, metadata=message.metadata)


def _push_from(push: TaskPush01) -> TaskPushNotificationConfig:
    return push_from_03(push.push_notification_config, "pushNotificationConfig", require(push.id, "id"))


def _text(value: str | int | None) -> str | None:
    return None if value is None or value == "" else str(value)


V01_RPC = V01()
