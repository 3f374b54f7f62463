"""Reading server-sent events, however they are written and however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import BadResponse
from dragoman.transports.sse import SseReader

ENDINGS = st.sampled_from(["\n", "\r", "\r\n"])


def read(data: bytes, *cuts: int) -> list[tuple[bytes, int]]:
    """The events of a stream that arrives in pieces, cut at these places."""
    reader = SseReader()
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    return [event for start, end in pairwise(places) for event in reader.feed(data[start:end])]


def bytewise(data: bytes) -> list[tuple[bytes, int]]:
    return read(data, *range(len(data)))


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[bytes, int]]]:
    """A stream with everything a server may write, each line with an end of its own; and what it says."""
    text = ""
    expected: list[tuple[bytes, int]] = []
    for _ in range(draw(st.integers(0, 5))):
        number, data = 0, []
        for kind in draw(st.lists(st.sampled_from(["data", "data", "id", "comment", "event", "retry"]), max_size=5)):
            space = draw(st.sampled_from(["", " "]))
            word = draw(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8))
            if kind == "comment":
                text += f":{word}"
            elif kind == "id":
                number = draw(st.integers(0, 999_999_999))
                text += f"id:{space}{number}"
            else:
                # One space after the colon belongs to the colon.
                word = word if space or not word.startswith(" ") else "x" + word
                text += f"{kind}:{space}{word}"
                if kind == "data":
                    data.append(word)
            text += draw(ENDINGS)
        ending = draw(ENDINGS)
        # A lone LF behind a CR would be the second half of one end of line.
        text += "\r\n" if ending == "\n" and text.endswith("\r") else ending
        if data:
            expected.append(("\n".join(data).encode(), number))
    mark = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    if not mark and text.startswith("\ufeff"):
        text = "\n" + text
    return mark + text.encode(), expected


@pytest.mark.requirement("S2-89")
@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_of_any_stream_gives_the_same_events(
    stream: tuple[bytes, list[tuple[bytes, int]]], cuts: list[int]
) -> None:
    data, expected = stream
    assert read(data) == expected
    assert read(data, *cuts) == expected
    assert bytewise(data) == expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_any_bytes_are_read_alike_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    assert read(data, *cuts) == read(data) == bytewise(data)


@pytest.mark.requirement("S2-89")
@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [(b"a", 0)]),
        (b"data:a\n\n", [(b"a", 0)]),
        (b"data:  a\n\n", [(b" a", 0)]),
        (b"data\n\n", [(b"", 0)]),
        (b"data: a\ndata: b\n\n", [(b"a\nb", 0)]),
        (b"data: a\ndata:\n\n", [(b"a\n", 0)]),
        (b"id: 7\ndata: a\n\n", [(b"a", 7)]),
        (b"data: a\nid: 7\n\n", [(b"a", 7)]),
        (b"id:7\ndata:a\n\n", [(b"a", 7)]),
        (b"id: 7\ndata: a\n\ndata: b\n\n", [(b"a", 7), (b"b", 0)]),
        (b": keep-alive\n\ndata: a\n\n", [(b"a", 0)]),
        (b"event: message\nretry: 3000\ndata: a\n\n", [(b"a", 0)]),
        (b"event: ping\n\n", []),
        (b"\n\n\n\n\ndata: a\n\n\n\n", [(b"a", 0)]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"a", 0)]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [(b"a", 0), (b"b", 0), (b"c", 0)]),
        (b"data: a\r\n\ndata: b\n\n", [(b"a", 0), (b"b", 0)]),
        (b"dataset: a\n\n", []),
        (b" data: a\n\n", []),
        (b"data: a\n", []),
    ],
)
def test_what_servers_write(data: bytes, events: list[tuple[bytes, int]]) -> None:
    assert read(data) == bytewise(data) == events


@pytest.mark.parametrize("number", [b"", b"x", b"-1", b"1.5", b"\xd9\xa1", b"1789000000000", b"9" * 40, b"a\x000"])
def test_an_id_that_cannot_be_the_number_of_an_event_is_none(number: bytes) -> None:
    for ending in (b"\ndata: a\n\n", b"\nevent: x\ndata: a\n\n"):
        assert read(b"id: " + number + ending) == [(b"a", 0)]


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    reader = SseReader()
    assert reader.feed(b"data: a\n") == []
    assert reader.feed(b"\nda") == [(b"a", 0)]
    assert reader.feed(b"ta: b\r") == []
    # The second CR ends it: nobody waits for an LF that may never come.
    assert reader.feed(b"\r") == [(b"b", 0)]


def test_a_stream_that_stops_within_an_event_says_so() -> None:
    reader = SseReader()
    reader.feed(b"data: a\n\n")
    assert not reader.pending
    reader.feed(b": comment\n")
    assert not reader.pending
    reader.feed(b'data: {"half')
    assert reader.pending


def test_an_event_without_an_end_is_refused() -> None:
    reader = SseReader(limit=100)
    reader.feed(b"data: " + b"x" * 90)
    with pytest.raises(BadResponse, match="larger than 100 bytes"):
        reader.feed(b"x" * 10)
    with pytest.raises(BadResponse):
        SseReader(limit=100).feed(b"data: a\n\ndata: " + b"x" * 200)


def test_a_large_event_in_small_pieces_costs_what_its_length_is() -> None:
    reader = SseReader()
    for _ in range(20_000):  # 20 MB: searched anew with every piece, this would take minutes
        reader.feed(b"data: " + b"x" * 1000 + b"\n")
    ((data, _),) = reader.feed(b"\n")
    assert len(data) == 20_000 * 1001 - 1
