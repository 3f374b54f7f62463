"""How deep JSON may be nested, and how many values and parts it may have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.reading import checks as json_limits
from dragoman.dialects.reading.checks import JsonLimits
from dragoman.model.error import InvalidParams

JSON = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a/'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"\\a'), inner),
    max_leaves=40,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def is_refused(text: bytes, limit: int) -> bool:
    try:
        JsonLimits(nesting=limit, values=0).check(text)
    except InvalidParams:
        return True
    return False


@given(JSON, st.integers(0, 8), st.booleans())
def test_exactly_what_is_nested_deeper_is_refused(value: Any, limit: int, readable: bool) -> None:
    text = json.dumps(value, indent=2 if readable else None, ensure_ascii=False).encode()
    assert is_refused(text, limit) == (depth_of(value) > limit)


@given(st.binary(), st.integers(0, 3))
def test_invalid_json_raises_no_other_exception(text: bytes, limit: int) -> None:
    assert is_refused(text, limit) in (True, False)


def test_the_error_names_the_field_and_the_limit() -> None:
    with pytest.raises(InvalidParams, match="params is nested deeper than 2") as caught:
        JsonLimits(nesting=2, values=0).check(b'{"a":[[1]]}', "params")
    assert (caught.value.field, caught.value.metadata) == ("params", {"limit": "nesting"})


@pytest.mark.parametrize("inside", ["[" * 1000, '\\"' + "{" * 1000, "\\\\" * 7 + '\\"' + "[" * 1000])
def test_brackets_in_a_text_are_not_nested(inside: str) -> None:
    assert not is_refused(b'{"text":"%b"}' % inside.encode(), 1)
    assert is_refused(b'{"text":"%b","data":[]}' % inside.encode(), 1)


def test_depth_is_counted_across_a_large_text() -> None:
    wide = b"[" + b"[]," * 100_000 + b"1]"
    assert not is_refused(wide, 2)
    deep = b"[" * 60 + b"[]," * 100_000 + b"[[]]" + b"]" * 60
    assert not is_refused(deep, 62)
    assert is_refused(deep, 61)


# Values


def values_of(value: Any) -> int:
    """Commas and opening brackets: what is between them is a value."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(values_of, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(values_of, value))
    return 0


@given(
    st.recursive(
        st.none() | st.text(alphabet='[]{},"\\a/'),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{},"\\a'), inner),
        max_leaves=40,
    ),
    st.integers(1, 40),
    st.integers(3, 20),
)
def test_exactly_what_has_more_values_is_refused_wherever_it_is_cut(value: Any, limit: int, piece: int) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    limits = JsonLimits(nesting=1000, values=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_limits, "_CHUNK", piece)
        if values_of(value) > limit:
            with pytest.raises(InvalidParams, match=f"the body has more than {limit} values") as caught:
                limits.check(text)
            assert caught.value.metadata == {"limit": "values"}
        else:
            assert limits.check(text) >= values_of(value)


def test_commas_in_a_text_are_no_values() -> None:
    table = b'{"text":"%b"}' % (b"1,2,3\\n" * 100_000)
    assert JsonLimits(values=1000).check(table) == 1


@pytest.mark.parametrize(
    "names", [("message", "parts"), ("request", "content")], ids=["1.0 and 0.3", "0.3 in protobuf"]
)
def test_parts_are_counted_before_they_are_decoded(names: tuple[str, str]) -> None:
    outer, inner = names
    limits = JsonLimits(parts=3)

    def request(parts: int) -> bytes:
        # Objects in data are no parts, and what is no list is left to its reader.
        part = {"data": [{}, {}, {}, {}]}
        return json.dumps({outer: {inner: [part] * parts, "metadata": 3}, "parts": [{}] * 9}).encode()

    limits.check(request(3))
    with pytest.raises(InvalidParams, match="a message has 3 parts at most, not 4") as caught:
        limits.check(request(4))
    assert (caught.value.field, caught.value.metadata) == ("message.parts", {"limit": "parts"})


@pytest.mark.parametrize(
    "text", [b"{{{{{", b'{"message":[{},{},{},{}]}', b'{"message":{"parts":{"a":{},"b":{},"c":{}}}}']
)
def test_what_has_no_parts_is_left_to_its_reader(text: bytes) -> None:
    JsonLimits(parts=1).check(text)
