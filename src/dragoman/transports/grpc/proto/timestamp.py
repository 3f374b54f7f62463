"""google.protobuf.Timestamp, in ProtoJSON a time such as `2026-11-15T10:00:00.123Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dragoman.transports.grpc.proto.wire import MalformedMessage, read_long_tag, read_varint, skip, too_many, varint

if TYPE_CHECKING:
    from dragoman.transports.grpc.proto.wire import Budget

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = 0x08
_NANOS: Final = 0x10
_SIGN, _MODULUS = 2**63, 2**64
_BILLION, _MILLION = 10**9, 10**6
# Ours are all of this length: 2026-11-15T10:00:00.123Z
_USUAL_LENGTH: Final = 24
_FRACTION = re.compile(r"[.,](\d+)", re.ASCII)


def read_timestamp(data: bytes, pos: int, end: int, budget: Budget, into: str | None) -> str:
    """Decode a Timestamp. Raises MalformedMessage or IndexError."""
    seconds, nanos = (0, 0) if into is None else _parse(into)
    for _ in budget:
        if pos >= end:
            break
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
            pos = skip(data, pos, end, tag, budget)
    else:
        raise too_many()
    if pos > end or nanos >= _BILLION:
        raise MalformedMessage("a time is not valid")
    try:
        return _whole(seconds) + _fraction(nanos)
    except OverflowError:
        raise MalformedMessage("a time is not valid") from None


def write_timestamp(text: str) -> bytes:
    """Encode a time. Raises ValueError when it is none."""
    if len(text) == _USUAL_LENGTH and text[19] == "." and text[23] == "Z":
        return _seconds(text[:19]) + _milliseconds(text[20:23])
    seconds, nanos = _parse(text)
    return _field(b"\x08", seconds) + _field(b"\x10", nanos)


# Times that are read or written one after the other mostly differ in the last digits only.
@lru_cache(64)
def _whole(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


@lru_cache(1000)
def _fraction(nanos: int) -> str:
    """ProtoJSON has 3, 6 or 9 digits."""
    if nanos % _MILLION == 0:
        return f".{nanos // _MILLION:03d}Z" if nanos else "Z"
    return f".{nanos:09d}Z" if nanos % 1000 else f".{nanos // 1000:06d}Z"


@lru_cache(64)
def _seconds(text: str) -> bytes:
    return _field(b"\x08", _parse(text)[0])


@lru_cache(1000)
def _milliseconds(text: str) -> bytes:
    return _field(b"\x10", int(text) * _MILLION)


def _field(tag: bytes, number: int) -> bytes:
    return tag + varint(number) if number else b""


@lru_cache(64)
def _parse(text: str) -> tuple[int, int]:
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    # datetime drops the digits after the sixth.
    fraction = _FRACTION.search(text)
    nanos = int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    return since.days * 86_400 + since.seconds, nanos
