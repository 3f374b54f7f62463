"""What the function of an agent gives to a model."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from dragoman import Agent, Client, File, Part
from dragoman.outputs import Reply
from dragoman.sync import Client as SyncClient

ANSWERS: dict[str, tuple[list[Any], str]] = {
    "text": (["sunny"], "sunny"),
    "text and data": (["sunny", {"temp": 21}], "sunny"),
    "data": ([{"city": "London", "temp": 21}], '{"city":"London","temp":21}'),
    "several data": ([{"a": 1}, {"b": 2}], '{"a":1}\n{"b":2}'),
    "a number": ([42], "42"),
    "a file": (
        [File(b"1", name="map.png", media_type="image/png")],
        "The agent has sent files: map.png (image/png)",
    ),
    "files": (
        [Part(url="https://example.com/a.pdf"), b"1"],
        "The agent has sent files: https://example.com/a.pdf, without a name (application/octet-stream)",
    ),
    "nothing": ([], ""),
}


@pytest.mark.parametrize(("outputs", "text"), ANSWERS.values(), ids=ANSWERS)
async def test_it_gives_the_text_else_the_data_else_the_names_of_files(outputs: list[Any], text: str) -> None:
    async def run(ctx: Any) -> Any:
        for output in outputs:
            yield output

    async with Client(Agent("weather", run=run)) as client:
        assert await client.as_tool()("how is it?") == text
    with SyncClient(Agent("weather", run=run)) as client:
        assert client.as_tool()("how is it?") == text


async def test_a_bare_message_is_read_in_the_same_way() -> None:
    async def run(ctx: Any) -> Any:
        yield Reply({"temp": 21})

    async with Client(Agent("weather", run=run)) as client:
        assert await client.as_tool()("how is it?") == '{"temp":21}'


async def test_a_tool_is_for_schemas_that_are_not_strict() -> None:
    agents = pytest.importorskip("agents")
    agent = Agent("desk")

    @agent.skill
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async with Client(agent) as client:
        function = client.as_tool(tool="add")
        assert inspect.signature(function).parameters["arguments"].annotation == dict[str, Any]
        with pytest.raises(agents.UserError):
            agents.function_tool(function)
        made = agents.function_tool(function, strict_mode=False)
        assert made.params_json_schema["properties"]["arguments"]["type"] == "object"
        assert await function({"a": 20, "b": 22}) == 42
