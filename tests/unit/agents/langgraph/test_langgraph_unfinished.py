"""A thread that a canceled, failed or waiting task has left in the middle of its work goes on with the next message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt

from dragoman import Agent, State
from dragoman.agents.langgraph.run import LangGraphRuns
from dragoman.server.agent.base import Backend


class Desk:
    """Calls its tools for the first message, and tells for every other which messages it knows."""

    def __init__(self, *tools: Any, apart: bool = False) -> None:
        self._tools = tools
        builder = StateGraph(MessagesState)
        builder.add_node("talk", self._talk)
        builder.add_node("work", ToolNode(list(tools)))
        builder.add_edge(START, "talk")
        builder.add_conditional_edges("talk", self._apart if apart else self._next, ["work", END])
        builder.add_edge("work", "talk")
        runs = LangGraphRuns(builder.compile(checkpointer=InMemorySaver()))
        self.agent = Agent("desk", Backend(runs.run, canceled=runs.canceled))

    async def _talk(self, state: MessagesState) -> dict[str, Any]:
        messages = state["messages"]
        if len(messages) > 1:
            return {"messages": [AIMessage(", ".join(f"{each.type} {each.text}".strip() for each in messages))]}
        calls = [{"name": each.name, "args": {}, "id": each.name} for each in self._tools]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    def _next(self, state: MessagesState) -> str:
        return "work" if state["messages"][-1].tool_calls else END

    def _apart(self, state: MessagesState) -> Any:
        """Every call is a step of its own, as in the agents that LangGraph makes."""
        return [Send("work", [{**call, "type": "tool_call"}]) for call in state["messages"][-1].tool_calls] or END


@tool
async def ask() -> str:
    """Ask."""
    return interrupt("Sure?")


@tool
async def quick() -> str:
    """Be done at once."""
    return "quick result"


@pytest.mark.parametrize("cancel", [True, False], ids=["canceled", "left waiting"])
async def test_calls_that_nobody_will_answer_are_answered(start: Any, cancel: bool) -> None:
    engine = await start(Desk(ask).agent)
    task = await engine.send("first", context="c")
    assert task.question == "Sure?"
    if cancel:
        await engine.cancel(task)
    task = await engine.send("second", context="c")
    assert task.text == "human first, ai, tool canceled, human second"
    # Once is enough.
    assert (await engine.send("third", context="c")).text.count("canceled") == 2


async def test_results_beside_a_canceled_question_are_canceled(start: Any) -> None:
    engine = await start(Desk(ask, quick, apart=True).agent)
    task = await engine.send("first", context="c")
    assert task.question == "Sure?"
    await engine.cancel(task)
    task = await engine.send("second", context="c")
    assert task.text == "human first, ai, tool canceled, tool canceled, human second"


async def test_a_tool_that_was_stopped_has_an_answer_too(start: Any) -> None:
    begun = asyncio.Event()

    @tool
    async def slow() -> str:
        """Take long."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    engine = await start(Desk(slow).agent)
    task = await engine.send("first", context="c", wait=False)
    await begun.wait()
    assert (await engine.cancel(task)).state is State.CANCELED
    await engine.idle()
    assert (await engine.send("second", context="c")).text == "human first, ai, tool canceled, human second"
