"""What callers send becomes what skills want, and what does not fit is named in their words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest

from dragoman.schema.conversion import TypeMismatch, convert, is_text_type, type_name


class Model(pydantic.BaseModel):
    a: int
    b: str = "x"


class Struct(msgspec.Struct):
    a: int


@dataclass
class Data:
    a: int


class Typed(TypedDict):
    a: int


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        (Model, {"a": 1}, Model(a=1)),
        (Model | None, {"a": 1}, Model(a=1)),
        (Optional[Model], None, None),  # noqa: UP045 - this spelling is a type of its own
        (list[Model], [{"a": 1}, {"a": "2"}], [Model(a=1), Model(a=2)]),
        (dict[str, Model], {"k": {"a": 1}}, {"k": Model(a=1)}),
        (Struct, {"a": 1}, Struct(1)),
        (Data, {"a": 1}, Data(1)),
        (Typed, {"a": 1}, {"a": 1}),
        (Color, "red", Color.RED),
        (Annotated[int, msgspec.Meta(ge=1)], "3", 3),
        (Any, [1], [1]),
    ],
)
def test_a_value_becomes_what_is_wanted(wanted: Any, value: Any, expected: Any) -> None:
    assert convert(value, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (int, "a whole number"),
        (int | None, "a whole number"),
        (int | str, "a whole number or text"),
        (Annotated[float, "help"], "a number"),
        (list[int], "a JSON list"),
        (dict[str, int], "a JSON object"),
        (Literal["a", "b"], "one of a, b"),
        (Color, "one of red, blue"),
        (Model, "a JSON object with a, b"),
        (list[Model], "a JSON list"),
        (Struct, "a JSON object with a"),
        (Data, "a JSON object with a"),
        (Typed, "a JSON object with a"),
    ],
)
def test_a_type_is_named_in_the_words_of_a_caller(wanted: Any, name: str) -> None:
    assert type_name(wanted) == name
    if wanted not in (int | str,):
        with pytest.raises(TypeMismatch, match=name.partition(" (")[0]):
            convert({"no": object}, wanted)


def test_text_is_what_text_can_fill() -> None:
    assert is_text_type(str)
    assert is_text_type(str | None)
    assert not is_text_type(int)
    assert not is_text_type(str | int)
