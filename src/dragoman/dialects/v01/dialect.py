"""A2A 0.1: `tasks/send`, parts with `type`, sessions, and task ids the caller chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dragoman.dialects import table
from dragoman.dialects.reading.checks import sound_message
from dragoman.dialects.reading.invalid import Answers, missing_field
from dragoman.dialects.reading.lenient import Reader
from dragoman.dialects.spelling import LEGACY_WORDS
from dragoman.dialects.v01.codec import (
    answer_to_01,
    artifact_to_01,
    event_from_01,
    message_from_01,
    message_to_01,
    status_to_01,
    task_from_01,
    task_to_01,
)
from dragoman.dialects.v01.types import (
    Event01,
    Message01,
    SendParams01,
    Status01,
    Task01,
    TaskParams01,
    TaskPush01,
)
from dragoman.dialects.v03.parts import Part03
from dragoman.dialects.v03.push import push_from_03, push_to_03
from dragoman.model.error import MethodNotFound
from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse, response_of
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    Operation,
    Request,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.dialects.dialect import Result
    from dragoman.model.record import Record

_PARAMS: dict[Operation, type[Any]] = {
    Operation.SEND: SendParams01,
    Operation.STREAM: SendParams01,
    Operation.GET: TaskParams01,
    Operation.CANCEL: TaskParams01,
    Operation.SUBSCRIBE: TaskParams01,
    Operation.CREATE_PUSH: TaskPush01,
    Operation.GET_PUSH: TaskParams01,
}
_READERS: dict[Operation, Reader[Any]] = {operation: Reader(type_) for operation, type_ in _PARAMS.items()}
_TASK = Reader(Task01, fill=True)
_MESSAGE = Reader(Message01, fill=True)
_EVENT = Reader(Event01, fill=True)
_PUSH = Reader(TaskPush01, fill=True)


class Legacy:
    """A2A 0.1. It answers every request with a task."""

    row = table.row_of(table.V0_1, table.JSONRPC)
    version = origin = row.version
    projects = False
    asks = row.asks

    def __init__(self) -> None:
        self._answers = Answers(self.version)

    def request(self, operation: Operation, params: bytes) -> Request:
        """See `Dialect.request`."""
        return _request(operation, self._reader(operation).json(params))

    def request_from(self, operation: Operation, params: dict[str, Any]) -> Request:
        """See `Dialect.request_from`."""
        return _request(operation, self._reader(operation).value(params))

    def result(self, operation: Operation, result: Result) -> bytes:
        """See `Dialect.result`."""
        if isinstance(result, Task):
            return encode(task_to_01(result))
        if isinstance(result, Message):
            return encode(answer_to_01(result))
        if isinstance(result, TaskPushNotificationConfig):
            return encode(_push_to(result))
        raise _no_operation(operation)

    def event(self, record: Record, *, last: bool) -> bytes:
        """See `EventWriter.event`. Every artifact is the first here: only a `LegacyStream` can count them."""
        return LegacyStream().event(record, last=last)

    def stream(self, artifacts: Sequence[str] = ()) -> LegacyStream:
        """See `Dialect.stream`."""
        return LegacyStream(artifacts)

    def params(self, operation: Operation, request: Request) -> bytes:
        """See `CallingDialect.params`."""
        if isinstance(request, SendMessageRequest):
            return encode(_send_params(request))
        if isinstance(request, GetTaskRequest):
            return encode(TaskParams01(request.id, request.history_length))
        if isinstance(request, CancelTaskRequest):
            return encode(TaskParams01(request.id, metadata=request.metadata))
        if isinstance(request, SubscribeToTaskRequest):
            return encode(TaskParams01(request.id))
        if isinstance(request, TaskPushNotificationConfig):
            return encode(_push_to(request))
        if isinstance(request, GetPushConfigRequest) and operation is Operation.GET_PUSH:
            return encode(TaskParams01(request.task_id))
        raise _no_operation(operation)

    def result_from(self, operation: Operation, data: Any) -> Result:
        """See `CallingDialect.result_from`."""
        if operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
            with self._answers:
                return _push_from(_PUSH.read(data))
        return self.task_from(data)

    def task_from(self, data: bytes | dict[str, Any]) -> Task:
        """See `CallingDialect.task_from`."""
        with self._answers:
            return task_from_01(_TASK.read(data))

    def message_from(self, data: bytes | dict[str, Any]) -> Message:
        """See `CallingDialect.message_from`. It gets a fresh id, as 0.1 gives it none."""
        with self._answers:
            return message_from_01(_MESSAGE.read(data), "message", str(uuid4()))

    def event_from(self, data: bytes | dict[str, Any]) -> StreamResponse:
        """See `CallingDialect.event_from`."""
        with self._answers:
            return response_of(event_from_01(_EVENT.read(data)))

    def _reader(self, operation: Operation) -> Reader[Any]:
        if operation not in _READERS:
            raise _no_operation(operation)
        return _READERS[operation]


class LegacyStream:
    """One stream of 0.1 events. It remembers the artifacts it has seen, because 0.1 knows them by their index."""

    __slots__ = ("_indexes",)

    def __init__(self, artifacts: Sequence[str] = ()) -> None:
        self._indexes: dict[str, int] = {each: index for index, each in enumerate(artifacts)}

    def event(self, record: Record, *, last: bool) -> bytes:
        """See `EventWriter.event`. A task and a bare message are shown by their status."""
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
        answer = Status01(LEGACY_WORDS[State.COMPLETED], message_to_01(event))
        return encode(Event01(event.task_id or str(uuid4()), status=answer, final=last))

    def _index(self, artifact_id: str) -> int:
        return self._indexes.setdefault(artifact_id, len(self._indexes))


def _request(operation: Operation, params: Any) -> Request:
    if isinstance(params, SendParams01):
        return _send(params)
    if isinstance(params, TaskPush01):
        return _push_from(params)
    return _task_request(operation, params)


def _send(params: SendParams01) -> SendMessageRequest:
    said = params.message
    # A string is what the oldest callers send.
    wire = Message01(role="user", parts=(Part03(type="text", text=said),)) if isinstance(said, str) else said
    message = message_from_01(wire, "message", str(uuid4()))
    push = params.push_notification
    return SendMessageRequest(
        message=sound_message(_in_session(message, _text(params.session_id))),
        configuration=SendMessageConfiguration(
            accepted_output_modes=params.accepted_output_modes,
            task_push_notification_config=None if push is None else push_from_03(push, "pushNotification"),
            history_length=params.history_length,
        ),
        metadata=params.metadata,
        new_task_id=_text(params.id),
    )


def _in_session(message: Message, session_id: str | None) -> Message:
    return Message(message.message_id, message.role, message.parts, session_id, metadata=message.metadata)


def _task_request(operation: Operation, params: TaskParams01) -> Request:
    task_id = _text(params.id)
    if task_id is None:
        raise missing_field("id")
    if operation is Operation.GET:
        return GetTaskRequest(task_id, params.history_length)
    if operation is Operation.CANCEL:
        return CancelTaskRequest(task_id, params.metadata)
    if operation is Operation.GET_PUSH:
        # 0.1 has one webhook for a task: the first is meant.
        return GetPushConfigRequest(task_id, "")
    return SubscribeToTaskRequest(task_id)


def _push_from(push: TaskPush01) -> TaskPushNotificationConfig:
    task_id = _text(push.id)
    if task_id is None:
        raise missing_field("id")
    return push_from_03(push.push_notification_config, "pushNotificationConfig", task_id)


def _push_to(config: TaskPushNotificationConfig) -> TaskPush01:
    return TaskPush01(config.task_id or "", push_to_03(config))


def _send_params(request: SendMessageRequest) -> SendParams01:
    message, said = request.message, request.configuration
    push = said.task_push_notification_config
    return SendParams01(
        message=message_to_01(message),
        # 0.1 demands an id from its caller.
        id=request.new_task_id or message.task_id or str(uuid4()),
        session_id=message.context_id,
        accepted_output_modes=said.accepted_output_modes,
        push_notification=None if push is None else push_to_03(push),
        history_length=said.history_length,
        metadata=request.metadata,
    )


def _text(value: str | int | None) -> str | None:
    return None if value is None or value == "" else str(value)


def _no_operation(operation: Operation) -> MethodNotFound:
    return MethodNotFound(f"A2A 0.1 has no {operation}: ask for it in A2A 1.0")


LEGACY = Legacy()
