"""Words that are typed, read by the schemas of an agent's skills; and schemas that are not to be had."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import MCPServer

from dragoman import Agent, Client, Context
from dragoman.client.skill_schema import fetch_schemas, parse_argument
from dragoman.model.card import SKILL_SCHEMAS
from dragoman.net.exchange import HttpRequest, HttpResponse
from dragoman.testing import served

ROOT = {
    "type": "object",
    "properties": {
        "integer": {"type": "integer"},
        "number": {"type": "number"},
        "boolean": {"type": "boolean"},
        "string": {"type": "string"},
        "array": {"type": "array", "items": {"type": "integer"}},
        "object": {"type": "object"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "listed": {"type": ["boolean", "array"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "level": {"enum": [1, "high", True, None]},
        "fixed": {"const": 3},
        "day": {"$ref": "#/$defs/of~1the~0day"},
        "loop": {"$ref": "#/$defs/loop"},
        "elsewhere": {"$ref": "https://example.com/schema.json"},
        "anything": True,
        "typeless": {"description": "whatever"},
        "strange": {"type": 7, "enum": "no list", "anyOf": {}},
    },
    "$defs": {
        "of/the~day": {"type": "integer"},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "number"}]},
    },
}
SCHEMAS = {"tool": {"inputSchema": ROOT}}


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        ("integer", "3", 3),
        ("integer", "3.0", 3),
        ("integer", "3.5", "3.5"),
        ("integer", "three", "three"),
        ("integer", "true", "true"),
        ("number", "3", 3),
        ("number", "3.5", 3.5),
        ("number", "1e3", 1000.0),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", "1", "1"),
        ("string", "3", "3"),
        ("string", "true", "true"),
        ("array", "[1, 2]", [1, 2]),
        ("array", "1, 2", "1, 2"),
        ("array", "{}", "{}"),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("object", "\udcff", "\udcff"),
        ("object", "[" * 5000, "[" * 5000),
        ("maybe", "3", 3),
        ("maybe", "null", None),
        ("maybe", "none", "none"),
        ("listed", "[true]", [True]),
        ("listed", '["True"]', ["True"]),
        ("either", "3", "3"),
        ("level", "1", 1),
        ("level", "high", "high"),
        ("level", "true", True),
        ("level", "null", None),
        ("level", "low", "low"),
        ("fixed", "3", 3),
        ("day", "3", 3),
        ("loop", "3", 3),
        ("elsewhere", "3", "3"),
        ("anything", "3", "3"),
        ("typeless", "3", "3"),
        ("strange", "3", "3"),
        ("unknown", "3", "3"),
    ],
)
def test_a_word_is_read_as_its_schema_wants_it(argument: str, text: str, value: Any) -> None:
    read = parse_argument(text, SCHEMAS, "tool", argument)
    assert (read, type(read)) == (value, type(value))


@given(st.text(), st.sampled_from(sorted(ROOT["properties"])))
def test_what_does_not_fit_stays_a_word(text: str, argument: str) -> None:
    read = parse_argument(text, SCHEMAS, "tool", argument)
    assert read == text or not isinstance(read, str)


@pytest.mark.parametrize(
    "schemas", [{}, {"tool": 3}, {"tool": {"inputSchema": []}}, {"tool": {"inputSchema": {"properties": 1}}}]
)
def test_without_a_schema_a_word_is_a_word(schemas: dict[str, Any]) -> None:
    assert parse_argument("3", schemas, "tool", "integer") == "3"


def _referring(inner: Any) -> dict[str, Any]:
    root = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": inner}}
    return {"tool": {"inputSchema": root}}


@pytest.mark.timeout(10)
def test_a_schema_that_refers_to_itself_keeps_nobody_waiting() -> None:
    itself = {"$ref": "#/$defs/x"}
    schemas = _referring({"anyOf": [*([itself] * 9), {"anyOf": [itself, {"type": "integer"}]}]})
    assert parse_argument("3", schemas, "tool", "a") == 3
    assert parse_argument("3", _referring(itself), "tool", "a") == "3"


@pytest.mark.timeout(10)
def test_a_schema_with_very_many_places_keeps_nobody_waiting() -> None:
    many = {"type": "integer", "anyOf": [{"anyOf": [{"type": "integer"} for _ in range(300)]} for _ in range(300)]}
    assert parse_argument("3", _referring(many), "tool", "a") == 3
    far = {"type": "integer", "anyOf": [{"$ref": "#" + "/a" * 500_000} for _ in range(500)]}
    assert parse_argument("3", _referring(far), "tool", "a") == 3


def test_the_first_of_equal_choices_is_taken() -> None:
    schemas = _referring({"anyOf": [{"enum": ["3", 4]}, {"$ref": "#/$defs/x"}, {"const": 3}]})
    assert parse_argument("3", schemas, "tool", "a") == "3"
    assert parse_argument("4", schemas, "tool", "a") == 4


# -- where they come from ----------------------------------------------------------------------------------------------


def adding() -> Agent:
    server = MCPServer("adder", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return Agent.from_mcp(server, name="adder")


class Watching:
    """What is asked for on the way, with headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []

    async def __call__(
        self, request: HttpRequest, call_next: Callable[[HttpRequest], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        self.seen.append((request.url, dict(request.headers)))
        return await call_next(request)


async def test_they_are_read_where_the_card_says_with_the_client_s_credentials() -> None:
    watching = Watching()
    with served(adding()) as url:
        async with Client(url, auth="a-token", interceptors=[watching]) as client:
            found = await fetch_schemas(client)
    assert found["add"]["inputSchema"]["required"] == ["a", "b"]
    (card, anonymous), (schemas, headers) = watching.seen
    assert (card, schemas) == (f"{url}/.well-known/agent-card.json", f"{url}/.well-known/skill-schemas.json")
    assert "Authorization" not in anonymous
    assert headers["Authorization"] == "Bearer a-token"


@pytest.mark.parametrize("headers", [None, {"X-Team": "blue"}], ids=["in-process", "asgi"])
async def test_of_an_agent_in_this_process_they_are_at_hand(headers: dict[str, str] | None) -> None:
    async with Client(adding(), headers=headers) as client:
        assert list(await fetch_schemas(client)) == ["add"]


async def test_an_agent_without_the_extension_is_not_asked_for_any() -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        yield ctx.text

    watching = Watching()
    with served(Agent("plain", run=run)) as url:
        async with Client(url, interceptors=[watching]) as client:
            assert await fetch_schemas(client) == {}
    assert [url for url, _ in watching.seen] == [f"{url}/.well-known/agent-card.json"]


async def test_a_card_may_hold_them_itself() -> None:
    card = named("http://127.0.0.1:9", {"schemas": SCHEMAS})
    async with Client(card) as client:
        assert await fetch_schemas(client) == SCHEMAS


def named(base: str, params: Any) -> dict[str, Any]:
    """A card that says this of its schemas."""
    return {
        **{"name": "n", "description": "d", "version": "1", "skills": []},
        "capabilities": {"extensions": [{"uri": SKILL_SCHEMAS, "params": params}]},
        "supportedInterfaces": [{"url": base, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        **{"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]},
    }


class Place:
    """A server that answers everything alike and counts."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body, self.asked = status, body, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.asked += 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        with suppress(OSError):  # who has read enough leaves
            await send({"type": "http.response.body", "body": self.body})


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"{}"),
        (401, b"{}"),
        (500, b"{}"),
        (302, b""),
        (200, b"<html>"),
        (200, b"\xff\xfe"),
        (200, b"[1]"),
        (200, b'{"tool": "' + b"x" * (4 * 1024 * 1024) + b'"}'),
    ],
)
async def test_schemas_that_cannot_be_had_are_none(status: int, body: bytes) -> None:
    place = Place(status, body)
    with served(place) as url:
        async with Client(named(url, {"url": f"{url}/schemas"})) as client:
            assert await fetch_schemas(client) == {}
    assert place.asked == 1


async def test_nothing_is_read_from_another_origin() -> None:
    place = Place(200, b'{"tool": {}}')
    with served(place) as theirs:
        async with Client(named("http://127.0.0.1:9", {"url": f"{theirs}/schemas"})) as client:
            assert await fetch_schemas(client) == {}
    assert place.asked == 0


@pytest.mark.parametrize("params", [None, {}, {"url": 3}, {"url": "no address"}, {"schemas": [1]}])
async def test_a_card_that_says_nothing_useful_of_them_has_none(params: Any) -> None:
    async with Client(named("http://127.0.0.1:9", params)) as client:
        assert await fetch_schemas(client) == {}
