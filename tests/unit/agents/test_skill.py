"""A function as a skill: what its signature says."""

from __future__ import annotations

import dataclasses
import datetime
import re
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest

from dragoman import Agent, Context
from dragoman.agents.functions.skill import FunctionKind, read_skill
from dragoman.errors import ConfigError
from dragoman.outputs import Reply
from dragoman.sync import Context as SyncContext


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class City(TypedDict):
    name: str


class Trip(msgspec.Struct):
    city: str


class Model(pydantic.BaseModel):
    city: str


# What is read


def test_name_description_and_facts_come_from_the_function() -> None:
    def add_numbers(a: int, b: int = 2) -> int:
        """Add two numbers.

        Really.
        """
        return a + b

    skill = read_skill(add_numbers)
    assert (skill.id, skill.name) == ("add_numbers", "add_numbers")
    assert skill.description == "Add two numbers.\n\nReally."
    assert [(p.name, p.type, p.required) for p in skill.parameters] == [("a", int, True), ("b", int, False)]
    assert skill.context_parameter is None
    assert (skill.default, skill.restart, skill.permission, skill.timeout) == (False, False, None, None)
    card = skill.card()
    assert (card.id, card.name, card.description, card.tags) == ("add_numbers", "add_numbers", skill.description, ())


def test_options_replace_what_the_function_says() -> None:
    def f() -> None: ...

    skill = read_skill(f, id="i", name="n", description="d", tags=["t"], examples=["e"], default=True, restart=True)
    assert (skill.id, skill.name, skill.description) == ("i", "n", "d")
    assert (skill.tags, skill.examples, skill.default, skill.restart) == (("t",), ("e",), True, True)
    assert read_skill(f, id="i").name == "i"
    assert read_skill(f).card().description == "f"  # a card needs one


def test_any_json_type_can_be_a_parameter() -> None:
    def f(
        a: str,
        b: int,
        c: float,
        d: bool,
        e: dict[str, Any],
        f: list[int],
        g: Literal["x", "y"],
        h: Point,
        i: City,
        j: Trip,
        k: Model,
        l: Optional[int] = None,  # noqa: UP045, E741
        m: int | None = None,
    ) -> None: ...

    skill = read_skill(f)
    assert [parameter.name for parameter in skill.parameters] == list("abcdefghijklm")
    assert [parameter.required for parameter in skill.parameters] == [True] * 11 + [False] * 2


def test_help_is_taken_from_annotated_and_limits_stay() -> None:
    def f(
        a: Annotated[int, "how many"], b: Annotated[int, "few", msgspec.Meta(le=3)], c: Annotated[str, 1]
    ) -> None: ...

    a, b, c = read_skill(f).parameters
    assert (a.type, a.help) == (int, "how many")
    assert (b.type, b.help) == (Annotated[int, msgspec.Meta(le=3)], "few")
    assert c.help == ""


def test_the_context_is_no_parameter() -> None:
    async def on_loop(a: int, ctx: Context) -> None: ...
    def in_thread(anything: SyncContext, a: int) -> None: ...

    assert (read_skill(on_loop).context_parameter, read_skill(on_loop).takes_sync_context) == ("ctx", False)
    assert (read_skill(in_thread).context_parameter, read_skill(in_thread).takes_sync_context) == ("anything", True)
    for function in (on_loop, in_thread):
        assert [parameter.name for parameter in read_skill(function).parameters] == ["a"]


def test_how_a_function_is_called_is_known() -> None:
    async def coroutine() -> None: ...
    async def generator() -> Any:
        yield

    def plain() -> None: ...
    def sync_generator() -> Any:
        yield

    functions = (coroutine, generator, plain, sync_generator)
    kinds = [FunctionKind.COROUTINE, FunctionKind.ASYNC_GENERATOR, FunctionKind.FUNCTION, FunctionKind.GENERATOR]
    assert [read_skill(function).kind for function in functions] == kinds


def test_a_skill_that_may_reply_says_so() -> None:
    class Message:
        Reply = str  # as a protobuf class may have one

    def annotated() -> Reply: ...
    def in_a_union() -> str | Reply: ...
    async def streamed() -> AsyncIterator[str | Reply]:
        yield Reply("x")

    def only_in_the_code():
        return Reply("x")

    def by_name_alone() -> str:
        return Message.Reply("x")

    functions = (annotated, in_a_union, streamed, only_in_the_code, by_name_alone)
    assert [read_skill(function).may_reply for function in functions] == [True] * 3 + [False] * 2
    assert read_skill(only_in_the_code, replies=True).may_reply


# What is refused, in words that teach


def test_a_parameter_without_a_type_is_refused_with_what_to_write() -> None:
    def greet(name, times: int) -> str:
        return name * times

    with pytest.raises(ConfigError) as caught:
        Agent("test").skill(greet)
    text = str(caught.value)
    assert "skill `greet`" in text
    assert "parameter `name` has no type" in text
    assert "write `name: str`" in text


