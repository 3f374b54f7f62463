"""The codec: messages as the protobuf library reads and writes them, and bytes that are none."""

from __future__ import annotations

import math
import struct
import tracemalloc
from functools import cache
from random import Random
from typing import Any

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protobuf_messages import NAMES, ONLY_1_1, length, mutate, nested, values_of

from dragoman.dialects.protobuf import files, v03, v1
from dragoman.transports.grpc.codec import MalformedMessage, codec_of
from dragoman.transports.grpc.descriptors import descriptors_of

V1 = codec_of(v1.PACKAGE)
GOOGLE = codec_of("google.protobuf")


@cache
def classes() -> dict[str, Any]:
    """The classes that the protobuf library makes of our descriptors."""
    pool = descriptor_pool.DescriptorPool()
    for data in dict.fromkeys((*descriptors_of(v1.FILES[0].path), *descriptors_of(v03.FILES[0].path))):
        pool.AddSerializedFile(data)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in NAMES}


def read_by_protobuf(name: str, data: bytes) -> dict[str, Any] | None:
    """Return the ProtoJSON of a message; None when it is none."""
    try:
        return json_format.MessageToDict(classes()[name].FromString(data))
    except (DecodeError, ValueError, json_format.Error):
        return None


def read_by_us(name: str, data: bytes) -> dict[str, Any] | None:
    try:
        return V1.decode(name, data)
    except MalformedMessage:
        return None


@given(st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), values_of(name))))
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
def test_protobuf_reads_what_we_write_and_we_read_what_it_writes(drawn: tuple[str, dict[str, Any]]) -> None:
    name, value = drawn
    written = V1.encode(name, value)
    assert V1.decode(name, written) == value
    assert read_by_protobuf(name, written) == value
    message = json_format.ParseDict(value, classes()[name]())
    assert V1.decode(name, message.SerializeToString()) == value


@given(
    st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), values_of(name), values_of(name))),
    st.integers(0, 2**32),
)
@settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
def test_what_is_nearly_a_message_is_refused_or_read_as_protobuf_reads_it(
    drawn: tuple[str, Any, Any], seed: int
) -> None:
    name, one, other = drawn
    random = Random(seed)
    for _ in range(20):
        data = mutate(V1.encode(name, one), V1.encode(name, other), random)
        ours = read_by_us(name, data)
        assert ours is None or ours == as_we_read(read_by_protobuf(name, data))


def as_we_read(value: Any) -> Any:
    """ProtoJSON writes an int64 as text, we as a number."""
    if isinstance(value, dict):
        return {key: int(each) if key in ONLY_1_1 else as_we_read(each) for key, each in value.items()}
    return [as_we_read(each) for each in value] if isinstance(value, list) else value


def test_an_empty_message_of_every_type_is_read() -> None:
    assert {name: V1.decode(name, b"") for name in files.MESSAGES if not name.startswith("google.protobuf.")} == {
        name: {} for name in files.MESSAGES if not name.startswith("google.protobuf.")
    }


def test_the_tables_have_nothing_that_the_codec_does_not_read() -> None:
    sized = {"string", "bytes", *files.MESSAGES}
    for name, message in files.MESSAGES.items():
        for field in message.fields:
            assert field.type in {*sized, *files.ENUMS, "bool", "int32", "int64", "double"}, name
            assert field.type != "double" or name == "google.protobuf.Value"
            assert not field.oneof or field.type in sized or name == "google.protobuf.Value"
            assert field.key in ("", "string")


@pytest.mark.parametrize("text", ["_-8=", "_-8", "/+8", "/+8=", "/+8=\n"])
def test_bytes_may_be_base64_of_either_alphabet(text: str) -> None:
    assert V1.decode("Part", V1.encode("Part", {"raw": text})) == {"raw": "/+8="}


@pytest.mark.parametrize(
    ("sent", "received"),
    [(1.0, 1), (-3.0, -3), (0.5, 0.5), (2.0**53, 2**53), (2.0**54, 2.0**54), (1e300, 1e300), (-0.0, 0)],
)
def test_a_whole_number_in_json_comes_back_as_an_integer_while_it_is_exact(sent: float, received: float) -> None:
    value = GOOGLE.decode("Struct", GOOGLE.encode("Struct", {"number": sent, "list": [sent]}))
    assert value == {"number": received, "list": [received]}
    assert type(value["number"]) is type(value["list"][0]) is type(received)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        GOOGLE.encode("Value", number)  # type: ignore[arg-type]
    with pytest.raises(MalformedMessage, match="Value: a number is not finite"):
        GOOGLE.decode("Value", b"\x11" + struct.pack("<d", number))


