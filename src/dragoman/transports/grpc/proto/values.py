"""JSON in protobuf: google.protobuf.Struct, Value and ListValue, decoded and encoded."""

from __future__ import annotations

import struct
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from dragoman.transports.grpc.proto.wire import (
    MalformedMessage,
    checked,
    read_end,
    read_long_tag,
    read_varint,
    size_of,
    skip,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.transports.grpc.proto.wire import Budget

# The tags of the kinds of a Value, each a number and a wire type.
_NULL: Final = 0x08
_NUMBER: Final = 0x11
_STRING: Final = 0x1A
_BOOL: Final = 0x20
_STRUCT: Final = 0x2A
_LIST: Final = 0x32
# The tags of an entry of a Struct and of a ListValue, and of the key and the value of an entry.
_ENTRY = _KEY = 0x0A
_VALUE: Final = 0x12
# An entry whose value is a number: a tag, 8 bytes.
_NUMBER_SIZE: Final = 9
# Integers up to here are exact as a double.
_MAX_INTEGER: Final = 2**53

_unpack = struct.Struct("<d").unpack_from
_pack = struct.Struct("<d").pack


def read_struct(data: bytes, pos: int, end: int, budget: Budget, into: dict[str, Any] | None) -> dict[str, Any]:
    """Decode a Struct. Raises MalformedMessage or IndexError."""
    values: dict[str, Any] = {} if into is None else into
    budget.enter()
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag != _ENTRY:
            if tag > 127:
                tag, pos = read_long_tag(data, pos - 1)
            pos = skip(data, pos, end, tag)
            continue
        pos, stop = read_end(data, pos, end)
        key, value = "", None
        budget.add()
        while pos < stop:
            tag = data[pos]
            pos += 1
            if tag == _KEY:
                pos, after = read_end(data, pos, stop)
                key = data[pos:after].decode()
                pos = after
            elif tag == _VALUE:
                pos, after = read_end(data, pos, stop)
                value = read_value(data, pos, after, budget, value)
                pos = after
            else:
                if tag > 127:
                    tag, pos = read_long_tag(data, pos - 1)
                pos = skip(data, pos, stop, tag)
        values[key] = value
    budget.levels += 1
    return values


def read_list(data: bytes, pos: int, end: int, budget: Budget, into: list[Any] | None) -> list[Any]:
    """Decode a ListValue. Raises MalformedMessage or IndexError."""
    values: list[Any] = [] if into is None else into
    budget.enter()
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag == _ENTRY:
            pos, stop = read_end(data, pos, end)
            budget.add()
            values.append(read_value(data, pos, stop, budget, None))
            pos = stop
        else:
            if tag > 127:
                tag, pos = read_long_tag(data, pos - 1)
            pos = skip(data, pos, end, tag)
    budget.levels += 1
    return values


def read_value(data: bytes, pos: int, end: int, budget: Budget, into: Any) -> Any:
    """Decode a Value; None also when it has no kind. Raises MalformedMessage or IndexError."""
    value = into
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag == _STRING:
            pos, stop = read_end(data, pos, end)
            value = data[pos:stop].decode()
            pos = stop
        elif tag == _NUMBER:
            stop = checked(pos + 8, end)
            value = _unpack(data, pos)[0]
            if value.is_integer():
                if -_MAX_INTEGER <= value <= _MAX_INTEGER:
                    value = int(value)
            elif not isfinite(value):
                raise MalformedMessage("a number is not finite, which JSON does not have")
            pos = stop
        elif tag == _STRUCT:
            pos, stop = read_end(data, pos, end)
            value = read_struct(
                data, pos, stop, budget, cast("dict[str, Any]", value) if isinstance(value, dict) else None
            )
            pos = stop
        elif tag == _LIST:
            pos, stop = read_end(data, pos, end)
            value = read_list(data, pos, stop, budget, cast("list[Any]", value) if isinstance(value, list) else None)
            pos = stop
        elif tag == _BOOL:
            number, pos = read_varint(data, pos)
            value = number != 0
        elif tag == _NULL:
            _, pos = read_varint(data, pos)
            value = None
        else:
            if tag > 127:
                tag, pos = read_long_tag(data, pos - 1)
            pos = skip(data, pos, end, tag)
    checked(pos, end)
    return value


def write_struct(values: Mapping[str, Any]) -> bytes:
    """Encode an object as a Struct. Raises ValueError when it holds something that JSON does not have."""
    entries: list[bytes] = []
    for name, value in values.items():
        key = name.encode()
        content = write_value(value)
        entry = b"\x0a%b%b\x12%b%b" % (size_of(key), key, size_of(content), content)
        entries += b"\x0a", size_of(entry), entry
    return b"".join(entries)


def write_list(values: Sequence[Any]) -> bytes:
    """Encode an array as a ListValue. Raises ValueError when it holds something that JSON does not have."""
    entries: list[bytes] = []
    for value in values:
        content = write_value(value)
        entries += b"\x0a", size_of(content), content
    return b"".join(entries)


def write_value(value: Any) -> bytes:
    """Encode any JSON as a Value. Raises ValueError when it holds something that JSON does not have."""
    if isinstance(value, str):
        content = value.encode()
        return b"\x1a%b%b" % (size_of(content), content)
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, int | float):
        number = float(value)
        if not isfinite(number):
            raise ValueError("a number is not finite, which JSON does not have")
        return b"\x11" + _pack(number)
    if isinstance(value, dict):
        content = write_struct(cast("dict[str, Any]", value))
        return b"\x2a%b%b" % (size_of(content), content)
    if isinstance(value, list | tuple):
        content = write_list(cast("list[Any]", value))
        return b"\x32%b%b" % (size_of(content), content)
    raise ValueError(f"{type(value).__name__} is no JSON")
