"""Decodes protobuf messages into the values of their ProtoJSON, by the tables of `dialects.protobuf`.

A message type is read by a closure over the readers of its fields, by their tags as they are on the wire. A field of
another wire type than that of its schema is an unknown one, as in all implementations of protobuf, and is skipped. One
that occurs twice is merged if it is a message, and otherwise replaced.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.dialects.protobuf import files
from dragoman.dialects.protobuf.schema import FieldSchema, Label, MessageSchema
from dragoman.transports.grpc.proto.timestamp import read_timestamp
from dragoman.transports.grpc.proto.values import read_list, read_struct, read_value
from dragoman.transports.grpc.proto.wire import (
    SIZED,
    VARINT,
    read_long_tag,
    read_varint,
    refuse,
    skip,
    too_long,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.transports.grpc.proto.wire import Budget

    # data, start, end, budget, and the value of the field so far, None if there is none; returns the value
    Reader = Callable[[bytes, int, int, Budget, Any], Any]
    # data, start, end of the message, and its values so far; returns where the number ends
    NumberReader = Callable[[bytes, int, int, dict[str, Any]], int]


class _SizedField(NamedTuple):
    """A field with a size; without a reader it is text. `rivals` are the other members of its oneof."""

    name: str
    read: Reader | None = None
    rivals: tuple[str, ...] = ()


class _Fields(NamedTuple):
    """The fields of a message by their tags."""

    sized: dict[int, _SizedField]
    numbers: dict[int, NumberReader]


def reader_of(full_name: str) -> Reader:
    """Return what decodes a message type. Raises KeyError when there is none of that name."""
    # Locked, so that no other thread gets a reader that is not complete.
    with _lock:
        reader = _readers.get(full_name)
        if reader is None:
            schema = files.MESSAGES[full_name]
            fields = _Fields({}, {})
            # It comes before its fields: a type may contain itself.
            reader = _readers[full_name] = _message_reader(fields)
            _add_fields(fields, schema)
        return reader


def _message_reader(fields: _Fields, skip_field: Callable[[bytes, int, int, int, Budget], int] = skip) -> Reader:
    sized, numbers = fields

    def read(data: bytes, pos: int, end: int, budget: Budget, into: dict[str, Any] | None) -> dict[str, Any]:
        values: dict[str, Any] = {} if into is None else into
        for _ in budget:
            if pos >= end:
                return values
            tag = data[pos]
            pos += 1
            if tag > 127:
                tag, pos = read_long_tag(data, pos - 1)
            if tag in sized:
                # As `read_end` does; a call would cost more than the rest.
                stop = data[pos]
                pos += 1
                if stop > 127:
                    stop, pos = read_varint(data, pos - 1)
                stop += pos
                if stop > end:
                    raise too_long()
                name, read_field, rivals = sized[tag]
                if read_field is not None:
                    values[name] = read_field(data, pos, stop, budget, values.get(name))
                    if rivals and len(values) > 1:
                        _remove(values, rivals)
                elif pos < stop:
                    values[name] = data[pos:stop].decode()
                else:
                    values.pop(name, None)
                pos = stop
            elif tag in numbers:
                pos = numbers[tag](data, pos, end, values)
            else:
                pos = skip_field(data, pos, end, tag, budget)
        raise too_many()

    return read


def _remove(values: dict[str, Any], rivals: tuple[str, ...]) -> None:
    for rival in rivals:
        values.pop(rival, None)


def _add_fields(fields: _Fields, message: MessageSchema) -> None:
    for field in message.fields:
        name, tag, number_tag = field.json_name, field.number << 3 | SIZED, field.number << 3 | VARINT
        others = [each.json_name for each in message.fields if each.oneof == field.oneof and each is not field]
        if field.label is Label.MAP:
            fields.sized[tag] = _SizedField(name, _map_reader(field))
        elif field.type in files.MESSAGES:
            read = reader_of(field.type)
            reader = _repeated(read) if field.label is Label.REPEATED else read
            fields.sized[tag] = _SizedField(name, reader, tuple(others if field.oneof else ()))
        elif field.type in _SIZED_TYPES:
            is_plain = field.type == "string" and field.label is Label.PLAIN and not field.oneof
            read = _SIZED_TYPES[field.type]
            reader = _repeated(read) if field.label is Label.REPEATED else None if is_plain else read
            fields.sized[tag] = _SizedField(name, reader, tuple(others if field.oneof else ()))
        elif field.label is Label.REPEATED:
            fields.sized[tag] = _SizedField(name, _packed(_converter(field.type)))
            fields.numbers[number_tag] = _unpacked(name, _converter(field.type))
        else:
            convert = _converter(field.type)
            fields.numbers[number_tag] = _number(name, convert, keeps_default=field.label is Label.OPTIONAL)


def _read_text(data: bytes, pos: int, end: int, _: Budget, __: Any) -> str:
    return data[pos:end].decode()


def _read_base64(data: bytes, pos: int, end: int, _: Budget, __: Any) -> str:
    return b2a_base64(data[pos:end], newline=False).decode()


_SIZED_TYPES: dict[str, Reader] = {"string": _read_text, "bytes": _read_base64}


def _repeated(read_one: Reader) -> Reader:
    def read(data: bytes, pos: int, end: int, budget: Budget, into: list[Any] | None) -> list[Any]:
        value = read_one(data, pos, end, budget, None)
        if into is None:
            return [value]
        into.append(value)
        return into

    return read


def _map_reader(field: FieldSchema) -> Reader:
    """Return what reads an entry of a map, which is a message with two fields."""
    key, value = FieldSchema(1, "key", "key", field.key), FieldSchema(2, "value", "value", field.type)
    fields = _Fields({}, {})
    _add_fields(fields, MessageSchema("", "", (key, value)))
    read_entry = _message_reader(fields, refuse)
    is_message = field.type in files.MESSAGES

    def read(data: bytes, pos: int, end: int, budget: Budget, into: dict[str, Any] | None) -> dict[str, Any]:
        entry = read_entry(data, pos, end, budget, None)
        values: dict[str, Any] = {} if into is None else into
        values[entry.get("key", "")] = entry.get("value", {} if is_message else "")
        return values

    return read


def _number(name: str, convert: Callable[[int], Any], *, keeps_default: bool) -> NumberReader:
    default = convert(0)

    def read(data: bytes, pos: int, end: int, values: dict[str, Any]) -> int:
        number = data[pos]
        pos += 1
        if number > 127:
            number, pos = read_varint(data, pos - 1)
        if pos > end:
            raise too_long()
        value = convert(number)
        if keeps_default or value != default:
            values[name] = value
        else:
            values.pop(name, None)
        return pos

    return read


def _unpacked(name: str, convert: Callable[[int], Any]) -> NumberReader:
    def read(data: bytes, pos: int, end: int, values: dict[str, Any]) -> int:
        number, pos = read_varint(data, pos)
        if pos > end:
            raise too_long()
        values.setdefault(name, []).append(convert(number))
        return pos

    return read


def _packed(convert: Callable[[int], Any]) -> Reader:
    def read(data: bytes, pos: int, end: int, budget: Budget, into: list[Any] | None) -> list[Any]:
        values: list[Any] = [] if into is None else into
        for _ in budget:
            if pos >= end:
                if pos > end:
                    raise too_long()
                return values
            number, pos = read_varint(data, pos)
            values.append(convert(number))
        raise too_many()

    return read


def _converter(type_: str) -> Callable[[int], Any]:
    if type_ in files.ENUMS:
        names = {number: name for name, number in files.ENUMS[type_].numbers.items()}
        return lambda number: names[number] if number in names else _enum_number(names, number)
    return _CONVERTERS[type_]


def _enum_number(names: dict[int, str], number: int) -> str | int:
    """A number has 32 bits, however many it is sent with; one without a name is kept."""
    number = _int32(number)
    return names.get(number, number)


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number


def _int64(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


_CONVERTERS: dict[str, Callable[[int], Any]] = {"bool": bool, "int32": _int32, "int64": _int64}


_read_packed = _message_reader(_Fields({0x0A: _SizedField("type"), 0x12: _SizedField("value", _read_base64)}, {}))


def _read_any(data: bytes, pos: int, end: int, budget: Budget, _: None) -> dict[str, Any]:
    """Decode an Any: the message in it, with its type, or its bytes if the type is none of ours."""
    found = _read_packed(data, pos, end, budget, None)
    url, content = found.get("type", ""), found.get("value", "")
    full_name = url.rpartition("/")[2]
    if full_name not in files.MESSAGES:
        return {"@type": url, "value": content}
    packed = a2b_base64(content)
    budget.enter()
    value = reader_of(full_name)(packed, 0, len(packed), budget, None)
    budget.levels += 1
    # The types with a JSON of their own are not always objects.
    return {"@type": url, "value": value} if full_name in _readers_of_json else {"@type": url, **value}


_readers_of_json: dict[str, Reader] = {
    "google.protobuf.Any": _read_any,
    "google.protobuf.Struct": read_struct,
    "google.protobuf.ListValue": read_list,
    "google.protobuf.Value": read_value,
    "google.protobuf.Timestamp": read_timestamp,
}
_readers = dict(_readers_of_json)
_lock = RLock()
