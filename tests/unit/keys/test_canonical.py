"""Canonical JSON, with the numbers and texts that RFC 8785 gives."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.keys.canonical import MAX_DEPTH, canonical, format_number

# RFC 8785, appendix B: the bits of a double, and its text.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, text: str):
    assert format_number(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_a_number_that_is_not_finite_has_no_canonical_form(bits: str):
    with pytest.raises(ValueError, match="is not JSON"):
        canonical(struct.unpack(">d", bytes.fromhex(bits))[0])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_double_reads_back_as_that_double(value: float):
    assert float(format_number(value)) == value


def test_the_sample_of_the_rfc_comes_out_byte_by_byte():
    # RFC 8785, 3.2.2 and 3.2.4.
    given = r"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    wanted = (
        r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + r"'" + r'B\"\\\\\"/"}'
    )
    assert canonical(json.loads(given)) == wanted.encode()


def test_keys_are_ordered_by_utf_16_code_units():
    # RFC 8785, 3.2.3.
    given = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    assert list(json.loads(canonical(given)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


def test_only_what_must_be_escaped_is_escaped():
    text = "".join(map(chr, range(0x20))) + '"\\/\x7f\u2028é😀'
    wanted = (
        r'"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f'
        r"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f"
        '\\"\\\\/\x7f\u2028é😀"'
    )
    assert canonical(text) == wanted.encode()


def test_numbers_that_are_one_double_have_one_spelling():
    assert canonical([1, 1.0, 1e0, -0.0, 100, 1e2]) == b"[1,1,1,0,100,100]"


@pytest.mark.parametrize("value", [2**53, -(2**53), 10**30])
def test_a_whole_number_that_a_double_cannot_tell_from_its_neighbor_is_refused(value: int):
    with pytest.raises(ValueError, match="2\\^53"):
        canonical({"n": value})


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, {1: 2}, {"a": object()}, [{1, 2}], b"x"])
def test_what_is_not_json_has_no_canonical_form(value: Any):
    with pytest.raises(ValueError, match=r"surrogates|is not JSON|not text"):
        canonical(value)


def test_nesting_ends_somewhere():
    def nested(levels: int) -> list[Any]:
        inner: list[Any] = []
        for _ in range(levels - 1):
            inner = [inner]
        return inner

    assert canonical(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    for levels in (MAX_DEPTH + 1, 50_000):
        with pytest.raises(ValueError, match="128 levels"):
            canonical(nested(levels))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_canonical_json_reads_back_and_is_its_own_canonical_form(value: Any):
    text = canonical(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text
