"""Lines that each are something by themselves, in whatever pieces they come."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.lines import LineTooLongError
from dragoman.agents.process import events, outputs
from dragoman.agents.process.events import Event
from dragoman.agents.process.outputs import JsonLines, LinesOutput


class Lines:
    """Says every line as it came, and at the end that it is over."""

    def feed(self, line: bytes) -> Iterable[Event]:
        yield events.text(line.decode(errors="replace"))

    def close(self) -> Iterable[Event]:
        yield events.result("over")


def texts_of(output: LinesOutput, *pieces: bytes) -> list[str]:
    return [event["text"] for piece in pieces for event in output.feed(piece)]


def test_a_line_is_read_at_its_end() -> None:
    output = LinesOutput(Lines())
    assert texts_of(output, b"on", b"e") == []
    assert texts_of(output, b"\ntwo\nth") == ["one", "two"]
    assert texts_of(output, b"ree\n") == ["three"]


def test_empty_lines_are_none() -> None:
    assert texts_of(LinesOutput(Lines()), b"\n\r\n  \none\r\n\n") == ["one\r"]


def test_a_last_line_without_an_end_counts_and_then_the_reader_ends() -> None:
    output = LinesOutput(Lines())
    texts_of(output, b"one\ntwo")
    assert list(output.close()) == [events.text("two"), events.result("over")]


def test_the_reader_ends_also_without_any_input() -> None:
    assert list(LinesOutput(Lines()).close()) == [events.result("over")]


def test_silence_is_no_question() -> None:
    output = LinesOutput(Lines())
    texts_of(output, b"What is your name? ")
    assert list(output.pause(">>> ")) == []


@given(st.lists(st.binary()), st.lists(st.integers(0, 1000)))
def test_it_does_not_matter_how_lines_are_cut(lines: list[bytes], places: list[int]) -> None:
    data = b"\n".join(lines)
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    output = LinesOutput(Lines())
    texts = texts_of(output, *(data[a:b] for a, b in pairwise(edges)))
    texts += [event["text"] for event in output.close() if event["type"] == "text"]
    assert texts == [line.decode(errors="replace") for line in data.split(b"\n") if line.strip()]


@given(st.lists(st.binary()))
def test_json_lines_of_any_bytes_raise_nothing(pieces: list[bytes]) -> None:
    output = LinesOutput(JsonLines())
    for piece in pieces:
        list(output.feed(piece))
    list(output.close())


def test_a_line_may_be_long_but_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_LINE_BYTES", 1000)
    output = LinesOutput(Lines())
    assert texts_of(output, *[b"x" * 100] * 10, b"\n") == ["x" * 1000]
    texts_of(output, *[b"x" * 100] * 10)
    with pytest.raises(LineTooLongError):
        texts_of(output, b"x")


def test_many_short_lines_are_not_one_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_LINE_BYTES", 10)
    assert len(texts_of(LinesOutput(Lines()), *[b"12345\n678"] * 100)) == 100


@pytest.mark.parametrize("chunk", [b"a\n" + b"x" * 11 + b"\nb\n", b"a\n" + b"x" * 11])
def test_a_later_line_of_one_chunk_may_not_be_longer_either(chunk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_LINE_BYTES", 10)
    with pytest.raises(LineTooLongError):
        texts_of(LinesOutput(Lines()), chunk)


def test_a_line_that_was_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_LINE_BYTES", 10)
    output = LinesOutput(Lines())
    with pytest.raises(LineTooLongError):
        texts_of(output, b"x" * 11)
    assert list(output.close()) == [events.result("over")]
