"""A2A 1.0 and 1.1: the JSON of the model itself; 1.1 adds generations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import table
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.reading.checks import check_request, check_send
from dragoman.dialects.reading.invalid import ResponseErrors
from dragoman.dialects.reading.lenient import LenientReader
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.card import AgentCard
from dragoman.model.error import BadResponse
from dragoman.model.event import StreamResponse
from dragoman.model.json import UNREADABLE, as_object, decode_any, encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    REQUEST_TYPES,
    GetTaskRequest,
    ListTasksResponse,
    Operation,
    Request,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.dialects.dialect import Result
    from dragoman.model.record import Record

_SENDS = (Operation.SEND, Operation.STREAM)
# How 0.3 names what 1.0 wraps in an envelope.
_KINDS = ("task", "message", "status-update", "artifact-update")
_ONLY_0_1 = frozenset({"newTaskId"})
_ONLY_1_1 = frozenset({"ifGenerationMatch", "currentGeneration", "generation"})
# The generation is the last member of a stored event, directly before its two closing braces.
_GENERATION = re.compile(rb',"generation":\d+\}\}\Z')
_GENERATION_BYTES = 40
_ZERO, _NINE = b"09"


class PushConfigs(Struct, frozen=True, rename="camel"):
    """The webhooks of a task, as 1.0 lists them."""

    configs: tuple[TaskPushNotificationConfig, ...] = ()
    next_page_token: str = ""


class V1:
    """A2A 1.0 or 1.1, over JSON-RPC and REST. 1.1 is 1.0 with generations."""

    def __init__(self, row: table.Row) -> None:
        self.row = row
        self.version = self.origin = row.version
        self.asks = row.asks
        self.appends = True
        self._response_errors = ResponseErrors(row.version)
        self._has_generations = row.generations
        ignored = _ONLY_0_1 if self._has_generations else _ONLY_0_1 | _ONLY_1_1

        def reader(type_: type[Any], *, fill_defaults: bool = True, envelope: bool = False) -> LenientReader[Any]:
            return LenientReader(
                type_,
                ignored=ignored,
                fill_defaults=fill_defaults,
                numbers_as_text=self._has_generations,
                envelope=envelope,
            )

        self._requests: dict[Operation, LenientReader[Request]] = {
            operation: reader(type_, fill_defaults=False) for operation, type_ in REQUEST_TYPES.items()
        }
        self._task: LenientReader[Task] = reader(Task)
        self._message: LenientReader[Message] = reader(Message)
        self._event: LenientReader[StreamResponse] = reader(StreamResponse, envelope=True)
        self._page: LenientReader[ListTasksResponse] = reader(ListTasksResponse)
        self._push: LenientReader[TaskPushNotificationConfig] = reader(TaskPushNotificationConfig)
        self._pushes: LenientReader[PushConfigs] = reader(PushConfigs)

    def read_request(self, operation: Operation, params: bytes) -> Request:
        reader = self._requests[operation]
        if operation not in _SENDS:
            return self._drop_unsupported(check_request(operation, reader.read_json(params)))
        # The hot path: nearly every request is one of these.
        try:
            request: Any = reader.read_strict(params)
        except UNREADABLE as error:
            request = reader.recover(params, error)
        request = check_send(request)
        if request.new_task_id is None and request.configuration.if_generation_match is None:
            return request
        return self._drop_unsupported(request)

    def read_values(self, operation: Operation, params: dict[str, Any]) -> Request:
        return self._drop_unsupported(check_request(operation, self._requests[operation].read_value(params)))

    def write_result(self, operation: Operation, result: Result) -> bytes:
        if isinstance(result, Task):
            body = self._write_task(result)
            return b'{"task":%b}' % body if operation in _SENDS else body
        if isinstance(result, Message):
            return b'{"message":%b}' % encode(result)
        if isinstance(result, ListTasksResponse):
            return self._write_page(result)
        if isinstance(result, tuple):
            return encode(PushConfigs(result))
        if isinstance(result, AgentCard):
            return encode(card_json(result, {}, table.V1_0))
        return b"{}" if result is None else encode(result)

    def write_event(self, record: Record, *, last: bool) -> bytes:
        """Encode an event; 1.0 forwards the stored bytes without encoding them again."""
        body = record.body
        # Only an event whose last value is a number can end with a generation.
        if _ZERO <= body[-3] <= _NINE:
            body = _strip_generation(body)
        if not self._has_generations or body.startswith(b'{"message"'):
            return body
        return b'%b,"generation":"%d"}}' % (body[:-2], record.generation)

    def event_writer(self, artifacts: Sequence[str] = ()) -> V1:
        return self

    def write_params(self, operation: Operation, request: Request) -> bytes:
        return encode(self._drop_unsupported(request))

    def read_result(self, operation: Operation, data: Any) -> Result:
        if operation in _SENDS:
            event = self.read_event(data)
            if event.task is None and event.message is None:
                raise self._response_errors.bad_response("it holds neither a task nor a message")
            return event.task or event.message
        if operation is Operation.EXTENDED_CARD:
            return read_card(data)
        with self._response_errors:
            if operation is Operation.LIST:
                page = self._page.read(data)
                return replace(page, tasks=tuple(map(self._check_task, page.tasks)))
            if operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
                return self._push.read(data)
            if operation is Operation.LIST_PUSH:
                return self._pushes.read(data).configs
        return None if operation is Operation.DELETE_PUSH else self.read_task(data)

    def read_task(self, data: bytes | dict[str, Any]) -> Task:
        try:
            with self._response_errors:
                return self._check_task(self._task.read(data))
        except BadResponse:
            task = _read_flat(data).task
            if task is None:
                raise
            return task

    def read_message(self, data: bytes | dict[str, Any]) -> Message:
        with self._response_errors:
            return self._message.read(data)

    def read_event(self, data: bytes | dict[str, Any]) -> StreamResponse:
        try:
            event = self._read_event(data)
        except BadResponse:
            event = _read_flat(data)
            if event == _EMPTY:
                raise
        if event == _EMPTY:
            event = _read_flat(data)
        if event == _EMPTY:
            raise self._response_errors.bad_response("it holds none of task, message, statusUpdate and artifactUpdate")
        if event.task is not None and not event.task.id:
            raise self._response_errors.bad_response("it is a task without an id")
        return event if self._has_generations else _strip_generations(event)

    def _read_event(self, data: bytes | dict[str, Any]) -> StreamResponse:
        with self._response_errors:
            event = self._event.read(data)
            if event == _EMPTY and isinstance(data, bytes) and data.strip():
                # No member is required, so a response in snake_case is read as empty by the strict decoder.
                event = self._event.read_value(decode_any(data))
        return event

    def _drop_unsupported(self, request: Request) -> Request:
        """Remove members that this version does not have but strict decoding accepted."""
        if isinstance(request, SendMessageRequest):
            if request.new_task_id is not None:
                request = replace(request, new_task_id=None)
            if not self._has_generations and request.configuration.if_generation_match is not None:
                request = replace(request, configuration=replace(request.configuration, if_generation_match=None))
        elif (
            isinstance(request, GetTaskRequest) and not self._has_generations and request.current_generation is not None
        ):
            request = replace(request, current_generation=None)
        return request

    def _check_task(self, task: Task) -> Task:
        if not task.id:  # the client could never get it again
            raise self._response_errors.bad_response("it is a task without an id")
        return task if self._has_generations or task.generation is None else replace(task, generation=None)

    def _write_task(self, task: Task) -> bytes:
        generation = task.generation
        if generation is None:
            return encode(task)
        body = encode(replace(task, generation=None))
        # ProtoJSON writes an int64 as a string.
        return b'%b,"generation":"%d"}' % (body[:-1], generation) if self._has_generations else body

    def _write_page(self, page: ListTasksResponse) -> bytes:
        rest = encode(replace(page, tasks=()))
        return b'{"tasks":[%b]%b' % (b",".join(map(self._write_task, page.tasks)), rest.removeprefix(b'{"tasks":[]'))


_EMPTY = StreamResponse()


def _read_flat(data: bytes | dict[str, Any]) -> StreamResponse:
    """Read an event in the form of 0.3, named by its `kind`; empty when it is none.

    Some servers say 1.0 on their cards and send it nevertheless, in the envelope of 1.0 or without one.
    """
    try:
        event = as_object(decode_any(data) if isinstance(data, bytes) else data)
        wrapped = [each for each in map(as_object, event.values()) if each.get("kind") in _KINDS]
        if event.get("kind") not in _KINDS and len(wrapped) == 1:
            event = wrapped[0]
        return V03_RPC.read_event(event) if event.get("kind") in _KINDS else _EMPTY
    except (BadResponse, *UNREADABLE):
        return _EMPTY


def _strip_generation(body: bytes) -> bytes:
    match = _GENERATION.search(body, max(0, len(body) - _GENERATION_BYTES))
    return body[: match.start()] + b"}}" if match else body


def _strip_generations(event: StreamResponse) -> StreamResponse:
    status, artifact, task = event.status_update, event.artifact_update, event.task
    if status is not None and status.generation is not None:
        return StreamResponse(status_update=replace(status, generation=None))
    if artifact is not None and artifact.generation is not None:
        return StreamResponse(artifact_update=replace(artifact, generation=None))
    if task is not None and task.generation is not None:
        return StreamResponse(task=replace(task, generation=None))
    return event


V1_0 = V1(table.row_of(table.V1_0))
V1_1 = V1(table.row_of(table.V1_1))
