"""What a Pydantic AI agent says and does not mean: refused answers, JSON, and what tools keep for themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai import DeferredToolRequests, ModelRetry, NativeOutput, PromptedOutput, ToolReturn
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from dragoman import Agent, Client, State
from dragoman.agents.pydantic_ai import PydanticAiRuns

Model = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]
CALL = {1: DeltaToolCall("look", "{}", tool_call_id="c1")}


def _served(agent: pydantic_ai.Agent[Any, Any], **options: Any) -> Agent:
    return Agent("teller", run=partial(PydanticAiRuns(agent, **options).run))


def _saying(*turns: list[Any], **options: Any) -> pydantic_ai.Agent[Any, Any]:
    """An agent whose model says one turn after the other, and that takes nothing bad for an answer."""
    left = iter(turns)

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for piece in next(left):
            yield piece

    agent = pydantic_ai.Agent(FunctionModel(stream_function=model), name="teller", **{"retries": 1, **options})

    @agent.output_validator
    def validate(output: Any) -> Any:
        if isinstance(output, str) and "bad" in output:
            raise ModelRetry("not that")
        return output

    return agent


async def test_an_answer_that_is_refused_is_taken_back(start: Any) -> None:
    engine = await start(_served(_saying(["a bad ", "secret"], ["good"], ["fine"])))
    task = await engine.send("go", context="c")
    assert (task.state, task.text, len(task.artifacts)) == (State.COMPLETED, "good", 1)
    assert (await engine.send("go", context="c")).text == "fine"


@pytest.mark.parametrize(
    ("last", "state", "text"),
    [("It is sunny.", State.COMPLETED, "Let me look.\n\nIt is sunny."), ("as bad", State.FAILED, "Let me look.")],
    ids=["a good answer", "no good answer"],
)
async def test_text_before_a_tool_call_is_kept_and_refused_answers_are_not(
    start: Any, last: str, state: State, text: str
) -> None:
    agent = _saying(["Let me look.", CALL], ["a bad secret"], [last])

    @agent.tool_plain
    async def look() -> str:
        return "sunny"

    task = await (await start(_served(agent))).send("go")
    assert (task.state, [artifact.text for artifact in task.artifacts]) == (state, [text])


async def test_a_refused_answer_is_gone_while_the_task_waits_and_after(start: Any) -> None:
    agent = _saying(["a bad secret"], ["May I?", CALL], ["Thanks."], output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    async def look() -> str:
        return "sunny"

    engine = await start(_served(agent))
    task = await engine.send("go")
    assert (task.question, task.artifacts[0].text) == ("May I call look({})?", "May I?")
    assert (await engine.send("yes", task=task)).text == "May I?\n\nThanks."


class Trip(BaseModel):
    city: str


@pytest.mark.parametrize("kind", [PromptedOutput, NativeOutput])
async def test_the_json_of_an_output_is_not_streamed_as_text(kind: Any) -> None:
    agent = _saying(['{"city":', ' "Porto"}'], output_type=kind(Trip))
    async with Client(_served(agent)) as client:
        stream = client.stream("plan")
        assert [event.text async for event in stream if event.text] == []
        assert (stream.task.state, stream.task.data) == (State.COMPLETED, {"city": "Porto"})
        assert len(stream.task.artifacts) == 1


@pytest.mark.parametrize("output_type", [str | Trip, [Trip, str]], ids=["union", "list"])
async def test_a_text_that_may_be_the_output_is_streamed(output_type: Any) -> None:
    async with Client(_served(_saying(["Hello ", "there."], output_type=output_type))) as client:
        stream = client.stream("hi")
        assert "Hello " in [event.text async for event in stream]
        assert stream.task.text == "Hello there."


async def test_objects_beside_the_result_of_a_tool_are_ignored(start: Any) -> None:
    seen: list[Any] = []
    agent = _saying(["", CALL], ["done"], ["again"])

    @agent.tool_plain
    async def look() -> ToolReturn:
        kept = object()
        seen.append(kept)
        return ToolReturn(return_value="sunny", metadata={"kept": kept})

    engine = await start(_served(agent))
    assert (await engine.send("go", context="c")).text == "done"
    assert (await engine.send("go", context="c")).text == "again"
    assert len(seen) == 1


class Line:
    """An object that its tools call, and that is no function which makes dependencies."""

    def __call__(self, words: str) -> str:
        return words.upper()


async def test_dependencies_may_be_callable_themselves(start: Any) -> None:
    agent = _saying(["", CALL], ["done"], deps_type=Line)
    results: list[str] = []

    @agent.tool
    async def look(ctx: pydantic_ai.RunContext[Line]) -> str:
        results.append(ctx.deps("sunny"))
        return results[-1]

    await (await start(_served(agent, deps=Line()))).send("go")
    assert results == ["SUNNY"]
