"""Numbers, their types and the order of names come back as they went in, compared as the text on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")
VALUE = '{"n":9007199254740993,"x":1,"y":1.0,"k":[null,{"b":1,"a":2}]}'
VALUES = {
    "plain": VALUE,
    "long": '{"big":123456789012345678901234567890,"small":-9223372036854775809}',
    "fractions": '{"half":0.5,"tiny":5e-324,"minus":-0.0,"third":0.1,"long":123456789.125}',
    "empty": '{"z":{},"a":[],"m":"","t":true,"f":false,"0":[[[]]]}',
    "text": '{"text":"\u00fc \u2028 \U0001f600 \\" \\\\ \\n \\u0000"}',
    "words": '{"tool":"x","kind":"data","type":"text","data":{"data":1},"metadata":null,"generation":7,"parts":[1]}',
    "names": '{"__proto__":1,"snake_case":2,"camelCase":3,"":4}',
}


def calling_same(value: str) -> dict[str, Any]:
    """What calls `same` with the value; its text survives `json.dumps` unchanged."""
    decoded = json.loads(value)
    assert json.dumps(decoded, separators=(",", ":"), ensure_ascii=False) == value
    return {"tool": "same", "arguments": {"value": decoded}}


def as_data(speaker: Any, value: str) -> str:
    """The data member that holds the value, as this dialect spells it."""
    return f'"data":{{"data":{value}}}' if speaker.name == "0.3-rest" else f'"data":{value}'


@pytest.mark.parametrize("value", VALUES.values())
def test_data_comes_back_as_it_went_in(speaker: Any, value: str) -> None:
    answer = speaker.send(**calling_same(value))
    task = speaker.id_of(answer)
    assert speaker.state(answer) == "completed"
    texts = [answer.text, speaker.get(task).text]
    if speaker.is_modern:
        context = answer.result["task"]["contextId"]
        listed = "true" if speaker.is_rest else True
        texts.append(speaker.list(contextId=context, includeArtifacts=listed).text)
    for text in texts:
        # Once as the result, once within the request in the history.
        assert text.count(as_data(speaker, value)) == 1
        assert text.count(f'"arguments":{{"value":{value}}}') == 1


@pytest.mark.parametrize("value", VALUES.values())
def test_data_comes_back_as_it_went_in_over_a_stream(speaker: Any, value: str) -> None:
    with speaker.stream(**calling_same(value)) as reading:
        lines = "".join(reading.response.iter_text()).split("\n")
    assert sum(line.count(as_data(speaker, value)) for line in lines) == 1


@pytest.mark.parametrize("other", ["1.0-rpc", "1.1-rest", "0.3-rpc", "0.3-rest"])
def test_data_is_the_same_in_whatever_dialect_it_is_read(wire: Any, speaker: Any, other: str) -> None:
    task = speaker.id_of(speaker.send(**calling_same(VALUE)))
    reader = wire.speaker(other)
    headers = {"A2A-Version": "0.3"} if other == "0.3-rpc" else {}
    assert as_data(reader, VALUE) in reader.get(task, headers=headers).text


@pytest.mark.parametrize("value", VALUES.values())
def test_metadata_comes_back_as_it_went_in(speaker: Any, value: str) -> None:
    answer = speaker.send("hi", message={"metadata": json.loads(value)})
    assert answer.text.count(f'"metadata":{value}') == 1


def test_data_survives_the_disk(wire: Any, subtests: pytest.Subtests, new_agent: Any, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    table = [(name, value) for name in SPEAKERS for value in (VALUE, VALUES["long"], VALUES["text"])]
    with served(new_agent(), store=store, drain=0) as url:
        sent = [wire.at(url).speaker(name).send(**calling_same(value)) for name, value in table]
    with served(new_agent(), store=store, drain=0) as url:
        for (name, value), before in zip(table, sent, strict=True):
            with subtests.test(name, value=value):
                speaker = wire.at(url).speaker(name)
                after = speaker.get(speaker.id_of(before))
                assert as_data(speaker, value) in after.text
                assert after.result == before.result.get("task", before.result)
