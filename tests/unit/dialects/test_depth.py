"""How deep JSON may be nested."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.depth import check_depth
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
        check_depth(text, limit)
    except InvalidParams:
        return True
    return False


@given(JSON, st.integers(0, 8), st.booleans())
def test_exactly_what_is_nested_deeper_is_refused(value: Any, limit: int, readable: bool) -> None:
    text = json.dumps(value, indent=2 if readable else None, ensure_ascii=False).encode()
    assert is_refused(text, limit) == (depth_of(value) > limit)


@given(st.binary(), st.integers(0, 3))
def test_what_is_no_json_raises_nothing_else(text: bytes, limit: int) -> None:
    assert is_refused(text, limit) in (True, False)


def test_the_error_names_the_field_and_the_limit() -> None:
    with pytest.raises(InvalidParams, match="params is nested deeper than 2") as caught:
        check_depth(b'{"a":[[1]]}', 2, "params")
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
