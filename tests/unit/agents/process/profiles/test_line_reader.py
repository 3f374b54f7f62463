"""Readers of lines, given anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.agents.process.profiles import PROFILES, profile
from dragoman.agents.process.profiles.profile import conversation_id

KNOWN = {"thinking", "tool_status", "result", "error"}
TRANSCRIPTS = [file.read_text() for file in sorted((Path(__file__).parent / "transcripts").iterdir())]
# The words the formats are made of: what is put together from them gets further than chance would.
WORDS = sorted({word for text in TRANSCRIPTS for word in re.findall(r'"([A-Za-z_.-]+)"', text)})
KINDS = sorted({word for text in TRANSCRIPTS for word in re.findall(r'"type":"([A-Za-z_.-]+)"', text)})
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.sampled_from(WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=12,
)
OBJECTS = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(KINDS) | VALUES,
    st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=8),
)
LINES = st.lists(OBJECTS.map(lambda one: json.dumps(one).encode()) | st.binary(), max_size=6)


def read(name: str, lines: list[bytes]) -> list[Any]:
    reader = profile(name).reader()
    return [*(event for line in lines for event in reader.feed(line)), *reader.close()]


@pytest.mark.parametrize("name", PROFILES)
@settings(max_examples=25)
@given(lines=LINES)
def test_no_line_can_make_a_reader_fail(name: str, lines: list[bytes]) -> None:
    events = read(name, lines)

    assert {event["type"] for event in events} <= KNOWN
    assert sum(event["type"] in ("result", "error") for event in events) <= 1
    for event in events:
        if event["type"] == "tool_status":
            status = event["statusMessage"]
            assert 0 < len(status) <= 200
            assert status.isprintable()
        if event["type"] == "error":
            assert event["error"]["message"].strip()
            assert event["error"]["type"]
        if event["type"] == "result":
            assert event.get("remembers") is None or conversation_id(event["remembers"])


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "assistant", "message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type": "result", "num_turns": ' + b"9" * 10_000 + b"}",
        b'{"type": "result", "total_cost_usd": 1e999}',
        b'{"type": ["result"], "type": {"result": 1}}',
    ],
    ids=["deep", "long number", "infinite", "type"],
)
def test_a_line_that_is_hard_to_read_is_passed_over(name: str, line: bytes) -> None:
    assert [event for event in read(name, [line]) if event["type"] != "result"] == []


def test_a_text_that_was_cut_in_the_middle_of_a_character_is_still_read() -> None:
    cut = rb'{"type":"result","subtype":"success","is_error":false,"result":"well done \ud83d","session_id":"a1"}'
    broken = b'{"type":"result","subtype":"success","is_error":false,"result":"well \xff done"}'

    assert read("claude", [cut]) == [{"type": "result", "result": "well done \ufffd", "remembers": "a1"}]
    assert read("claude", [broken]) == [{"type": "result", "result": "well \ufffd done"}]


def test_a_tool_call_is_reported_in_one_short_line() -> None:
    block = {"type": "tool_use", "name": "Write", "input": {"text": "a\x1b[31m\n" * 100_000}}
    line = json.dumps({"type": "assistant", "message": {"content": [block]}}).encode()

    (event,) = read("claude", [line])

    assert event["statusMessage"].startswith("Write: ")
    assert event["statusMessage"].endswith("…")
    assert len(event["statusMessage"]) == 200
