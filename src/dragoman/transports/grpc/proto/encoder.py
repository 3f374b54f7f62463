"""Encodes the values of ProtoJSON as protobuf messages, by the tables of `dialects.protobuf`.

A message type is written by a closure over the writers of its fields, each a closure too, by their names in JSON. Names
that it does not have, nulls and defaults are left out. The fields come in the order of the values, which protobuf
leaves open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dragoman.dialects.protobuf import files
from dragoman.dialects.protobuf.schema import FieldSchema, Label
from dragoman.dialects.reading.lenient import from_base64
from dragoman.transports.grpc.proto.timestamp import write_timestamp
from dragoman.transports.grpc.proto.values import write_list, write_struct, write_value
from dragoman.transports.grpc.proto.wire import BYTES, SHORT_SIZES, VARINT, size_of, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # The content of a message, or a whole field: its tag, its size and its content.
    Writer = Callable[[Any], bytes]


_VALUE: Final = "google.protobuf.Value"


def writer_of(full_name: str) -> Writer:
    """Return what encodes a message type. Raises KeyError when there is none of that name."""
    writer = _writers.get(full_name)
    if writer is None:
        schema = files.MESSAGES[full_name]
        fields: dict[str, Writer] = {}
        # Of all types, only a Value can hold null.
        nullable = frozenset(each.json_name for each in schema.fields if each.type == _VALUE)
        # It comes before its fields: a type may contain itself.
        writer = _writers[full_name] = _message_writer(fields, nullable)
        for field in schema.fields:
            fields[field.json_name] = _field_writer(field)
    return writer


def _message_writer(fields: dict[str, Writer], nullable: frozenset[str]) -> Writer:
    def write(values: Mapping[str, Any]) -> bytes:
        return b"".join(
            [
                fields[name](value)
                for name, value in values.items()
                if name in fields and (value is not None or name in nullable)
            ]
        )

    return write


def _field_writer(field: FieldSchema) -> Writer:
    """Return what encodes a field with its tag, and nothing when it has its default."""
    is_sized = field.label is Label.MAP or field.type in files.MESSAGES or field.type in ("string", "bytes")
    tag = varint(field.number << 3 | (BYTES if is_sized else VARINT))
    if field.label is Label.MAP:
        return _map(tag, field)
    if field.type in files.MESSAGES:
        content = writer_of(field.type)
        return _repeated(_message(tag, content)) if field.label is Label.REPEATED else _message(tag, content)
    convert = _converter(field.type)
    if field.label is Label.REPEATED:
        return _repeated(_scalar(tag, convert))
    if field.label is Label.OPTIONAL or field.oneof:
        return _scalar(tag, convert)
    return _text(tag) if field.type == "string" else _unless_default(tag, convert)


def _message(tag: bytes, write_content: Writer) -> Writer:
    def write(value: Any) -> bytes:
        content = write_content(value)
        size = len(content)
        return tag + SHORT_SIZES[size] + content if size < 128 else tag + varint(size) + content

    return write


def _text(tag: bytes) -> Writer:
    def write(value: str) -> bytes:
        content = value.encode()
        size = len(content)
        if size < 128:
            return tag + SHORT_SIZES[size] + content if size else b""
        return tag + varint(size) + content

    return write


def _scalar(tag: bytes, convert: Writer) -> Writer:
    return lambda value: tag + convert(value)


def _unless_default(tag: bytes, convert: Writer) -> Writer:
    def write(value: Any) -> bytes:
        content = convert(value)
        return b"" if content == b"\x00" else tag + content

    return write


def _repeated(write_one: Writer) -> Writer:
    return lambda values: b"".join([write_one(each) for each in values])


def _map(tag: bytes, field: FieldSchema) -> Writer:
    """An entry of a map is a message with two fields."""
    write_key, write_value_ = _scalar(b"\x0a", _sized_text), _field_writer(FieldSchema(2, "", "", field.type))
    write_entry = _message(tag, lambda entry: write_key(entry[0]) + write_value_(entry[1]))
    return lambda values: b"".join([write_entry(entry) for entry in values.items()])


def _converter(type_: str) -> Callable[[Any], bytes]:
    if type_ not in files.ENUMS:
        return _CONVERTERS[type_]
    numbers = files.ENUMS[type_].numbers
    encoded = {name: varint(number) for name, number in numbers.items()}

    def convert(value: str | int) -> bytes:
        return encoded[value] if isinstance(value, str) else varint(value)

    return convert


def _sized_text(value: str) -> bytes:
    content = value.encode()
    return size_of(content) + content


def _bytes(value: str | bytes) -> bytes:
    content = from_base64(value) if isinstance(value, str) else value
    return size_of(content) + content


def _integer(value: int | str) -> bytes:
    return varint(int(value))  # ProtoJSON writes 64 bits as text


def _bool(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


_CONVERTERS: dict[str, Callable[[Any], bytes]] = {
    "string": _sized_text,
    "bytes": _bytes,
    "bool": _bool,
    "int32": _integer,
    "int64": _integer,
}


def _write_any(value: Mapping[str, Any]) -> bytes:
    """Encode the message that `@type` names, or the bytes of one that is none of ours."""
    url = value["@type"]
    full_name = url.rpartition("/")[2]
    if full_name not in files.MESSAGES:
        content = from_base64(value.get("value", ""))
    else:
        content = writer_of(full_name)(value["value"] if full_name in _writers_of_json else value)
    return b"\x0a" + _sized_text(url) + (b"\x12" + size_of(content) + content if content else b"")


_writers_of_json: dict[str, Writer] = {
    "google.protobuf.Any": _write_any,
    "google.protobuf.Struct": write_struct,
    "google.protobuf.ListValue": write_list,
    "google.protobuf.Value": write_value,
    "google.protobuf.Timestamp": write_timestamp,
}
_writers = dict(_writers_of_json)
