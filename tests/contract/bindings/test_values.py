"""What parts hold comes back as it went in: files, data, numbers, and data as text for callers who read only text."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from contract.bindings.caller import CALLERS, Caller, Site
from contract.bindings.deviations import GRPC

from dragoman import State, Task
from dragoman.model.part import Part

VALUES = {
    "plain": '{"n":9007199254740993,"x":1,"y":1.0,"k":[null,{"b":1,"a":2}]}',
    "long": '{"big":123456789012345678901234567890,"small":-9223372036854775809}',
    "fractions": '{"half":0.5,"tiny":5e-324,"minus":-0.0,"third":0.1,"long":123456789.125}',
    "empty": '{"z":{},"a":[],"m":"","t":true,"f":false,"0":[[[]]]}',
    "text": '{"text":"\u00fc \u2028 \U0001f600 \\" \\\\ \\n \\u0000"}',
    "words": '{"tool":"x","kind":"data","type":"text","data":{"data":1},"metadata":null,"generation":7,"parts":[1]}',
    "names": '{"__proto__":1,"snake_case":2,"camelCase":3,"":4}',
}
NAMES = list(VALUES)


def spelled(value: object) -> str:
    """The value as JSON, with the order of its names."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def results(task: Task) -> list[str]:
    return [spelled(part.data) for artifact in task.artifacts for part in artifact.parts]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.needs("exact numbers")
def test_data_comes_back_as_it_went_in(caller: Caller, name: str) -> None:
    value = VALUES[name]
    task = caller.send(tool="same", arguments={"value": json.loads(value)}, message_metadata=json.loads(value))
    assert (task.state, results(task)) == (State.COMPLETED, [value])
    assert spelled(task.history[0].metadata) == value
    assert spelled(task.history[0].parts[0].data) == f'{{"tool":"same","arguments":{{"value":{value}}}}}'
    assert results(caller.get(task)) == [value]


@pytest.mark.parametrize("name", ["empty", "text", "words", "names"])
def test_data_without_numbers_that_are_too_long_comes_back_over_grpc(name: str, house: Site) -> None:
    for caller in map(house.caller, GRPC):
        value = json.loads(VALUES[name])
        task = caller.send(tool="same", arguments={"value": value})
        assert [part.data for part in task.parts] == [value]


@pytest.mark.needs("exact numbers")
def test_data_is_the_same_in_whatever_version_it_is_read(caller: Caller, house: Site) -> None:
    task = caller.send(tool="same", arguments={"value": json.loads(VALUES["plain"])})
    for name in CALLERS:
        if name not in GRPC:
            assert results(house.caller(name).in_its_own_version().get(task)) == [VALUES["plain"]], name


@pytest.mark.requirement("S2-7")
def test_text_data_and_files_are_kept_in_the_history(caller: Caller) -> None:
    parts = [
        {"text": "look"},
        {"data": {"tool": "echo", "arguments": {}}},
        {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"},
        {"url": "https://example.com/a.png"},
    ]
    task = caller.send(parts=parts)
    assert task.text == "look"
    assert caller.get(task).history[0].parts == (
        Part(text="look"),
        Part(data={"tool": "echo", "arguments": {}}),
        Part(raw=b"hi", filename="a.txt", media_type="text/plain"),
        Part(url="https://example.com/a.png"),
    )


TEXT = VALUES["plain"]


@pytest.mark.needs("exact numbers")
@pytest.mark.parametrize("wanted", [["text/plain"], ["text"], ["text/*"], ["Text/Plain; charset=utf-8", "text/html"]])
def test_data_is_json_text_for_a_caller_who_asks_for_text_alone(caller: Caller, wanted: list[str]) -> None:
    task = caller.send(tool="same", arguments={"value": json.loads(TEXT)}, output_modes=wanted)
    assert [part.text for part in task.parts] == [TEXT]
    assert caller.get(task) == task
    with caller.stream(tool="same", arguments={"value": json.loads(TEXT)}, output_modes=wanted) as events:
        assert [text for event in events for text in artifact_texts(event.value)] == [TEXT]


def artifact_texts(value: object) -> list[str | None]:
    artifact = getattr(value, "artifact", None)
    return [] if artifact is None else [part.text for part in artifact.parts]


@pytest.mark.parametrize("wanted", [[], ["text/plain", "application/json"], ["*/*"], ["text/plain", "*"]])
def test_data_stays_data_for_everybody_else(caller: Caller, wanted: list[str]) -> None:
    task = caller.send(tool="same", arguments={"value": {"a": "b"}}, output_modes=wanted)
    assert [part.data for part in task.parts] == [{"a": "b"}]


def test_a_setting_makes_data_text_for_all_callers(opened: Callable[..., Site]) -> None:
    there = opened(data_as_text=True)
    for name in CALLERS:
        assert [part.text for part in there.caller(name).send(tool="both").parts] == ["a text", '{"an":"object"}']


def test_a_setting_repeats_the_text_of_the_answer_in_the_last_status(opened: Callable[..., Site]) -> None:
    there = opened(closing_message=True)
    for name in CALLERS:
        caller = there.caller(name)
        task = caller.send(tool="count", arguments={"n": 2})
        assert task.status.message is not None
        assert (task.artifacts[0].text, task.status.message.text) == ("1 2 ", "1 2 ")
