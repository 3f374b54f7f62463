"""Validates requests beyond their types, the same for every dialect, and limits the size of JSON.

proto3 cannot distinguish an empty string from an absent one, so an empty optional id counts as absent.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.clock import milliseconds
from dragoman.dialects.reading.invalid import missing_field, quoted
from dragoman.model.error import InvalidParams
from dragoman.model.json import UNREADABLE
from dragoman.model.message import Message
from dragoman.model.operation import ListTasksRequest, Operation, SendMessageRequest
from dragoman.model.state import Role, State


def check_message(message: Message, parts: str = "parts") -> Message:
    """Validate a caller's message and return it normalized; `parts` is the name of its parts in this dialect.

    Raises:
        InvalidParams: no messageId, no parts, or a message that claims to come from an agent.
    """
    if not message.message_id:
        raise missing_field("message.messageId")
    if not message.parts:
        raise InvalidParams(f"message.{parts} must hold at least one part", field=f"message.{parts}")
    if message.role is not Role.USER:
        if message.role is Role.AGENT:
            raise InvalidParams("message.role must be the user's: only the agent speaks as agent", field="message.role")
        message = replace(message, role=Role.USER)
    if message.task_id == "" or message.context_id == "":
        message = replace(message, task_id=message.task_id or None, context_id=message.context_id or None)
    return message


def check_send(request: SendMessageRequest) -> SendMessageRequest:
    """Validate a 1.x send request and return it normalized.

    Raises:
        InvalidParams: as `check_message`, or a webhook without a URL.
    """
    message = request.message
    push = request.configuration.task_push_notification_config
    if (
        message.role is Role.USER
        and message.message_id
        and message.parts
        and push is None
        and "" not in (message.task_id, message.context_id, request.tenant)
    ):
        return request
    message = check_message(message)
    if push is not None and not push.url:
        raise missing_field("configuration.taskPushNotificationConfig.url")
    return replace(request, message=message, tenant=request.tenant or None)


def _check_list(request: ListTasksRequest) -> ListTasksRequest:
    """Validate a list request and return it normalized; an empty filter is none.

    Raises:
        InvalidParams: `statusTimestampAfter` is not a time.
    """
    after = request.status_timestamp_after
    if after:
        try:
            milliseconds(after)
        except ValueError:
            raise InvalidParams(
                f"statusTimestampAfter must be a time such as 2026-11-15T10:00:00.000Z, not {quoted(after)}",
                field="statusTimestampAfter",
            ) from None
    return replace(
        request,
        context_id=request.context_id or None,
        status=None if request.status is State.UNSPECIFIED else request.status,
        page_token=request.page_token or None,
        status_timestamp_after=after or None,
        tenant=request.tenant or None,
    )


class _FieldNeeds(NamedTuple):
    """The required fields of an operation, and the optional ones that count as absent when empty."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ("tenant",)


_OF_TASK, _OF_WEBHOOK = _FieldNeeds(("id",)), _FieldNeeds(("task_id", "id"))
_NEEDS = {
    Operation.GET: _OF_TASK,
    Operation.CANCEL: _OF_TASK,
    Operation.SUBSCRIBE: _OF_TASK,
    # A webhook without an id gets one later.
    Operation.CREATE_PUSH: _FieldNeeds(("task_id", "url"), ("id", "tenant")),
    Operation.GET_PUSH: _OF_WEBHOOK,
    Operation.LIST_PUSH: _FieldNeeds(("task_id",), ("page_token", "tenant")),
    Operation.DELETE_PUSH: _OF_WEBHOOK,
    Operation.EXTENDED_CARD: _FieldNeeds((), ()),
}


def check_request(operation: Operation, request: Any) -> Any:
    """Validate a 1.x request and return it normalized.

    Raises:
        InvalidParams: a field is missing, empty or wrong.
    """
    if operation in (Operation.SEND, Operation.STREAM):
        return check_send(request)
    if operation is Operation.LIST:
        return _check_list(request)
    required, optional = _NEEDS[operation]
    for name in required:
        if not getattr(request, name):
            raise missing_field("taskId" if name == "task_id" else name)
    empty = {name: None for name in optional if getattr(request, name) == ""}
    return replace(request, **empty) if empty else request


