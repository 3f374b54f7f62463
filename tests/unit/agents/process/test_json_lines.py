"""Programs that say more than text: a JSON object per line."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.agents.process import events
from dragoman.agents.process.outputs import KEYS, JsonLines


def read(line: str | bytes) -> list[Any]:
    return list(JsonLines().feed(line.encode() if isinstance(line, str) else line))


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ('{"text": "Hello "}', events.text("Hello ")),
        ('{"status": "reading"}', events.tool_status("reading")),
        ('{"ask": "How many days?"}', events.ask("How many days?")),
        ('{"error": "no bread"}', events.error("no bread")),
        ('{"result": "done"}', events.result("done")),
        ('{"result": {"n": [1, 2.5, null]}}', events.result({"n": [1, 2.5, None]})),
        ('{"result": null}', events.result(None)),
        ('{"artifact": {"name": "plan", "text": "go"}}', events.artifact({"name": "plan", "text": "go"})),
        ('{"artifact": "go"}', events.artifact({"text": "go"})),
        ('{"artifact": [1, 2]}', events.artifact({"data": [1, 2]})),
        ('{"artifact": null}', events.artifact({"data": None})),
        ('{"text": "h\\u00e9"}\r', events.text("hé")),
        (' {"text": "a", "level": "debug"} ', events.text("a")),
        ('{"text": "half \\ud800"}', events.text("half \ufffd")),
        ('{"error": {"code": 1}}', events.error('{"code":1}')),
    ],
)
def test_a_line_is_an_event(line: str, event: Any) -> None:
    assert read(line) == [event]


@pytest.mark.parametrize(
    "line",
    [
        "Loading model ...",
        "[1, 2]",
        '"text"',
        "null",
        "{}",
        '{"level": "info"}',
        '{"text": 5}',
        '{"ask": null}',
        '{"status": ["a"]}',
        '{"text": "a"} {"text": "b"}',
        '{"result": 1e999}',
        '{"result": ' + "[" * 100_000,
        b"\0",
    ],
    ids=range(13),
)
def test_a_line_that_is_none_is_logged_and_passed_over(line: str | bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dragoman.process"):
        assert read(line) == []
    [record] = caplog.records
    assert record.message.startswith("not a JSON line of a program: ")
    assert len(record.message) < 250


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from([*KEYS, "other"]), JSON, max_size=2))
def test_any_object_is_at_most_one_event(record: dict[str, Any]) -> None:
    assert len(read(json.dumps(record))) <= 1


def test_nothing_is_kept_back() -> None:
    lines = JsonLines()
    list(lines.feed(b'{"text": "a"}'))
    assert list(lines.close()) == []
