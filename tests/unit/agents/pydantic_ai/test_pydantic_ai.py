"""A Pydantic AI agent answers, remembers, asks, is canceled and fails as an A2A agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import CallDeferred, DeferredToolRequests, TextOutput
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from dragoman import Agent, Part, State
from dragoman.agents.pydantic_ai import PydanticAiRuns

Model = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]


def _agent(model: Model, **options: Any) -> pydantic_ai.Agent[Any, Any]:
    return pydantic_ai.Agent(FunctionModel(stream_function=model), name="teller", **options)


def _served(agent: pydantic_ai.Agent[Any, Any], **options: Any) -> Agent:
    return Agent("teller", run=partial(PydanticAiRuns(agent, **options).run))


def _contents(messages: list[ModelMessage], kind: str) -> list[Any]:
    """What all parts of one kind say, in the order of the history."""
    return [part.content for message in messages for part in message.parts if part.part_kind == kind]


# -- text --------------------------------------------------------------------------------------------------------------


async def test_the_parts_of_a_message_reach_the_model(start: Any) -> None:
    seen: list[Any] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.extend(_contents(messages, "user-prompt")[0])
        yield "ok"

    parts = (
        Part(data={"n": 1}),
        Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png"),
        Part(url="https://example.com/a.jpg", media_type="image/jpeg"),
        Part(url="https://example.com/a.pdf", media_type="application/pdf"),
    )
    assert (await (await start(_served(_agent(model)))).send("look", parts=parts)).text == "ok"
    assert seen[:2] == ["look", '{"n":1}']
    assert (seen[2].data, seen[2].media_type, seen[2].identifier) == (b"\x89PNG", "image/png", "dot.png")
    assert [(type(each).__name__, each.url) for each in seen[3:]] == [
        ("ImageUrl", "https://example.com/a.jpg"),
        ("DocumentUrl", "https://example.com/a.pdf"),
    ]


# -- output ------------------------------------------------------------------------------------------------------------


async def test_an_output_that_a_function_makes_of_the_text_replaces_it(start: Any) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "quiet"

    def louder(text: str) -> str:
        return text.upper()

    task = await (await start(_served(_agent(model, output_type=TextOutput(louder))))).send("say")
    assert task.text == "QUIET"


# -- memory ------------------------------------------------------------------------------------------------------------


async def test_the_oldest_turns_are_forgotten_and_the_system_prompt_never(start: Any) -> None:
    seen: list[list[ModelMessage]] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append(messages)
        yield "."

    engine = await start(_served(_agent(model, system_prompt="Be brief."), memory=3000))
    for number in range(10):
        await engine.send(f"message {number}", context="c")
    assert 1 < len(_contents(seen[-1], "user-prompt")) < 10
    assert _contents(seen[-1], "user-prompt")[-1] == ["message 9"]
    assert _contents(seen[-1], "system-prompt") == ["Be brief."]
    assert isinstance(seen[-1][0], ModelRequest)


async def test_a_failed_turn_is_not_remembered(start: Any) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        texts = _contents(messages, "user-prompt")
        if texts[-1] == ["bad"]:
            raise RuntimeError("no")
        yield json.dumps(texts)

    engine = await start(_served(_agent(model)))
    await engine.send("one", context="c")
    assert (await engine.send("bad", context="c")).state is State.FAILED
    assert (await engine.send("two", context="c")).text == '[["one"], ["two"]]'


# -- pauses ------------------------------------------------------------------------------------------------------------


def _bank(done: list[int]) -> pydantic_ai.Agent[Any, Any]:
    """Wants to pay three and five; says how that went, and what it has heard."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        results = _contents(messages, "tool-return")
        texts = _contents(messages, "user-prompt")[-1]
        if texts == ["what was it?"] or len(results) > 1:
            yield f"Results: {json.dumps(results)}"
        elif texts == ["wait"]:
            yield "Still here."
        else:
            yield "One moment."
            yield {1: DeltaToolCall("pay", '{"amount": 3}', tool_call_id="c1")}
            yield {2: DeltaToolCall("rate", '{"of": "EUR"}', tool_call_id="c2")}

    agent = _agent(model, output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    async def pay(amount: int) -> str:
        done.append(amount)
        return f"paid {amount}"

    @agent.tool_plain
    async def rate(of: str) -> str:
        raise CallDeferred

    return agent


async def test_tools_that_need_approval_or_are_done_elsewhere_pause_the_task(start: Any) -> None:
    done: list[int] = []
    engine = await start(_served(_bank(done)))
    task = await engine.send("pay", context="c")
    assert (task.state, task.question) == (State.INPUT_REQUIRED, 'May I call pay({"amount":3})?')
    assert task.text == "One moment."
    assert [part.data for part in task.status.message.parts[1:]] == [
        {"id": "c1", "tool": "pay", "arguments": {"amount": 3}},
        {"id": "c2", "tool": "rate", "arguments": {"of": "EUR"}},
    ]
    task = await engine.send("hm", task=task)
    assert task.question == 'May I call pay({"amount":3})? Please answer yes or no.'
    task = await engine.send("yes", task=task)
    assert (task.question, done) == ('What is the result of rate({"of":"EUR"})?', [])
    task = await engine.send("1.1", task=task)
    assert (task.state, done) == (State.COMPLETED, [3])
    assert task.text == 'One moment.\n\nResults: ["paid 3", "1.1"]'
    # What was approved is part of what the conversation remembers.
    assert (await engine.send("what was it?", context="c")).text == 'Results: ["paid 3", "1.1"]'


async def test_one_data_part_answers_all_calls_and_a_no_reaches_the_model_with_its_reason(start: Any) -> None:
    done: list[int] = []
    engine = await start(_served(_bank(done)))
    task = await engine.send("pay")
    answer = Part(data={"c1": {"approved": False, "message": "too much"}, "c2": {"EUR": 1.1}})
    task = await engine.send(None, parts=(answer,), task=task)
    assert (task.state, done) == (State.COMPLETED, [])
    assert task.text == 'One moment.\n\nResults: ["too much", {"EUR": 1.1}]'


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_a_run_that_uses_too_much_fails_in_plain_words(start: Any) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall("again", "{}", tool_call_id=f"c{len(messages)}")}

    agent = _agent(model)

    @agent.tool_plain
    async def again() -> str:
        return ""

    task = await (await start(_served(agent))).send("go")
    assert (task.state, task.status.message.text) == (
        State.FAILED,
        "the agent stopped: it has reached its usage limit for one message",
    )


