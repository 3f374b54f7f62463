"""Encodes the values of ProtoJSON as protobuf messages, by the tables of `dialects.protobuf`.

A message type is written by a closure over the writers of its fields, each a closure too, by their names in JSON. Names
that it does not have, nulls and defaults are left out. The fields come in the order of the values, which protobuf
leaves open.
"""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import a2b_base64
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from dragoman.dialects.protobuf import files
from dragoman.dialects.protobuf.schema import FieldSchema, Label
from dragoman.dialects.reading.lenient import from_base64
from dragoman.transports.grpc.proto.timestamp import write_timestamp
from dragoman.transports.grpc.proto.values import write_list, write_struct, write_value
from dragoman.transports.grpc.proto.wire import SIZED, VARINT, short_heads, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # The content of a message, or a whole field: its tag, its size and its content.
    Writer = Callable[[Any], bytes]


_VALUE: Final = "google.protobuf.Value"


def writer_of(full_name: str) -> Writer:
    """Return what encodes a message type. Raises KeyError when there is none of that name."""
    # Locked, so that no other thread gets a writer that is not complete.
    with _lock:
        writer = _writers.get(full_name)
        if writer is None:
            schema = files.MESSAGES[full_name]
            fields: dict[str, Writer] = {}
            # Of all types, only a Value can hold null.
            nullable = frozenset(each.json_name for each in schema.fields if each.type == _VALUE)
            # It comes before its fields: a type may contain itself.
            writer = _writers[full_name] = _message_writer(fields, nullable)
            fields.update({field.json_name: _field_writer(field) for field in schema.fields})
        return writer


def _message_writer(fields: dict[str, Writer], nullable: frozenset[str]) -> Writer:
    def write(values: Mapping[str, Any]) -> bytes:
        pieces: list[bytes] = []
        for name, value in values.items():
            if name in fields and (value is not None or name in nullable):
                pieces.append(fields[name](value))
        return b"".join(pieces)

    return write


def _field_writer(field: FieldSchema) -> Writer:
    """Return what encodes a field with its tag; nothing when it has its default and is not optional."""
    is_sized = field.label is Label.MAP or field.type in files.MESSAGES or field.type in ("string", "bytes")
    tag = varint(field.number << 3 | (SIZED if is_sized else VARINT))
    if field.label is Label.MAP:
        return _map(tag, field)
    keeps_default = field.label in (Label.OPTIONAL, Label.REPEATED) or bool(field.oneof)
    if field.type in files.MESSAGES:
        write = _sized(tag, writer_of(field.type), keeps_default=True)
    elif is_sized:
        write = _sized(tag, str.encode if field.type == "string" else _bytes, keeps_default=keeps_default)
    else:
        write = _number(tag, field.type, keeps_default=keeps_default)
    return _repeated(write) if field.label is Label.REPEATED else write


def _sized(tag: bytes, convert: Writer, *, keeps_default: bool) -> Writer:
    heads = short_heads(tag)

    def write(value: Any) -> bytes:
        content = convert(value)
        size = len(content)
        if size < 128:
            return heads[size] + content if size or keeps_default else b""
        return tag + varint(size) + content

    return write


def _number(tag: bytes, type_: str, *, keeps_default: bool) -> Writer:
    """Return what encodes a number, a boolean or an enum; one of 64 bits may be a text, as in ProtoJSON."""
    names = files.ENUMS[type_].numbers if type_ in files.ENUMS else {}
    default = tag + b"\x00" if keeps_default else b""
    encoded: dict[Any, bytes] = {name: tag + varint(number) if number else default for name, number in names.items()}
    encoded |= {False: default, True: tag + b"\x01"}

    def write(value: Any) -> bytes:
        if value in encoded:
            return encoded[value]
        number = int(value)
        return tag + varint(number) if number else default

    return write


def _repeated(write_one: Writer) -> Writer:
    return lambda values: write_one(values[0]) if len(values) == 1 else b"".join([write_one(each) for each in values])


def _map(tag: bytes, field: FieldSchema) -> Writer:
    """Return what encodes a map, an entry of which is a message with two fields."""
    write_key = _field_writer(FieldSchema(1, "key", "key", field.key))
    write_value_ = _field_writer(FieldSchema(2, "value", "value", field.type))
    write_entry = _sized(tag, lambda entry: write_key(entry[0]) + write_value_(entry[1]), keeps_default=True)
    return lambda values: b"".join([write_entry(entry) for entry in values.items()])


def _bytes(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return a2b_base64(value, strict_mode=True)
    except BinasciiError:
        return from_base64(value)  # in the other alphabet, or without padding


_write_packed = _message_writer(
    {
        "type": _sized(b"\x0a", str.encode, keeps_default=False),
        "value": _sized(b"\x12", _bytes, keeps_default=False),
    },
    frozenset(),
)


def _write_any(value: Mapping[str, Any]) -> bytes:
    """Encode the message that `@type` names, or the bytes of one that is none of ours."""
    url = value["@type"]
    full_name = url.rpartition("/")[2]
    if full_name not in files.MESSAGES:
        return _write_packed({"type": url, "value": value.get("value", "")})
    content = writer_of(full_name)(value["value"] if full_name in _writers_of_json else value)
    return _write_packed({"type": url, "value": content})


_writers_of_json: dict[str, Writer] = {
    "google.protobuf.Any": _write_any,
    "google.protobuf.Struct": write_struct,
    "google.protobuf.ListValue": write_list,
    "google.protobuf.Value": write_value,
    "google.protobuf.Timestamp": write_timestamp,
}
_writers = dict(_writers_of_json)
_lock = RLock()
