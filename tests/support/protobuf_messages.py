"""Protobuf messages to test with: values of every type of the tables, and bytes that are nearly messages."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

from hypothesis import strategies as st

from dragoman.dialects.protobuf import files, v03, v1
from dragoman.dialects.protobuf.schema import FieldSchema, Label

# Only 1.1 has these fields: the classes of other SDKs skip them.
ONLY_1_1 = {"generation", "currentGeneration", "ifGenerationMatch"}
NAMES = [each.full_name for file in (*v1.FILES, *v03.FILES) for each in file.messages.values()]

# Also of about 128 bytes: from there on, a size takes two.
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.integers(110, 132).map("x".__mul__)
_integers = st.integers(-(2**53), 2**53)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _text | _integers | _floats,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_times = st.datetimes().map(lambda time: _time(time.isoformat(timespec="microseconds")))
_scalars: dict[str, st.SearchStrategy[Any]] = {
    "google.protobuf.Struct": st.dictionaries(_text, _json, max_size=3),
    "google.protobuf.Value": _json,
    "google.protobuf.Timestamp": _times,
    "string": _text,
    "bytes": st.binary(max_size=8).map(lambda raw: b64encode(raw).decode()),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}


def _time(text: str) -> str:
    """As ProtoJSON has it: with 0, 3 or 6 digits."""
    whole, _, digits = text.partition(".")
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{whole}.{digits}Z" if digits else f"{whole}Z"


def values_of(full_name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Values of a message type as the codec decodes them: without defaults, with one member of a oneof."""
    fields = [field for field in files.MESSAGES[full_name].fields if field.json_name not in ONLY_1_1]
    alone = {field.json_name: _field_values(field) for field in fields if not field.oneof}
    oneofs = {field.oneof: [each for each in fields if each.oneof == field.oneof] for field in fields if field.oneof}
    members = [
        st.one_of(st.just({}), *(st.fixed_dictionaries({each.json_name: _field_values(each)}) for each in oneof))
        for oneof in oneofs.values()
    ]
    return st.tuples(st.fixed_dictionaries({}, optional=alone), *members).map(
        lambda parts: {name: value for part in parts for name, value in part.items()}
    )


def _field_values(field: FieldSchema) -> st.SearchStrategy[Any]:
    values = _values_of_type(field.type)
    if field.label is Label.MAP:
        return st.dictionaries(_text, values, min_size=1, max_size=2)
    if field.label is Label.REPEATED:
        return st.lists(values, min_size=1, max_size=2)
    if field.label is Label.OPTIONAL or field.oneof or field.type in files.MESSAGES:
        return values
    default = {"string": "", "bool": False, "bytes": ""}.get(field.type, 0)
    return values.filter(lambda value: value != default)


def _values_of_type(type_: str) -> st.SearchStrategy[Any]:
    if type_ in _scalars:
        return _scalars[type_]
    if type_ in files.ENUMS:
        return st.sampled_from([name for name, number in files.ENUMS[type_].numbers.items() if number])
    return st.deferred(lambda: values_of(type_))


_HUGE_VARINT = b"\xff" * 9
# Pieces of the wire format that are rarely seen: groups, field 0, wire types that do not exist, long tags and sizes.
_ODD_PIECES = (
    b"\x0b\x0c",
    b"\x0b\x08\x01\x0c",
    b"\x0b",
    b"\x0c",
    b"\x00",
    b"\x02\x00",
    b"\x0e",
    b"\x0f",
    b"\x8a\x00",
    b"\x0a\x80\x00",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x08" + _HUGE_VARINT + b"\x01",
    b"\x08" + _HUGE_VARINT + b"\x7f",
    b"\xf8\xff\xff\xff\x0f\x01",
    b"\xfa\xff\xff\xff\x7f\x00",
    b"\x0a\x02\xc3\x28",
    b"\x09" + bytes(8),
    b"\x0d" + bytes(4),
    b"\xa2\x06\x03abc",
)


def mutate(data: bytes, other: bytes, random: Random) -> bytes:
    """Return bytes that are nearly a message: changed, cut, extended, nested or merged with another one."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        where = random.randrange(len(changed) + 1)
        match random.randrange(8):
            case 0 if changed:
                changed[where % len(changed)] ^= 1 << random.randrange(8)
            case 1 if changed:
                changed[where % len(changed)] = random.randrange(256)
            case 2:
                del changed[where:]
            case 3:
                changed[where:where] = random.choice(_ODD_PIECES)
            case 4:
                changed[where:where] = changed[where : where + random.randrange(12)]
            case 5:
                changed += other  # protobuf merges them
            case 6:
                changed += random.choice(_ODD_PIECES)
            case _:
                changed[where:where] = other
    return bytes(changed)


def nested(levels: int) -> bytes:
    """Return a Struct of that many levels, the innermost empty."""
    data = b""
    for _ in range(levels - 1):
        value = b"\x2a" + length(data) + data
        entry = b"\x0a\x01k\x12" + length(value) + value
        data = b"\x0a" + length(entry) + entry
    return data


def length(data: bytes) -> bytes:
    """Return the length of some content as it stands before it."""
    size, encoded = len(data), bytearray()
    while size > 127:
        encoded.append(size & 127 | 128)
        size >>= 7
    return bytes((*encoded, size))
