"""JSON in protobuf: google.protobuf.Struct, Value and ListValue, decoded and encoded."""

from __future__ import annotations

import struct
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from dragoman.transports.grpc.proto.wire import (
    MalformedMessage,
    read_end,
    read_long_tag,
    read_varint,
    refuse,
    sized_field,
    skip,
    too_long,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.transports.grpc.proto.wire import Budget

# The tags of the kinds of a Value: each is a number and a wire type.
_NULL: Final = 0x08
_NUMBER: Final = 0x11
_STRING: Final = 0x1A
_BOOL: Final = 0x20
_STRUCT: Final = 0x2A
_LIST: Final = 0x32
# The tag of an entry of a Struct or a ListValue, and those of the key and the value in an entry of a Struct.
_ENTRY: Final = 0x0A
_KEY: Final = 0x0A
_VALUE: Final = 0x12
_NUMBER_SIZE: Final = 9  # of a Value that is a number: a tag and a double
# Integers up to here are exact as a double.
_MAX_INTEGER: Final = 2**53

_unpack = struct.Struct("<d").unpack_from
_pack = struct.Struct("<d").pack


def read_struct(data: bytes, pos: int, end: int, budget: Budget, into: dict[str, Any] | None) -> dict[str, Any]:
    """Decode a Struct. Raises MalformedMessage or IndexError."""
    values: dict[str, Any] = {} if into is None else into
    budget.enter()
    for _ in budget:
        if pos >= end:
            budget.levels += 1
            return values
        if data[pos] != _ENTRY:
            pos = _skip_at(data, pos, end, budget)
            continue
        # As `read_end` does; a call would cost more than the rest.
        stop = data[pos + 1]
        pos += 2
        if stop > 127:
            stop, pos = read_varint(data, pos - 1)
        stop += pos
        if stop > end:
            raise too_long()
        # Nearly all entries are a key and a value, and nothing else, with sizes of one byte each: then `at` is where
        # the value begins.
        at = pos + 4 + data[pos + 1] if pos + 4 < stop else stop
        if (
            at < stop < at + 128
            and at < pos + 132
            and data[pos] == _KEY
            and data[at - 2] == _VALUE
            and at + data[at - 1] == stop
        ):
            key = data[pos + 2 : at - 2].decode()
            tag = data[at]
            if tag == _NUMBER and stop - at == _NUMBER_SIZE:
                values[key] = _json_number(_unpack(data, at + 1)[0])
            elif tag == _STRING and stop - at == data[at + 1] + 2:
                values[key] = data[at + 2 : stop].decode()
            else:
                values[key] = read_value(data, at, stop, budget, None)
        else:
            key, values[key] = _read_entry(data, pos, stop, budget)
        pos = stop
    raise too_many()


def _read_entry(data: bytes, pos: int, end: int, budget: Budget) -> tuple[str, Any]:
    """Decode any entry of a Struct: key and value may be absent, repeated, and in any order."""
    key, value = "", None
    for _ in budget:
        if pos >= end:
            return key, value
        tag = data[pos]
        if tag == _KEY:
            pos, stop = read_end(data, pos + 1, end)
            key = data[pos:stop].decode()
            pos = stop
        elif tag == _VALUE:
            pos, stop = read_end(data, pos + 1, end)
            value = read_value(data, pos, stop, budget, value)
            pos = stop
        else:
            pos = refuse(data, pos, end, tag, budget)
    raise too_many()


def read_list(data: bytes, pos: int, end: int, budget: Budget, into: list[Any] | None) -> list[Any]:
    """Decode a ListValue. Raises MalformedMessage or IndexError."""
    values: list[Any] = [] if into is None else into
    budget.enter()
    for _ in budget:
        if pos >= end:
            budget.levels += 1
            return values
        if data[pos] == _ENTRY:
            pos, stop = read_end(data, pos + 1, end)
            if stop - pos == _NUMBER_SIZE and data[pos] == _NUMBER:
                values.append(_json_number(_unpack(data, pos + 1)[0]))
            elif 1 < stop - pos < 130 and data[pos] == _STRING and stop - pos == data[pos + 1] + 2:
                values.append(data[pos + 2 : stop].decode())
            else:
                values.append(read_value(data, pos, stop, budget, None))
            pos = stop
        else:
            pos = _skip_at(data, pos, end, budget)
    raise too_many()


def read_value(data: bytes, pos: int, end: int, budget: Budget, into: Any) -> Any:
    """Decode a Value; None also when it has no kind. Raises MalformedMessage or IndexError."""
    value = into
    for _ in budget:
        if pos >= end:
            if pos > end:
                raise too_long()
            return value
        tag = data[pos]
        if tag == _STRING:
            pos, stop = read_end(data, pos + 1, end)
            value = data[pos:stop].decode()
            pos = stop
        elif tag == _NUMBER:
            pos += 9
            if pos > end:
                raise too_long()
            value = _json_number(_unpack(data, pos - 8)[0])
        elif tag == _STRUCT:
            pos, stop = read_end(data, pos + 1, end)
            merged = cast("dict[str, Any]", value) if isinstance(value, dict) else None
            value = read_struct(data, pos, stop, budget, merged)
            pos = stop
        elif tag == _LIST:
            pos, stop = read_end(data, pos + 1, end)
            value = read_list(data, pos, stop, budget, cast("list[Any]", value) if isinstance(value, list) else None)
            pos = stop
        elif tag in (_BOOL, _NULL):
            number, pos = read_varint(data, pos + 1)
            value = number != 0 if tag == _BOOL else None
        else:
            pos = _skip_at(data, pos, end, budget)
    raise too_many()


def _skip_at(data: bytes, pos: int, end: int, budget: Budget) -> int:
    tag = data[pos]
    pos += 1
    if tag > 127:
        tag, pos = read_long_tag(data, pos - 1)
    return skip(data, pos, end, tag, budget)


def _json_number(number: float) -> int | float:
    if number.is_integer():
        return int(number) if -_MAX_INTEGER <= number <= _MAX_INTEGER else number
    if isfinite(number):
        return number
    raise MalformedMessage("a number is not finite, which JSON does not have")


def write_struct(values: Mapping[str, Any]) -> bytes:
    """Encode an object as a Struct. Raises ValueError when it holds something that JSON does not have."""
    entries: list[bytes] = []
    for name, value in values.items():
        content = write_value(value)
        entries.append(_entry_field(_key_field(name.encode()) + _value_field(content)))
    return b"".join(entries)


def write_list(values: Sequence[Any]) -> bytes:
    """Encode an array as a ListValue. Raises ValueError when it holds something that JSON does not have."""
    return b"".join([_entry_field(write_value(value)) for value in values])


def write_value(value: Any) -> bytes:
    """Encode any JSON as a Value. Raises ValueError when it holds something that JSON does not have."""
    if isinstance(value, str):
        return _string_field(value.encode())
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, (int, float)):
        if isfinite(value):
            return b"\x11" + _pack(value)
        raise ValueError("a number is not finite, which JSON does not have")
    if isinstance(value, dict):
        return _struct_field(write_struct(cast("dict[str, Any]", value)))
    if isinstance(value, list | tuple):
        return _list_field(write_list(cast("list[Any]", value)))
    raise ValueError(f"{type(value).__name__} is no JSON")


_entry_field, _key_field, _value_field = sized_field(_ENTRY), sized_field(_KEY), sized_field(_VALUE)
_string_field, _struct_field, _list_field = sized_field(_STRING), sized_field(_STRUCT), sized_field(_LIST)
