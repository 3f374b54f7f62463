"""A LangGraph graph answers, remembers, is canceled and fails as an A2A agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict
from unit.agents.langgraph.graphs import chain, model_of, served, within

from dragoman import Agent, Part, State
from dragoman.agents.langgraph.run import LangGraphRuns


async def echo(state: MessagesState) -> dict[str, Any]:
    """Say everything that people have said so far."""
    human_texts = [message.text for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage(json.dumps(human_texts))]}


# -- text --------------------------------------------------------------------------------------------------------------


class HeldModel(BaseChatModel):
    """Says two words, and the second when the test lets it."""

    words: tuple[str, str] = ("Hello ", "there.")
    go_on: Any

    @property
    def _llm_type(self) -> str:
        return "held"

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: list[BaseMessage], *args: Any, **options: Any) -> AsyncIterator[Any]:
        yield ChatGenerationChunk(message=AIMessageChunk(self.words[0]))
        await self.go_on.wait()
        yield ChatGenerationChunk(message=AIMessageChunk(self.words[1]))


async def test_messages_of_several_nodes_are_paragraphs_and_none_is_repeated(start: Any) -> None:
    model = model_of("one two", "three four", "five six")

    async def first(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def copied(state: MessagesState) -> dict[str, Any]:
        answer = await model.ainvoke(state["messages"])
        return {"messages": [AIMessage(answer.text, name="copied")]}

    async def team(state: MessagesState) -> dict[str, Any]:
        return {"messages": [HumanMessage("not an answer"), AIMessage("whole")]}

    graph = chain(first, copied, team)
    task = await (await start(served(graph))).send("go")
    assert task.text == "one two\n\nthree four\n\nwhole"
    assert len(task.artifacts) == 1


async def test_a_graph_within_the_graph_streams_too(start: Any) -> None:
    model = model_of("inner words")

    # Not async: it runs in a thread.
    def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    engine = await start(served(within(chain(talk))))
    task = await engine.send("go")
    assert task.text == "inner words"
    chunks = [event.artifact.text for event in await engine.journal(task) if hasattr(event, "artifact")]
    assert chunks[:3] == ["inner", " ", "words"]


async def test_nodes_side_by_side_do_not_talk_into_each_other(start: Any, turns: Any) -> None:
    held = [asyncio.Event(), asyncio.Event()]
    models = [HeldModel(words=("a1 ", "a2"), go_on=held[0]), HeldModel(words=("b1 ", "b2"), go_on=held[1])]
    builder = StateGraph(MessagesState)
    for name, model in zip("ab", models, strict=True):

        async def talk(state: MessagesState, model: Any = model) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        builder.add_node(name, talk)
        builder.add_edge(START, name)
    engine = await start(served(builder.compile()))
    sending = engine.sending("go")
    # The second ends before the first does.
    held[1].set()
    await turns(50)
    held[0].set()
    assert sorted((await sending).text.split("\n\n")) == ["a1 a2", "b1 b2"]


async def test_the_parts_of_a_message_reach_thechain(start: Any) -> None:
    seen: list[Any] = []

    async def talk(state: MessagesState) -> dict[str, Any]:
        seen.extend(state["messages"][-1].content)
        return {"messages": [AIMessage("ok")]}

    parts = (
        Part(data={"n": 1}),
        Part(raw=b"a,b", media_type="text/csv", filename="t.csv"),
        Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png"),
        Part(url="https://example.com/a.pdf", media_type="application/pdf"),
    )
    assert (await (await start(served(chain(talk)))).send("look", parts=parts)).text == "ok"
    assert seen == [
        {"type": "text", "text": "look"},
        {"type": "text", "text": '{"n":1}'},
        {"type": "text", "text": "t.csv:\na,b"},
        {"type": "image", "mime_type": "image/png", "base64": "iVBORw==", "extras": {"filename": "dot.png"}},
        {"type": "file", "mime_type": "application/pdf", "url": "https://example.com/a.pdf"},
    ]


# -- graphs without messages -------------------------------------------------------------------------------------------


class Topic(TypedDict):
    topic: str


class Poem(TypedDict):
    topic: str
    lines: int


async def count(state: Topic) -> dict[str, Any]:
    return {"lines": len(state["topic"])}


async def test_the_last_state_of_a_graph_without_messages_is_data(start: Any) -> None:
    engine = await start(served(chain(count, schema=Poem)))
    task = await engine.send(None, parts=(Part(data={"topic": "sea"}),))
    assert (task.state, task.data) == (State.COMPLETED, {"topic": "sea", "lines": 3})


class Answered(TypedDict):
    answer: str


class Talk(MessagesState):
    answer: Any


async def test_the_output_schema_gives_the_answer_and_messages_are_remembered(start: Any) -> None:
    async def talk(state: Talk) -> dict[str, Any]:
        # The text of a message is more than a text, and an object is no JSON at all.
        human_texts = [message.text for message in state["messages"]]
        return {"answer": {"said": human_texts, "odd": Path("x")}, "messages": [AIMessage("hm")]}

    builder = StateGraph(Talk, input_schema=MessagesState, output_schema=Answered)
    builder.add_node(talk)
    builder.add_edge(START, "talk")
    engine = await start(served(builder.compile()))
    assert (await engine.send("one", context="c")).data == {"answer": {"said": ["one"], "odd": "x"}}
    task = await engine.send("two", context="c")
    assert (task.data["answer"]["said"], len(task.artifacts)) == (["one", "hm", "two"], 1)


async def test_a_graph_that_takes_one_value_takes_text(start: Any) -> None:
    builder = StateGraph(Poem, input_schema=Topic)
    builder.add_node(count)
    builder.add_edge(START, "count")
    assert (await (await start(served(builder.compile()))).send("sea")).data == {"topic": "sea", "lines": 3}


async def test_a_graph_that_takes_several_values_says_which(start: Any) -> None:
    task = await (await start(served(chain(count, schema=Poem)))).send("sea")
    assert (task.state, task.status.message.text) == (
        State.REJECTED,
        "this agent takes data, with some of: topic, lines",
    )


async def test_an_entrypoint_is_a_graph_too(start: Any) -> None:
    @entrypoint()
    async def shout(text: str) -> str:
        return text.upper()

    @entrypoint()
    async def size(text: str) -> dict[str, int]:
        return {"size": len(text)}

    @entrypoint()
    async def talk(text: str) -> AIMessage:
        return AIMessage(text)

    assert (await (await start(served(shout))).send("sea")).text == "SEA"
    assert (await (await start(served(talk))).send("sea")).text == "sea"
    assert (await (await start(served(size))).send("sea")).data == {"size": 3}


# -- memory ------------------------------------------------------------------------------------------------------------


async def test_without_a_checkpointer_the_oldest_turns_are_forgotten(start: Any) -> None:
    engine = await start(served(chain(echo), memory=2000))
    for number in range(10):
        task = await engine.send(f"message {number}", context="c")
    human_texts = json.loads(task.text)
    assert 1 < len(human_texts) < 10
    assert human_texts[-1] == "message 9"


async def test_without_a_checkpointer_nothing_stays_in_the_process(start: Any) -> None:
    runs = LangGraphRuns(chain(echo))
    engine = await start(Agent("graph", run=partial(runs.run)))
    for _ in range(3):
        await engine.send("one", context="c")
    assert not runs._graph.checkpointer.storage


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_without_a_checkpointer_a_canceled_run_leaves_nothing_in_the_process(start: Any) -> None:
    begun = asyncio.Event()

    async def hang(state: MessagesState) -> dict[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        return {}

    runs = LangGraphRuns(chain(hang))
    engine = await start(Agent("graph", run=partial(runs.run)))
    task = await engine.send("go", wait=False)
    await begun.wait()
    await engine.cancel(task)
    await engine.idle()
    assert not runs._graph.checkpointer.storage


async def test_too_many_steps_fail_in_plain_words(start: Any) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("echo", echo)
    builder.add_edge(START, "echo")
    builder.add_edge("echo", "echo")
    graph = builder.compile().with_config(recursion_limit=5)
    task = await (await start(served(graph))).send("go")
    assert (task.state, task.status.message.text) == (State.FAILED, "the graph stopped: it took too many steps")


def test_a_graph_has_the_name_its_author_gave_it_and_its_tools_are_skills() -> None:
    @tool
    async def look(place: str) -> str:
        """Look somewhere."""
        return place

    assert LangGraphRuns(chain(echo, name="poet")).name == "poet"
    assert [(offer.id, offer.description) for offer in LangGraphRuns(chain(ToolNode([look]))).offers()] == [
        ("graph", "Talks to graph"),
        ("graph-look", "Look somewhere."),
    ]


@pytest.mark.parametrize("exit_", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("kind", ["coroutine", "thread", "side by side", "tool"])
async def test_a_node_that_wants_to_end_the_program_fails_its_task(
    start: Any, kind: str, exit_: type[BaseException]
) -> None:
    def leave_in_thread(state: MessagesState) -> dict[str, Any]:
        raise exit_

    async def leave(state: MessagesState) -> dict[str, Any]:
        raise exit_

    @tool
    async def leaving() -> str:
        """Leave."""
        raise exit_

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", tool_calls=[{"name": "leaving", "args": {}, "id": "1"}])]}

    if kind == "side by side":
        builder = StateGraph(MessagesState)
        for name, node in (("echo", echo), ("leave", leave)):
            builder.add_node(name, node)
            builder.add_edge(START, name)
        graph = builder.compile()
    else:
        nodes = {"coroutine": [leave], "thread": [leave_in_thread], "tool": [call, ToolNode([leaving])]}
        graph = chain(*nodes[kind])
    engine = await start(served(graph))
    async with asyncio.timeout(10):
        task = await engine.send("go")
    assert task.state is State.FAILED
    assert task.error.startswith("execution failed: Internal error, reference ")
