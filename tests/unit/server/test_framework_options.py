"""What the class methods for agents of other frameworks take reaches those frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agents as sdk
import pydantic_ai
import pytest
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from pydantic_ai.models.function import FunctionModel

from dragoman import Agent, Client
from dragoman.errors import ConfigError


@dataclass
class Shop:
    name: str


async def test_a_graph_gets_its_context_and_a_short_memory() -> None:
    async def talk(state: MessagesState, runtime: Runtime[Shop]) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{runtime.context.name} {len(state['messages'])}")]}

    builder = StateGraph(MessagesState, context_schema=Shop).add_node(talk).add_edge(START, "talk")
    agent = Agent.from_langgraph(builder.compile(), context=lambda ctx: Shop(ctx.text), memory=10)
    async with Client(agent) as client:
        assert [(await client.send(name, context="c")).text for name in ("Ada", "Bert")] == ["Ada 1", "Bert 1"]


async def test_an_agent_of_pydantic_ai_gets_a_short_memory() -> None:
    async def talk(messages: list[Any], info: Any) -> Any:
        yield str(len(messages))

    agent = Agent.from_pydantic_ai(pydantic_ai.Agent(FunctionModel(stream_function=talk)), memory=10)
    async with Client(agent) as client:
        assert [(await client.send("hi", context="c")).text for _ in range(2)] == ["1", "1"]


async def test_an_agent_of_the_openai_sdk_gets_what_the_sdk_takes(tmp_path: Path) -> None:
    seen: list[str] = []

    @sdk.function_tool
    async def look(run: sdk.RunContextWrapper[Shop]) -> str:
        seen.append(run.context.name)
        return "nothing"

    model = ScriptedModel([[function_call("look", {}, call_id="1")], [assistant_message("done")]])
    agent = Agent.from_openai(
        sdk.Agent(name="teller", tools=[look]),
        context=lambda ctx: Shop(ctx.text),
        session=lambda name: sdk.SQLiteSession(name, tmp_path / "sessions.db"),
        run_config=sdk.RunConfig(model=model),
        max_turns=2,
    )
    async with Client(agent) as client:
        task = await client.send("Ada", context="c")
    assert (task.text, seen) == ("done", ["Ada"])
    assert (tmp_path / "sessions.db").exists()


async def test_the_openai_sdk_may_take_as_many_turns_as_it_is_given() -> None:
    @sdk.function_tool
    async def look() -> str:
        return "nothing"

    model = ScriptedModel([[function_call("look", {}, call_id="1")], [assistant_message("done")]])
    teller = sdk.Agent(name="teller", model=model, tools=[look])
    async with Client(Agent.from_openai(teller, max_turns=1, memory=10)) as client:
        assert (await client.send("hi")).error == "the agent stopped: it took too many turns"


def test_sessions_of_the_openai_sdk_that_would_forget_are_refused() -> None:
    with pytest.raises(ConfigError, match="give it a file"):
        Agent.from_openai(sdk.Agent(name="teller"), session=sdk.SQLiteSession)
