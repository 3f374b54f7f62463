"""From a message to the arguments of a function; what is missing is asked for."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from dragoman import Part
from dragoman.engine.call import CallContext
from dragoman.model.state import State


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class City(TypedDict):
    name: str


class Trip(msgspec.Struct):
    city: str
    days: int = 1


class Model(pydantic.BaseModel):
    city: str
    days: int = pydantic.Field(ge=1)


def data(**arguments: Any) -> tuple[Part, ...]:
    return (Part(data=arguments),)


# Conversion


@pytest.mark.parametrize(
    ("wanted", "given", "received"),
    [
        (int, 3, 3),
        (int, "3", 3),
        (float, 3, 3.0),
        (float, "2.5", 2.5),
        (bool, "true", True),
        (str, "x", "x"),
        (list[int], [1, 2], [1, 2]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Literal["a", "b"], "a", "a"),
        (Point, {"x": 1}, Point(1)),
        (City, {"name": "Porto"}, {"name": "Porto"}),
        (Trip, {"city": "Porto"}, Trip("Porto")),
        (Model, {"city": "Porto", "days": 2}, Model(city="Porto", days=2)),
        (int | None, None, None),
        (list[Point], [{"x": 1}], [Point(1)]),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
    ids=str,
)
async def test_arguments_arrive_as_the_type_they_have(start_skill: Any, wanted: Any, given: Any, received: Any) -> None:
    got: list[Any] = []

    async def f(value: Any) -> None:
        got.append(value)

    f.__annotations__["value"] = wanted
    engine = await start_skill(f)
    task = await engine.send(None, parts=data(value=given))
    assert task.state is State.COMPLETED, task.status
    assert got == [received]
    assert type(got[0]) is type(received)


async def test_missing_arguments_have_their_defaults(start_skill: Any) -> None:
    async def f(a: int, b: int = 2, c: int | None = None) -> list[Any]:
        return [a, b, c]

    engine = await start_skill(f)
    assert (await engine.send(None, parts=data(a=1))).data == [1, 2, None]
    assert (await engine.send(None, parts=data(a=1, c=3))).data == [1, 2, 3]


# Text


async def test_text_fills_the_only_string_that_is_empty(start_skill: Any) -> None:
    async def f(city: str, days: int = 1, mood: str = "calm") -> list[Any]:
        return [city, days, mood]

    engine = await start_skill(f)
    assert (await engine.send("Porto")).data == ["Porto", 1, "calm"]
    assert (await engine.send("Porto", parts=data(days=2))).data == ["Porto", 2, "calm"]
    assert (await engine.send("wild", parts=data(city="Porto"))).data == ["Porto", 1, "wild"]
    assert (await engine.send("ignored", parts=data(city="Porto", mood="gay"))).data == ["Porto", 1, "gay"]


async def test_text_fills_nothing_when_two_strings_are_empty(start_skill: Any) -> None:
    async def f(one: str, two: str) -> str:
        return f"{one} {two}"

    engine = await start_skill(f)
    task = await engine.send("hello")
    assert task.question == "`f` needs `one` (text)."


# What is missing or wrong


async def test_missing_arguments_are_asked_for_one_by_one_by_name_and_type(start_skill: Any) -> None:
    async def f(a: int, b: Annotated[float, "in meters"], c: Literal["x", "y"], d: Point, e: bool) -> list[Any]:
        return [a, b, c, d, e]

    engine = await start_skill(f)
    task = await engine.send(None, parts=data())
    questions = []
    for answer in ("1", "2.5", "y", '{"x": 3}', "yes"):
        questions.append(task.question)
        task = await engine.send(answer, task=task)
    assert questions == [
        "`f` needs `a` (a whole number).",
        "`f` needs `b` (a number): in meters.",
        "`f` needs `c` (one of x, y).",
        "`f` needs `d` (a JSON object with x, y).",
        "`f` needs `e` (yes or no).",
    ]
    assert task.data == [1, 2.5, "y", {"x": 3, "y": 0}, True]


async def test_a_wrong_argument_is_asked_for_again_saying_what_is_wrong(start_skill: Any) -> None:
    async def f(a: int, b: int) -> int:
        return a + b

    engine = await start_skill(f)
    task = await engine.send(None, parts=data(a="many", b=2))
    assert task.question.startswith("`f` needs `a` (a whole number).")
    assert task.question.endswith("(a whole number). What was sent does not fit.")
    task = await engine.send("still many", task=task)
    assert task.question.endswith("Please answer with a whole number.")
    task = await engine.send("3", task=task)
    assert task.value == 5


async def test_an_answer_may_be_data(start_skill: Any) -> None:
    async def f(point: Point, n: int) -> list[Any]:
        return [point, n]

    engine = await start_skill(f)
    task = await engine.send(None, parts=data())
    task = await engine.send(None, parts=data(x=1, y=2), task=task)
    task = await engine.send(None, parts=data(n=5), task=task)  # a form with one field
    assert task.data == [{"x": 1, "y": 2}, 5]


@pytest.mark.parametrize(
    ("given", "problem"), [({}, "`f` needs `a` (a whole number)."), ({"a": "x"}, "What was sent does not fit.")]
)
async def test_a_caller_who_cannot_be_asked_gets_a_failed_task(start_skill: Any, given: Any, problem: str) -> None:
    async def f(a: int) -> int:
        return a

    engine = await start_skill(f)
    task = await engine.send(None, parts=data(**given), call=CallContext(asks=False))
    assert task.state is State.FAILED
    assert problem in task.error


async def test_an_unknown_argument_fails_naming_what_there_is(start_skill: Any) -> None:
    async def f(a: int, b: int = 0) -> int:
        return a

    engine = await start_skill(f)
    task = await engine.send(None, parts=data(a=1, c=2))
    assert task.error == "`f` has no argument `c`: it takes a, b"

    async def none() -> None: ...

    engine = await start_skill(none)
    assert (await engine.send(None, parts=data(c=2))).error == "`none` has no argument `c`: it takes no arguments"


async def test_a_pydantic_model_says_what_is_wrong_with_it(start_skill: Any) -> None:
    async def f(trip: Model) -> Model:
        return trip

    engine = await start_skill(f)
    task = await engine.send(None, parts=data(trip={"city": "Porto", "days": 0}))
    assert "greater than or equal to 1" in task.question
    task = await engine.send(None, parts=(Part(data={"city": "Porto", "days": 2}),), task=task)
    assert task.data == {"city": "Porto", "days": 2}


async def test_limits_of_an_annotation_count(start_skill: Any) -> None:
    async def f(n: Annotated[int, "how many", msgspec.Meta(ge=1, le=9)]) -> int:
        return n

    engine = await start_skill(f)
    task = await engine.send(None, parts=data(n=0))
    assert task.state is State.INPUT_REQUIRED
    assert (await engine.send("9", task=task)).value == 9