# -- the card ----------------------------------------------------------------------------------------------------------


def test_the_agent_and_its_tools_are_skills() -> None:
    runs = PydanticAiRuns(_bank([]))
    assert (runs.name, runs.description) == ("teller", "")
    assert [(offer.id, offer.name, offer.default) for offer in runs.offers()] == [
        ("teller", "teller", True),
        ("teller-pay", "Pay", False),
        ("teller-rate", "Rate", False),
    ]
    assert all(offer.card().description for offer in runs.offers())


@pytest.mark.parametrize("exit_", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("kind", ["coroutine", "thread", "model"])
async def test_a_tool_that_wants_to_end_the_program_fails_its_task(
    start: Any, kind: str, exit_: type[BaseException]
) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if kind == "model":
            raise exit_
        yield {0: DeltaToolCall("leave", "{}", tool_call_id="c1")}
        yield {1: DeltaToolCall("stay", "{}", tool_call_id="c2")}

    agent = _agent(model)

    @agent.tool_plain
    async def stay() -> str:
        return "here"

    if kind == "thread":

        @agent.tool_plain
        def leave() -> str:
            raise exit_
    else:

        @agent.tool_plain(name="leave")
        async def leave_in_coroutine() -> str:
            raise exit_

    engine = await start(_served(agent))
    async with asyncio.timeout(10):
        task = await engine.send("go")
    assert task.state is State.FAILED
    assert task.error.startswith("execution failed: Internal error, reference ")
