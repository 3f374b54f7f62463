"""Reading what a caller said as the type that is wanted."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec
import pytest

from dragoman.schema.conversion import TypeMismatch, convert, read_answer


@dataclasses.dataclass(frozen=True)
class Inner:
    a: int = 1


@dataclasses.dataclass
class Outer:
    inner: Inner
    more: list[Inner] = dataclasses.field(default_factory=list)
    x: int = 0


class Holder(msgspec.Struct):
    outer: Outer


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("3", int, 3),
        (" 3 ", int, 3),
        ("2.5", float, 2.5),
        ("yes", bool, True),
        ("N", bool, False),
        ("OK", bool, True),
        ("off", bool, False),
        ("true", bool, True),
        ("[1, 2]", list[int], [1, 2]),
        ('{"a": 1}', dict[str, int], {"a": 1}),
        ("a", Literal["a", "b"], "a"),
        ("2", Literal[1, 2], 2),
        ("null", int | None, None),
        (" as it is ", str, " as it is "),
    ],
)
def test_text_is_read_as_the_type(text: str, wanted: Any, value: Any) -> None:
    found = read_answer(text, None, wanted, None)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "wanted", "says"),
    [
        ("many", int, "a whole number"),
        ("3.5", int, "a whole number"),
        ("perhaps", bool, "yes or no"),
        ("", int, "a whole number"),
        ("{", dict[str, int], "a JSON object"),
        ('["a"]', list[int], "a JSON list"),
        ("c", Literal["a", "b"], "one of a, b"),
    ],
)
def test_text_that_does_not_fit_says_what_would(text: str, wanted: Any, says: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        read_answer(text, None, wanted, None)
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("data", "wanted", "value"),
    [
        (3, int, 3),
        ("3", int, 3),
        ({"days": 3}, int, 3),
        ({"a": 1}, dict[str, int], {"a": 1}),
        ("text", str, "text"),
        ({"a": 1}, str, '{"a":1}'),
        (False, bool, False),
        (0, int, 0),
    ],
)
def test_data_is_read_as_the_type(data: Any, wanted: Any, value: Any) -> None:
    assert read_answer("", data, wanted, None) == value


def test_data_that_does_not_fit_is_refused() -> None:
    for data in ({"a": "x"}, {"a": 1, "b": 2}, [1]):
        with pytest.raises(TypeMismatch):
            read_answer("", data, int, None)


def test_text_goes_before_data_when_text_is_wanted() -> None:
    assert read_answer("said", {"a": 1}, str, None) == "said"


def test_choices_are_found_by_text_and_by_value() -> None:
    assert read_answer("BUS", None, str, ["Train", "Bus"]) == "Bus"
    assert read_answer("2", None, int, [1, 2]) == 2
    assert read_answer("", 2, int, [1, 2]) == 2
    with pytest.raises(TypeMismatch, match="one of 1, 2"):
        read_answer("3", None, int, [1, 2])


def test_defaults_of_dataclasses_are_part_of_them_however_deep() -> None:
    value = convert({"outer": {"inner": {}, "more": [{}]}}, Holder)
    assert value == Holder(Outer(Inner(), [Inner()]))
    assert msgspec.to_builtins(value) == {"outer": {"inner": {"a": 1}, "more": [{"a": 1}], "x": 0}}