@pytest.mark.parametrize("kind", ["*args", "**kwargs", "positional"])
def test_parameters_that_have_no_name_to_fill_are_refused(kind: str) -> None:
    def args(*args: int) -> None: ...
    def kwargs(**kwargs: int) -> None: ...
    def positional(a: int, /) -> None: ...

    function = {"*args": args, "**kwargs": kwargs, "positional": positional}[kind]
    with pytest.raises(ConfigError, match="cannot be filled by name"):
        read_skill(function)


def test_the_wrong_context_is_refused_with_the_right_one() -> None:
    async def on_loop(ctx: SyncContext) -> None: ...
    def in_thread(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match=r"annotate `ctx` as dragoman\.Context: async skills"):
        read_skill(on_loop)
    with pytest.raises(ConfigError, match=r"annotate `ctx` as dragoman\.sync\.Context: def skills"):
        read_skill(in_thread)


def test_a_type_that_is_not_known_is_refused() -> None:
    def f(a: Missing) -> None: ...  # noqa: F821

    with pytest.raises(ConfigError, match=r"a type is not known at import: .*Missing"):
        read_skill(f)


class Client:
    """A class that has no JSON form."""


@dataclasses.dataclass
class Holder:
    client: Client


@pytest.mark.parametrize(
    "annotation",
    [socket.socket, list[socket.socket], dict[str, socket.socket], socket.socket | None, tuple[int, socket.socket]],
)
def test_a_parameter_of_a_type_without_a_json_form_is_refused_with_what_to_use(annotation: Any) -> None:
    def fetch(url: str, connection: Any = None) -> None: ...

    fetch.__annotations__["connection"] = annotation
    with pytest.raises(ConfigError) as caught:
        Agent("fetcher").skill(fetch)
    text = str(caught.value)
    assert text.startswith("skill `fetch`: parameter `connection`: no caller can send a `socket.socket`")
    assert "use str, int, float, bool, list, dict, an Enum, a dataclass" in text
    assert "create the `socket.socket` in the function" in text


@pytest.mark.parametrize("annotation", [Client, Holder, Callable[[], int], re.Pattern, Point | City])
def test_no_other_type_is_taken_that_nothing_in_json_can_be(annotation: Any) -> None:
    def fetch(value: Any) -> None: ...

    fetch.__annotations__["value"] = annotation
    with pytest.raises(ConfigError, match="skill `fetch`: parameter `value`: no caller can send"):
        read_skill(fetch)


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        Point,
        City,
        Trip,
        Model,
        Model | None,
        dict[str, Model],
        list[Point],
        int | str,
        Hashable,
        uuid.UUID,
        bytes,
        datetime.timedelta,
        Literal["a", 1],
        Annotated[int, msgspec.Meta(ge=0)],
        Mapping[str, int],
        FunctionKind,
    ],
)
def test_types_that_json_can_fill_are_taken_as_before(annotation: Any) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = annotation
    assert read_skill(take).parameters[0].type == annotation


def test_an_id_is_taken_once() -> None:
    agent = Agent("test")

    @agent.skill
    def one() -> None: ...

    with pytest.raises(ConfigError, match="there is a skill `one` already: give this one another id="):
        agent.skill(id="one")(lambda: None)
    assert [skill.id for skill in agent.skills] == ["one"]


def test_the_decorator_gives_the_function_back() -> None:
    agent = Agent("test")

    @agent.skill
    def one() -> int:
        return 1

    @agent.skill(id="second")
    def two() -> int:
        return 2

    assert (one(), two()) == (1, 2)
    assert [skill.id for skill in agent.skills] == ["one", "second"]


def test_a_description_without_its_keyword_is_answered_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"write Agent\('trip', description='Plans trips'\)"):
        Agent("trip", "Plans trips")  # pyright: ignore


def test_the_schema_has_defaults_the_author_s_order_of_choices_and_the_help_of_the_docstring() -> None:
    class Unsendable:
        pass

    def book(
        city: str,
        size: Literal["small", "large", "medium"] = "medium",
        tags: list[str] = ["a"],  # noqa: B006 - never changed
        until: datetime.date = datetime.date(2027, 1, 2),
        note: Annotated[str | None, "what the host should know"] = None,
        limit: float = Unsendable(),  # type: ignore[assignment]
    ) -> str:
        """Book a room.

        Args:
            city (str): where it is,
                with the country
            size: how large
            note: not what callers read: the annotation comes first
            other: nobody's
        """
        return city

    properties = read_skill(book).schemas()["inputSchema"]["properties"]
    assert properties["city"] == {"type": "string", "description": "where it is, with the country"}
    assert properties["size"] == {"enum": ["small", "large", "medium"], "description": "how large", "default": "medium"}
    assert properties["tags"]["default"] == ["a"] and properties["until"]["default"] == "2027-01-02"
    assert properties["note"]["default"] is None
    assert properties["note"]["description"] == "what the host should know"
    assert "default" not in properties["limit"]
