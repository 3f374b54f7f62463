"""Decodes protobuf messages into the values of their ProtoJSON, by the tables of `dialects.protobuf`.

A message type is read by a closure over the readers of its fields, each a closure too, by their tags as they are on the
wire. A field with another wire type than its schema has is an unknown one, as for every implementation of protobuf, and
is skipped. A field that occurs twice is merged if it is a message, and otherwise replaced.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Any

from dragoman.dialects.protobuf import files
from dragoman.dialects.protobuf.schema import FieldSchema, Label, MessageSchema
from dragoman.transports.grpc.proto.timestamp import read_timestamp
from dragoman.transports.grpc.proto.values import read_list, read_struct, read_value
from dragoman.transports.grpc.proto.wire import (
    BYTES,
    VARINT,
    checked,
    read_end,
    read_long_tag,
    read_varint,
    skip,
    too_long,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.transports.grpc.proto.wire import Budget

    # data, start, end, budget, and what an earlier occurrence of the same field gave; returns the value
    Reader = Callable[[bytes, int, int, Budget, Any], Any]
    # data, start, end of the message, budget, and the values of the message so far; returns where the field ends
    FieldReader = Callable[[bytes, int, int, Budget, dict[str, Any]], int]


def reader_of(full_name: str) -> Reader:
    """Return what decodes a message type. Raises KeyError when there is none of that name."""
    reader = _readers.get(full_name)
    if reader is None:
        schema = files.MESSAGES[full_name]
        fields: dict[int, FieldReader] = {}
        # It comes before its fields: a type may contain itself.
        reader = _readers[full_name] = _message_reader(fields)
        for field in schema.fields:
            fields.update(_field_readers(field, schema))
    return reader


def _message_reader(fields: dict[int, FieldReader]) -> Reader:
    def read(data: bytes, pos: int, end: int, budget: Budget, into: dict[str, Any] | None) -> dict[str, Any]:
        values: dict[str, Any] = {} if into is None else into
        while pos < end:
            tag = data[pos]
            pos += 1
            if tag > 127:
                tag, pos = read_long_tag(data, pos - 1)
            field = fields.get(tag)
            pos = skip(data, pos, end, tag) if field is None else field(data, pos, end, budget, values)
        if pos > end:
            raise too_long()
        return values

    return read


def _field_readers(field: FieldSchema, message: MessageSchema) -> dict[int, FieldReader]:
    """Return the readers of a field by its tags: repeated numbers have two."""
    name, is_repeated = field.json_name, field.label is Label.REPEATED
    tag, number_tag = field.number << 3 | BYTES, field.number << 3 | VARINT
    if field.label is Label.MAP:
        return {tag: _map_reader(name, field)}
    if field.type in files.MESSAGES:
        read = reader_of(field.type)
        reader = _repeated_message(name, read) if is_repeated else _singular_message(name, read)
    elif is_repeated:
        convert = _converter(field.type)
        if field.type not in ("string", "bytes"):
            return {tag: _packed_numbers(name, convert), number_tag: _repeated_number(name, convert)}
        reader = _repeated_bytes(name, convert)
    elif field.type in ("string", "bytes"):
        reader = _bytes_field(name, _converter(field.type), keeps_default=_has_presence(field))
    else:
        tag, reader = number_tag, _number_field(name, _converter(field.type), keeps_default=_has_presence(field))
    rivals = tuple(each.json_name for each in message.fields if each.oneof == field.oneof and each is not field)
    return {tag: _member(reader, rivals) if field.oneof else reader}


def _has_presence(field: FieldSchema) -> bool:
    return field.label is Label.OPTIONAL or bool(field.oneof)


def _bytes_field(name: str, convert: Callable[[bytes], Any], *, keeps_default: bool) -> FieldReader:
    def read(data: bytes, pos: int, end: int, _: Budget, values: dict[str, Any]) -> int:
        stop = data[pos]
        pos += 1
        if stop > 127:
            stop, pos = read_varint(data, pos - 1)
        stop += pos
        if stop > end:
            raise too_long()
        if pos < stop or keeps_default:
            values[name] = convert(data[pos:stop])
        else:
            values.pop(name, None)
        return stop

    return read


def _number_field(name: str, convert: Callable[[int], Any], *, keeps_default: bool) -> FieldReader:
    default = convert(0)

    def read(data: bytes, pos: int, _: int, __: Budget, values: dict[str, Any]) -> int:
        number = data[pos]
        pos += 1
        if number > 127:
            number, pos = read_varint(data, pos - 1)
        value = convert(number)
        if keeps_default or value != default:
            values[name] = value
        else:
            values.pop(name, None)
        return pos

    return read


def _singular_message(name: str, read_message: Reader) -> FieldReader:
    def read(data: bytes, pos: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        stop = data[pos]
        pos += 1
        if stop > 127:
            stop, pos = read_varint(data, pos - 1)
        stop += pos
        if stop > end:
            raise too_long()
        values[name] = read_message(data, pos, stop, budget, values.get(name))
        return stop

    return read


def _repeated_message(name: str, read_message: Reader) -> FieldReader:
    def read(data: bytes, pos: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        pos, stop = read_end(data, pos, end)
        budget.add()
        value = read_message(data, pos, stop, budget, None)
        if name in values:
            values[name].append(value)
        else:
            values[name] = [value]
        return stop

    return read


def _repeated_bytes(name: str, convert: Callable[[bytes], Any]) -> FieldReader:
    def read(data: bytes, pos: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        pos, stop = read_end(data, pos, end)
        budget.add()
        values.setdefault(name, []).append(convert(data[pos:stop]))
        return stop

    return read


def _repeated_number(name: str, convert: Callable[[int], Any]) -> FieldReader:
    def read(data: bytes, pos: int, _: int, budget: Budget, values: dict[str, Any]) -> int:
        number, pos = read_varint(data, pos)
        budget.add()
        values.setdefault(name, []).append(convert(number))
        return pos

    return read


def _packed_numbers(name: str, convert: Callable[[int], Any]) -> FieldReader:
    read_one = _repeated_number(name, convert)

    def read(data: bytes, pos: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        pos, stop = read_end(data, pos, end)
        while pos < stop:
            pos = read_one(data, pos, stop, budget, values)
        return checked(pos, stop)

    return read


def _map_reader(name: str, field: FieldSchema) -> FieldReader:
    """An entry of a map is a message with two fields."""
    key, value = FieldSchema(1, "key", "key", field.key), FieldSchema(2, "value", "value", field.type)
    entry = MessageSchema("", "", (key, value))
    read_entry = _message_reader({**_field_readers(key, entry), **_field_readers(value, entry)})
    is_message = field.type in files.MESSAGES

    def read(data: bytes, pos: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        pos, stop = read_end(data, pos, end)
        budget.add()
        found = read_entry(data, pos, stop, budget, None)
        values.setdefault(name, {})[found.get("key", "")] = found.get("value", {} if is_message else "")
        return stop

    return read


def _member(read_field: FieldReader, rivals: tuple[str, ...]) -> FieldReader:
    """Return the reader of a member of a oneof: it removes the others."""

    def read(data: bytes, pos: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        for rival in rivals:
            values.pop(rival, None)
        return read_field(data, pos, end, budget, values)

    return read


def _converter(type_: str) -> Callable[[Any], Any]:
    if type_ in files.ENUMS:
        names = {number: name for name, number in files.ENUMS[type_].numbers.items()}
        return lambda number: names.get(number := _int32(number), number)
    return _CONVERTERS[type_]


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number


def _int64(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode()


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "string": bytes.decode,
    "bytes": _base64,
    "bool": bool,
    "int32": _int32,
    "int64": _int64,
}


_read_any_fields = _message_reader(
    {
        0x0A: _bytes_field("type", bytes.decode, keeps_default=False),
        0x12: _bytes_field("value", bytes, keeps_default=False),
    }
)


def _read_any(data: bytes, pos: int, end: int, budget: Budget, _: None) -> dict[str, Any]:
    """Decode an Any: the message in it, with its type, or its bytes if the type is none of ours."""
    found = _read_any_fields(data, pos, end, budget, None)
    url, content = found.get("type", ""), found.get("value", b"")
    full_name = url.rpartition("/")[2]
    if full_name not in files.MESSAGES:
        return {"@type": url, "value": _base64(content)}
    budget.enter()
    value = reader_of(full_name)(content, 0, len(content), budget, None)
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
