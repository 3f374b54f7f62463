"""Servers with very many tools, and tools that say very much: they keep nobody waiting, and fill no card."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import mcp_types as types
import pytest
from mcp.server import Server

from dragoman import Agent, State
from dragoman.agents.mcp_tools import bridge
from dragoman.schema.arguments import Schema
from dragoman.server.cards.cache import CARD, Cards

Start = Callable[..., Awaitable[Any]]
ADD = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def _tool(name: str, **about: Any) -> types.Tool:
    return types.Tool(name=name, input_schema=about.pop("input_schema", ADD), **about)


def _server(tools: list[types.Tool]) -> Server[Any]:
    async def listed(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def called(_context: Any, _params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text="done")])

    return Server("many", on_list_tools=listed, on_call_tool=called)


async def test_the_card_is_made_at_the_start_while_others_have_their_turn(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, waiting = 0, True
    at: list[int] = []
    example = Schema.example

    def counted(schema: Schema) -> dict[str, Any]:
        nonlocal made
        made += 1
        return example(schema)

    async def tick() -> None:
        while waiting:
            at.append(made)
            await asyncio.sleep(0)

    monkeypatch.setattr(Schema, "example", counted)
    agent = Agent.from_mcp(_server([_tool(f"tool_{number}") for number in range(300)]))
    ticking = asyncio.create_task(tick())
    await start(agent)
    waiting = False
    await ticking
    assert made == 300
    assert max(after - before for before, after in pairwise(at)) <= bridge.CARDS_PER_TURN

    served = Cards(agent, "both", 0)
    for host in ("http://a", "http://b"):  # the Host header is the caller's to choose
        assert served._build(CARD, "both", host, None, None).count(b'"tool_') >= 300
    assert made == 300


async def test_only_the_first_of_very_many_tools_have_an_example_on_the_card(
    start: Start, monkeypatch: pytest.MonkeyPatch, tool_part: Any
) -> None:
    monkeypatch.setattr(bridge, "MAX_EXAMPLES", 2)
    agent = Agent.from_mcp(_server([_tool(f"tool_{number}") for number in range(4)]))
    engine = await start(agent)
    assert [len(offer.card().examples) for offer in agent.skills] == [1, 1, 0, 0]
    task = await engine.send(None, parts=(tool_part("tool_3"),))
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "`tool_3` needs `a` (integer)")


async def test_what_has_not_changed_is_not_made_again(start: Start) -> None:
    tools = [_tool("first"), _tool("second"), _tool("third")]
    agent = Agent.from_mcp(_server(tools))
    await start(agent)
    before = {offer.id: offer for offer in agent.skills}
    tools[1] = _tool("second", description="other words")
    connection: Any = agent.tools._supervisors[0].connection  # type: ignore[union-attr]
    await connection._reload_tools()
    after = {offer.id: offer for offer in agent.skills}
    assert after["first"] is before["first"]
    assert after["third"] is before["third"]
    assert after["second"].description == "other words"


async def test_no_more_tools_are_served_than_can_be_handled(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bridge, "MAX_TOOLS", 3)
    agent = Agent.from_mcp(_server([_tool(f"tool_{number}") for number in range(5)]))
    with caplog.at_level(logging.WARNING):
        await start(agent)
    assert [offer.id for offer in agent.skills] == ["tool_0", "tool_1", "tool_2"]
    assert "many has 5 tools: the first 3 are served" in caplog.text


@pytest.mark.parametrize("pages", [3, 4])
async def test_that_not_all_pages_of_tools_are_read_is_logged(
    start: Start, pages: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.agents.mcp_tools.connection._MAX_PAGES", 3)

    async def listed(_context: Any, params: Any) -> types.ListToolsResult:
        page = int((params and params.cursor) or 1)
        more = None if page == pages else str(page + 1)
        return types.ListToolsResult(tools=[_tool(f"tool_{page}")], next_cursor=more)

    agent = Agent.from_mcp(Server("many", on_list_tools=listed))
    with caplog.at_level(logging.WARNING):
        await start(agent)
    assert [offer.id for offer in agent.skills] == ["tool_1", "tool_2", "tool_3"]
    left_out = "many lists its tools on more than 3 pages: the 3 tools of these are served, the others are left out"
    assert (left_out in caplog.text) is (pages > 3)


async def test_tools_whose_names_cannot_be_shown_are_left_out(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    names = ["good", "", "a\nb", "a\x1b]52;c;eA==\x07", "\u202eevil", "x" * 257, "y" * 256]
    agent = Agent.from_mcp(_server([_tool(name) for name in names]))
    with caplog.at_level(logging.WARNING):
        await start(agent)
    assert [offer.id for offer in agent.skills] == ["good", "y" * 256]
    assert "many: 5 tools are left out" in caplog.text


async def test_a_tool_that_says_very_much_is_cut_on_the_card(start: Start, tool_part: Any) -> None:
    much = {"type": "object", "description": "x" * 1_000_000, "properties": {"a": {"description": "y" * 1_000_000}}}
    tool = _tool("t", title="t" * 1_000_000, description="d" * 1_000_000, input_schema={**much, "required": ["a"]})
    agent = Agent.from_mcp(_server([tool]))
    engine = await start(agent)
    assert len(Cards(agent, "both", 0)._build(CARD, "both", "http://a", None, None)) < 100_000
    task = await engine.send(None, parts=(tool_part("t"),))
    assert len(task.question) < 300


@pytest.mark.parametrize("length", [5, 1_000_000])
async def test_a_name_that_is_not_known_is_compared_with_some_names_only(
    start: Start, tool_part: Any, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.agents.mcp_tools.tool._MAX_COMPARED", 10)
    compared: list[tuple[str, int]] = []

    def matches(word: str, names: list[str], _number: int) -> list[str]:
        compared.append((word, len(names)))
        return []

    monkeypatch.setattr("difflib.get_close_matches", matches)
    engine = await start(Agent.from_mcp(_server([_tool(f"tool_{number}") for number in range(30)])))
    task = await engine.send(None, parts=(tool_part("x" * length),))
    assert task.state is State.REJECTED
    assert compared == ([("xxxxx", 10)] if length == 5 else [])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["", "allOf", "anyOf", "properties"])
async def test_references_of_references_keep_nobody_waiting(start: Start, tool_part: Any, word: str) -> None:
    def place(number: int) -> dict[str, Any]:
        to = {"$ref": f"#/$defs/d{number + 1}"}
        return to if not word else {word: {"a": to} if word == "properties" else [to]}

    places = {f"d{number}": place(number) for number in range(1_300)} | {"d1300": {"type": "string"}}
    schema = {"type": "object", "$defs": places, "properties": {"x": {"$ref": "#/$defs/d0"}}, "required": ["x"]}
    engine = await start(Agent.from_mcp(_server([_tool("t", input_schema=schema)])))
    task = await engine.send(None, parts=(tool_part("t"),))
    assert task.question == "`t` needs `x`"
    assert (await engine.send(None, parts=(tool_part("t", x="y"),))).state is State.COMPLETED