_OPENING, _CLOSING = b"[{", b"]}"
_DEPTH_CHANGES = bytes.maketrans(_OPENING + _CLOSING, bytes((1, 1, 255, 255)))  # as signed bytes: +1 and -1
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_CHUNK = 65_536
_BACKSLASH = 92
# Up to this many, values are only estimated: commas and brackets inside strings are counted too.
_MAX_UNSCANNED = 50_000


class JsonLimits(msgspec.Struct, frozen=True):
    """Limits on the structure of JSON, checked before it is decoded. 0 as `values` or `parts` is no limit.

    Decoding blocks the event loop, and a value takes far more memory than its text: a body of ten megabytes can hold
    five million values.
    """

    nesting: int = 100
    values: int = 500_000
    parts: int = 0

    def check(self, text: bytes, field: str = "") -> int:
        """Check JSON text and return about how many values it holds: commas and opening brackets.

        Text that is not JSON is left to the decoder.

        Raises:
            InvalidParams: there are too many values or parts of a message, or they are nested too deeply.
        """
        objects = text.count(b"{")
        opened = objects + text.count(b"[")
        values = opened + text.count(b",")
        # Most requests end here: this count includes characters inside strings, so it is an upper bound.
        is_deep = opened > self.nesting
        if is_deep or values > _MAX_UNSCANNED or 0 < self.values < values:
            values = self._scan(text, field or "the body", deep=is_deep)
        if 0 < self.parts < objects:
            self._check_parts(text)
        return values

    def _scan(self, text: bytes, name: str, *, deep: bool) -> int:
        """Count values outside strings, chunk by chunk, so that it stops at the limit."""
        values = depth = start = 0
        inside = False
        field = "" if name == "the body" else name
        while start < len(text):
            end = _chunk_end(text, start)
            # Without escapes every quote begins or ends a string, so every other piece is outside strings.
            pieces = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
            outside = b"".join(pieces[inside::2])
            inside ^= len(pieces) % 2 == 0
            start = end
            values += outside.count(b",") + outside.count(b"{") + outside.count(b"[")
            if 0 < self.values < values:
                raise InvalidParams(f"{name} has more than {self.values} values", field=field, limit="values")
            if deep:
                reached = list(accumulate(array("b", outside.translate(_DEPTH_CHANGES, _NOT_BRACKETS)), initial=depth))
                if max(reached) > self.nesting:
                    raise InvalidParams(f"{name} is nested deeper than {self.nesting}", field=field, limit="nesting")
                depth = reached[-1]
        return values

    def _check_parts(self, text: bytes) -> None:
        parts = max(map(_length, _parts_of(text)), default=0)
        if parts > self.parts:
            what = f"a message has {self.parts} parts at most, not {parts}"
            raise InvalidParams(what, field="message.parts", limit="parts")


def _chunk_end(text: bytes, start: int) -> int:
    """Return where a chunk ends, so that no escape sequence is split."""
    end = start + _CHUNK
    if end >= len(text) or text[end - 1] != _BACKSLASH:
        return end
    piece = text[start:end]
    escapes = len(piece) - len(piece.rstrip(b"\\"))
    return end + escapes % 2


class _Message(msgspec.Struct):
    parts: msgspec.Raw = msgspec.Raw(b"[]")
    content: msgspec.Raw = msgspec.Raw(b"[]")  # the name of parts in the protobuf of 0.3


class _Request(msgspec.Struct):
    message: msgspec.Raw = msgspec.Raw(b"{}")
    request: msgspec.Raw = msgspec.Raw(b"{}")


_request = msgspec.json.Decoder(_Request).decode
_message = msgspec.json.Decoder(_Message).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _parts_of(text: bytes) -> list[msgspec.Raw]:
    """Return the raw lists of parts in a request, not yet decoded."""
    raw_parts: list[msgspec.Raw] = []
    try:
        request = _request(text)
    except UNREADABLE:  # the decoder reports it
        return raw_parts
    for raw in (request.message, request.request):
        try:
            message = _message(raw)
        except UNREADABLE:
            continue
        raw_parts += (message.parts, message.content)
    return raw_parts


def _length(raw: msgspec.Raw) -> int:
    try:
        return len(_list(raw))
    except UNREADABLE:
        return 0