@pytest.mark.parametrize("key_size", [0, 1, 126, 127, 128, 129, 255, 256])
def test_json_of_any_size_is_read_as_protobuf_reads_it(key_size: int) -> None:
    # The last letter is the tag of a value, and 17 bytes later an entry could seem to end.
    key = "k" * (key_size - 1) + "\x12" if key_size else ""
    for size in (0, 1, 13, 14, 15, 16, 17, 123, 124, 125, 126, 127, 128, 129, 130, 255, 256, 20_000):
        value = {"metadata": {key: "v" * size, "list": ["v" * size, ["v" * size]], "object": {key: size}}}
        data = V1.encode("lf.a2a.v1.Part", value)
        assert V1.decode("lf.a2a.v1.Part", data) == read_by_protobuf("lf.a2a.v1.Part", data) == value


@pytest.mark.parametrize("size", [b"\x85\x00", b"\x85\x1a", b"\x85\x80\x00"])
def test_sizes_of_several_bytes_are_not_taken_for_short_ones(size: bytes) -> None:
    def sized(tag: bytes, content: bytes) -> bytes:
        return tag + length(content) + content

    text = b"\x1a" + size + b"x" * (0x86 - len(size))  # as long as if its size were the first byte, 0x85
    key = b"\x0a" + size + b"x" * (0x86 - len(size))
    for value in (
        sized(b"\x32", sized(b"\x0a", text)),
        sized(b"\x2a", sized(b"\x0a", b"\x0a\x01k" + sized(b"\x12", text))),
        sized(b"\x2a", sized(b"\x0a", b"\x0a\x01k\x12" + text[1:])),
        sized(b"\x2a", sized(b"\x0a", key + b"\x12\x02\x08\x00")),
    ):
        data = sized(b"\x22", value)
        ours = read_by_us("lf.a2a.v1.Part", data)
        assert ours is None or ours == read_by_protobuf("lf.a2a.v1.Part", data)


def test_null_is_kept_as_data_and_is_absence_elsewhere() -> None:
    part = {"data": None, "metadata": None, "filename": None}
    assert V1.decode("Part", V1.encode("Part", part)) == {"data": None}


def test_members_that_a_type_does_not_have_are_left_out() -> None:
    assert V1.encode("Part", {"text": "a", "color": "red"}) == V1.encode("Part", {"text": "a"})


def test_fields_that_are_unknown_are_skipped() -> None:
    newer = V1.encode("Task", {"id": "t"}) + b"\xa2\x06\x03new" + b"\x98\x06\x07" + b"\xab\x06\x08\x01\xac\x06"
    assert V1.decode("Task", newer) == {"id": "t"}


def test_a_state_without_a_name_stays_a_number() -> None:
    data = V1.encode("TaskStatus", {"state": 77})
    assert V1.decode("TaskStatus", data) == {"state": 77}
    assert V1.decode("TaskStatus", V1.encode("TaskStatus", {"state": "TASK_STATE_UNSPECIFIED"})) == {}


def test_an_optional_zero_is_not_an_absent_one() -> None:
    assert V1.decode("GetTaskRequest", V1.encode("GetTaskRequest", {"historyLength": 0})) == {"historyLength": 0}
    assert V1.encode("Task", {"generation": 0}) == b""


def test_a_generation_may_be_text_as_in_protojson() -> None:
    assert V1.decode("Task", V1.encode("Task", {"generation": "12"})) == {"generation": 12}


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z"),
        ("2026-11-15T10:00:00.120Z", "2026-11-15T10:00:00.120Z"),
        ("2026-11-15T10:00:00.123456Z", "2026-11-15T10:00:00.123456Z"),
        ("2026-11-15T10:00:00.123456789Z", "2026-11-15T10:00:00.123456789Z"),
        ("2026-11-15T12:00:00.5+02:00", "2026-11-15T10:00:00.500Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_keeps_its_digits_in_utc(sent: str, received: str) -> None:
    data = V1.encode("TaskStatus", {"timestamp": sent})
    assert V1.decode("TaskStatus", data) == {"timestamp": received}


TOO_LATE = b"\x08" + b"\xff" * 8 + b"\x7f"
TOO_MANY_NANOS = b"\x10\x80\x94\xeb\xdc\x03"
NEGATIVE_NANOS = b"\x10" + b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize("data", [TOO_LATE, TOO_MANY_NANOS, NEGATIVE_NANOS])
def test_a_time_beyond_the_calendar_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="time"):
        GOOGLE.decode("Timestamp", data)


