"""A part holds exactly one thing."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.json import encode
from dragoman.model.part import Part

CONTENT: dict[str, Any] = {"text": "t", "raw": b"r", "url": "https://example.org", "data": {"k": 1}}


@pytest.mark.parametrize("kind", CONTENT)
def test_a_part_with_one_of_the_four_knows_its_kind(kind: str) -> None:
    assert Part(**{kind: CONTENT[kind]}).kind == kind


@pytest.mark.parametrize("kinds", [(), *combinations(CONTENT, 2), tuple(CONTENT)], ids=str)
def test_none_or_several_of_the_four_are_refused(kinds: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="exactly one of text, raw, url and data"):
        Part(**{kind: CONTENT[kind] for kind in kinds})


@pytest.mark.parametrize("body", [b"{}", b'{"text":"a","data":1}', b'{"filename":"x"}', b'{"raw":"AA==","url":"u"}'])
def test_the_rule_holds_for_what_is_read_too(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="exactly one"):
        msgspec.json.decode(body, type=Part)


def test_empty_content_is_content() -> None:
    assert Part(text="").kind == "text"
    assert Part(raw=b"").kind == "raw"
    assert Part(data=None).kind == "data"
    assert msgspec.json.decode(b'{"data":null}', type=Part) == Part(data=None)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_data_comes_back_as_it_went_in(value: Any) -> None:
    part = Part(data=value, metadata={"m": value})
    body = encode(part)
    again = msgspec.json.decode(body, type=Part)
    assert again == part
    assert encode(again) == body  # the order of keys, and 1.0 apart from 1
    assert [type(again.data)] == [type(value)]


@given(st.text(), st.none() | st.text(min_size=1), st.none() | st.text(min_size=1))
def test_text_with_its_names_comes_back(text: str, filename: str | None, media_type: str | None) -> None:
    part = Part(text=text, filename=filename, media_type=media_type)
    assert msgspec.json.decode(encode(part), type=Part) == part


@given(st.binary())
def test_bytes_travel_as_base64(data: bytes) -> None:
    part = Part(raw=data)
    assert msgspec.json.decode(encode(part), type=Part) == part
    assert msgspec.json.decode(encode(part))["raw"].isascii()


def test_absent_fields_are_left_out() -> None:
    assert encode(Part(text="t")) == b'{"text":"t"}'
    assert encode(Part(raw=b"\xff", filename="a", media_type="b/c")) == (
        b'{"raw":"/w==","filename":"a","mediaType":"b/c"}'
    )
