"""google.protobuf.Timestamp, in ProtoJSON a time such as `2026-11-15T10:00:00.123Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dragoman.transports.grpc.proto.wire import MalformedMessage, read_long_tag, read_varint, skip, varint

if TYPE_CHECKING:
    from dragoman.transports.grpc.proto.wire import Budget

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS, _NANOS = 0x08, 0x10
_SIGN, _MODULUS = 2**63, 2**64
_BILLION = 10**9
# Time zone and all digits of the fraction: datetime drops those after the sixth.
_FRACTION = re.compile(r"[.,](\d+)", re.ASCII)


def read_timestamp(data: bytes, pos: int, end: int, _: Budget, into: str | None) -> str:
    """Decode a Timestamp. Raises MalformedMessage or IndexError."""
    seconds, nanos = (0, 0) if into is None else _parse(into)
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag == _SECONDS:
            seconds, pos = read_varint(data, pos)
            if seconds >= _SIGN:
                seconds -= _MODULUS
        elif tag == _NANOS:
            nanos, pos = read_varint(data, pos)
        else:
            if tag > 127:
                tag, pos = read_long_tag(data, pos - 1)
            pos = skip(data, pos, end, tag)
    if pos > end or nanos >= _BILLION:
        raise MalformedMessage("a time is no valid one")
    try:
        text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
    except OverflowError:
        raise MalformedMessage("a time is no valid one") from None
    if not nanos:
        return f"{text}Z"
    # ProtoJSON has 3, 6 or 9 digits.
    fraction = f"{nanos:09d}"
    if fraction.endswith("000000"):
        fraction = fraction[:3]
    elif fraction.endswith("000"):
        fraction = fraction[:6]
    return f"{text}.{fraction}Z"


def write_timestamp(text: Any) -> bytes:
    """Encode a time. Raises ValueError when it is none."""
    seconds, nanos = _parse(text)
    return (b"\x08" + varint(seconds) if seconds else b"") + (b"\x10" + varint(nanos) if nanos else b"")


def _parse(text: str) -> tuple[int, int]:
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    nanos = since.microseconds * 1000
    if len(text) > 27 and (fraction := _FRACTION.search(text)):
        nanos = int(fraction[1][:9].ljust(9, "0"))
    return since.days * 86_400 + since.seconds, nanos
