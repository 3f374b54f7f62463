"""Numbers and the order of names survive a stream, a list and the disk; the contract of bindings has the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")
VALUE = '{"n":9007199254740993,"x":1,"y":1.0,"k":[null,{"b":1,"a":2}]}'
VALUES = (
    VALUE,
    '{"big":123456789012345678901234567890,"small":-9223372036854775809}',
    '{"half":0.5,"tiny":5e-324,"minus":-0.0,"third":0.1,"long":123456789.125}',
    '{"text":"\u00fc \u2028 \U0001f600 \\" \\\\ \\n \\u0000"}',
)


def calling_same(value: str) -> dict[str, Any]:
    """What calls `same` with the value; its text survives `json.dumps` unchanged."""
    decoded = json.loads(value)
    assert json.dumps(decoded, separators=(",", ":"), ensure_ascii=False) == value
    return {"tool": "same", "arguments": {"value": decoded}}


def as_data(speaker: Any, value: str) -> str:
    """The data member that holds the value, as this dialect spells it."""
    return f'"data":{{"data":{value}}}' if speaker.name == "0.3-rest" else f'"data":{value}'


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest"], indirect=True)
@pytest.mark.parametrize("value", VALUES)
def test_data_comes_back_as_it_went_in_within_a_list(speaker: Any, value: str) -> None:
    context = speaker.send(**calling_same(value)).result["task"]["contextId"]
    text = speaker.list(contextId=context, includeArtifacts="true" if speaker.is_rest else True).text
    # Once as the result, once within the request in the history.
    assert text.count(as_data(speaker, value)) == text.count(f'"arguments":{{"value":{value}}}') == 1


@pytest.mark.parametrize("value", VALUES)
def test_data_comes_back_as_it_went_in_over_a_stream(speaker: Any, value: str) -> None:
    with speaker.stream(**calling_same(value)) as reading:
        lines = "".join(reading.response.iter_text()).split("\n")
    assert sum(line.count(as_data(speaker, value)) for line in lines) == 1


def test_data_survives_the_disk(wire: Any, subtests: pytest.Subtests, new_agent: Any, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    table = [(name, value) for name in SPEAKERS for value in VALUES]
    with served(new_agent(), store=store, drain=0) as url:
        sent = [wire.at(url).speaker(name).send(**calling_same(value)) for name, value in table]
    with served(new_agent(), store=store, drain=0) as url:
        for (name, value), before in zip(table, sent, strict=True):
            with subtests.test(name, value=value):
                speaker = wire.at(url).speaker(name)
                after = speaker.get(speaker.id_of(before))
                assert as_data(speaker, value) in after.text
                assert after.result == before.result.get("task", before.result)
