"""Protobuf messages between our codec and the generated classes of a2a-sdk, in an environment of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protobuf_messages import ONLY_1_1, mutate, values_of

from dragoman.dialects.protobuf import v03, v1
from dragoman.dialects.protobuf.schema import FileSchema
from dragoman.transports.grpc.codec import Codec, MalformedMessage, codec_of

PROGRAM = Path(__file__).parent / "peers" / "a2a_sdk_messages.py"
INSTALLED = Path(__file__).parents[2] / ".peers"
# The environment, the module of the generated classes, the table of ours, and how many mutated inputs: 20,000 in all.
SDKS = {
    "a2a-sdk": ("a2a-sdk", "a2a.types.a2a_pb2", v1.FILES[0], 10_000),
    "a2a-sdk of 1.x for 0.3": ("a2a-sdk", "a2a.compat.v0_3.a2a_v0_3_pb2", v03.FILES[0], 5_000),
    "a2a-sdk of 0.3": ("a2a-sdk-03", "a2a.grpc.a2a_pb2", v03.FILES[0], 5_000),
}
MUTATIONS = 50
_settings = settings(suppress_health_check=list(HealthCheck), deadline=None, database=None)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class Sdk:
    """A process with the generated classes, and our codec for the same package."""

    def __init__(self, process: subprocess.Popen[str], table: FileSchema, inputs: int) -> None:
        self._process = process
        self.messages = list(table.messages)
        self.codec: Codec = codec_of(table.package)
        self.package = table.package
        self.inputs = inputs

    def read(self, message: str, *data: bytes) -> list[dict[str, Any] | None]:
        """Return what the classes make of bytes; None for what is no message."""
        return self._ask("read", message, *(each.hex() for each in data))

    def write(self, message: str, *values: dict[str, Any]) -> list[bytes]:
        return [bytes.fromhex(each) for each in self._ask("write", message, *values)]

    def _ask(self, *asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process with the generated classes has ended"
        return json.loads(answer)


@pytest.fixture(scope="module", params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Iterator[Sdk]:
    environment, module, table, inputs = SDKS[request.param]
    python = INSTALLED / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no .peers/{environment}: run `make interop`")
    with subprocess.Popen(
        [python, PROGRAM, module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Sdk(process, table, inputs)
        process.terminate()


def read_by_us(sdk: Sdk, message: str, data: bytes) -> dict[str, Any] | None:
    try:
        return sdk.codec.decode(message, data)
    except MalformedMessage:
        return None


def test_every_message_is_the_same_on_both_sides(sdk: Sdk) -> None:
    for message in sdk.messages:
        check_both_ways(sdk, message)


def check_both_ways(sdk: Sdk, message: str) -> None:
    @given(values_of(f"{sdk.package}.{message}"))
    @settings(_settings, max_examples=20)
    def check(value: dict[str, Any]) -> None:
        data = sdk.codec.encode(message, value)
        assert sdk.read(message, data) == [value]
        (theirs,) = sdk.write(message, value)
        assert sdk.codec.decode(message, theirs) == value

    check()


def test_mutated_messages_are_refused_or_read_as_theirs(sdk: Sdk) -> None:
    names = st.sampled_from(sdk.messages)
    count = 0

    def values(message: str) -> st.SearchStrategy[Any]:
        name = f"{sdk.package}.{message}"
        return st.tuples(st.just(message), values_of(name), values_of(name), st.integers(0, 2**32))

    @given(names.flatmap(values))
    @settings(_settings, max_examples=sdk.inputs // MUTATIONS)
    def check(drawn: tuple[str, dict[str, Any], dict[str, Any], int]) -> None:
        nonlocal count
        message, value, other, seed = drawn
        random = Random(seed)
        one, two = sdk.codec.encode(message, value), sdk.codec.encode(message, other)
        inputs = [mutate(one, two, random) for _ in range(MUTATIONS)]
        for data, theirs in zip(inputs, sdk.read(message, *inputs), strict=True):
            ours = read_by_us(sdk, message, data)
            assert ours is None or without_1_1(ours) == without_1_1(theirs), data
        count += MUTATIONS

    check()
    assert count >= sdk.inputs


def without_1_1(value: Any) -> Any:
    """A value without the fields that the classes of 1.0 skip."""
    if isinstance(value, dict):
        return {name: without_1_1(each) for name, each in value.items() if name not in ONLY_1_1}
    return [without_1_1(each) for each in value] if isinstance(value, list) else value


def test_fields_that_a_side_does_not_have_are_skipped(sdk: Sdk) -> None:
    task = {"id": "t", "contextId": "c"}
    data = sdk.codec.encode("Task", {**task, "generation": 7})
    assert sdk.read("Task", data + b"\xa2\x06\x03new") == [task]
    (theirs,) = sdk.write("Task", task)
    assert sdk.codec.decode("Task", theirs + b"\xa2\x06\x03new" + b"\xab\x06\x08\x01\xac\x06") == task
