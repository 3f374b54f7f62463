"""Times are spelled one way and read in many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.clock import milliseconds, timestamp

ANY_MS = st.integers(milliseconds("1000-01-01T00:00:00Z"), milliseconds("9998-12-31T00:00:00Z"))


@given(ANY_MS)
def test_a_time_comes_back_as_it_went_in(ms: int) -> None:
    text = timestamp(ms)
    assert milliseconds(text) == ms
    assert len(text) == 24
    assert text[-5] == "."
    assert text[-1] == "Z"


@given(ANY_MS, ANY_MS)
def test_times_sort_like_their_spelling(one: int, other: int) -> None:
    assert (timestamp(one) < timestamp(other)) == (one < other)


def test_the_spelling_is_iso_8601_with_milliseconds_and_z() -> None:
    assert timestamp(1_800_000_000_007) == "2027-01-15T08:00:00.007Z"
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(-1) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    "text",
    [
        "2027-01-15T08:00:00.007Z",
        "2027-01-15T08:00:00.007000Z",
        "2027-01-15T09:00:00.007+01:00",
        "2027-01-15T08:00:00.007",
        "2027-01-15T08:00:00.0071Z",
    ],
)
def test_other_spellings_are_read_and_no_zone_means_utc(text: str) -> None:
    assert milliseconds(text) == 1_800_000_000_007


@pytest.mark.parametrize("text", ["", "now", "2027-13-01T00:00:00Z", "1800000000007"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        milliseconds(text)
