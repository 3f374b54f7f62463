"""Streams of ADK agents whose pieces are not followed by the whole text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import ParallelAgent, SequentialAgent
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from unit.agents.adk.scripted import Says, event, llm, parts, says, served, streamed

from dragoman import Client
from dragoman.model.state import State

pytestmark = pytest.mark.filterwarnings("ignore:(Sequential|Parallel)Agent is deprecated:DeprecationWarning")


async def test_agents_that_send_only_chunks_are_all_in_the_answer() -> None:
    first = Says(name="a", events=[event("A", partial=True)])
    second = Says(name="b", events=[event("B", partial=True), event("C", partial=True)])
    _, task = await streamed(served(SequentialAgent(name="both", sub_agents=[first, second])))
    assert task.text == "A\n\nBC"


async def test_parallel_agents_that_send_only_chunks_are_all_in_the_answer() -> None:
    both = [Says(name=name, events=[event(name, partial=True, branch=f"p.{name}")]) for name in "ab"]
    _, task = await streamed(served(ParallelAgent(name="p", sub_agents=both)))
    assert sorted(task.text.split("\n\n")) == ["a", "b"]


async def test_text_of_an_agent_after_an_error_is_streamed_at_once() -> None:
    more = asyncio.Event()
    broken = Says(name="a", events=[event("half", partial=True), event(error_code="x", error_message="broke")])
    other = llm([parts("b1 ", piece=True), more, parts("b2", piece=True), parts("b1 b2")], name="b")
    async with Client(served(SequentialAgent(name="both", sub_agents=[broken, other]))) as client:
        stream = client.stream("hi")
        async for each in stream:
            if each.kind == "artifact" and "b1" in each.text:
                more.set()  # only now the second goes on
        assert stream.task is not None
        assert (stream.task.state, stream.task.text) == (State.FAILED, "half\n\nb1 b2")


@pytest.mark.parametrize("content_parts", [[types.Part(text="")], []])
async def test_a_text_that_a_callback_takes_away_is_gone(content_parts: list[types.Part]) -> None:
    def blank(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        del callback_context
        return None if llm_response.partial else LlmResponse(content=types.Content(role="model", parts=content_parts))

    agent = llm(says("secret ", "word"), after_model_callback=blank)
    _, task = await streamed(served(SequentialAgent(name="both", sub_agents=[agent, llm(says("fine"), name="b")])))
    assert (task.state, task.text) == (State.COMPLETED, "fine")