def test_details_of_a_status_are_messages_with_their_types() -> None:
    status = {
        "code": 3,
        "message": "no",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "R", "metadata": {"a": "b"}},
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": "f"}]},
            {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": [1]}},
            {"@type": "type.googleapis.com/some.Other", "value": "AQI="},
        ],
    }
    rpc = codec_of("google.rpc")
    assert rpc.decode("Status", rpc.encode("Status", status)) == status


def nested_list(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("Task", {"id": 5}),
        ("Task", {"status": "working"}),
        ("Task", {"history": 5}),
        ("TaskStatus", {"state": "NO_STATE"}),
        ("TaskStatus", {"timestamp": "yesterday"}),
        ("Part", {"raw": "%"}),
        ("Part", {"text": "\ud800"}),
        ("Part", {"data": {1}}),
        ("Part", {"data": {"number": 10**400}}),
        ("Task", {"generation": 2**64}),
        ("Part", {"data": nested_list(10_000)}),
    ],
)
def test_what_a_type_cannot_hold_is_not_written(message: str, value: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        V1.encode(message, value)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0a\x02\xc3\x28",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a" + b"\x80" * 30,
        b"\x00\x00",
        b"\x0b\x0a",
        b"\x0c",
        b"\x0e",
        b"\x09\x00",
        b"\x0b" * 5_000,
    ],
    ids=lambda data: data[:6].hex(),
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        V1.decode("Task", data)


def test_json_is_read_to_a_hundred_levels_and_refused_beyond() -> None:
    value = GOOGLE.decode("Struct", nested(100))
    for _ in range(99):
        value = value["k"]
    assert value == {}
    for levels in (101, 5_000):
        with pytest.raises(MalformedMessage, match="nested too deeply"):
            GOOGLE.decode("Struct", nested(levels))
    assert GOOGLE.decode("Struct", nested(3), levels=3) == {"k": {"k": {}}}
    with pytest.raises(MalformedMessage, match="nested too deeply"):
        GOOGLE.decode("Struct", nested(4), levels=3)


def test_messages_in_details_are_nested_only_so_far() -> None:
    rpc, data = codec_of("google.rpc"), b""
    for _ in range(200):
        packed = GOOGLE.encode("Any", {"@type": "x/unknown", "value": ""})
        packed = b"\x0a\x13x/google.rpc.Status" + b"\x12" + length(data) + data
        data = b"\x1a" + length(packed) + packed
    with pytest.raises(MalformedMessage, match="nested too deeply"):
        rpc.decode("Status", data)


# Each is a few bytes that cost time, whether or not they become a value.
@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("lf.a2a.v1.Task", b"\x2a\x00"),
        ("lf.a2a.v1.AgentSkill", b"\x22\x00"),
        ("lf.a2a.v1.AgentCard", b"\x42\x00"),
        ("google.protobuf.Struct", b"\x0a\x00"),
        ("google.protobuf.ListValue", b"\x0a\x00"),
        ("google.protobuf.ListValue", b"\x0a\x02\x2a\x00"),
        ("google.protobuf.ListValue", b"\x0a\x02\x32\x00"),
        ("grpc.reflection.v1.ExtensionNumberResponse", b"\x10\x00"),
        ("google.rpc.Status", b"\x1a\x00"),
        ("lf.a2a.v1.Task", b"\x0a\x00"),
        ("lf.a2a.v1.Task", b"\x1a\x00"),
        ("lf.a2a.v1.Task", b"\xa0\x06\x00"),
        ("lf.a2a.v1.Task", b"\xa3\x06\x08\x00\xa4\x06"),
        ("lf.a2a.v1.TaskStatus", b"\x08\x00"),
        ("google.protobuf.Value", b"\x08\x00"),
        ("google.protobuf.Timestamp", b"\x08\x00"),
        ("google.protobuf.Struct", b"\x10\x00"),
    ],
)
def test_a_message_holds_only_so_many_values(message: str, data: bytes) -> None:
    V1.decode(message, data * 10, values=100)
    with pytest.raises(MalformedMessage, match="too many values"):
        V1.decode(message, data * 100, values=100)


def test_a_packed_list_holds_only_so_many_numbers() -> None:
    V1.decode("grpc.reflection.v1.ExtensionNumberResponse", b"\x12\x50" + bytes(80), values=100)
    with pytest.raises(MalformedMessage, match="too many values"):
        V1.decode("grpc.reflection.v1.ExtensionNumberResponse", b"\x12\x65" + bytes(101), values=100)


def test_a_million_bytes_of_empty_messages_take_no_hundreds_of_megabytes() -> None:
    tracemalloc.start()
    with pytest.raises(MalformedMessage, match="too many values"):
        V1.decode("Task", b"\x2a\x00" * 500_000, values=40_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
