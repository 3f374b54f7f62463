"""How tasks of ADK agents end: errors that are told and errors that are not, giving up, and cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LoopAgent
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from unit.agents.adk.scripted import Says, Scripted, event, llm, parts, served, streamed

from dragoman import Agent, Client
from dragoman.model.state import State

pytestmark = pytest.mark.filterwarnings("ignore:LoopAgent is deprecated:DeprecationWarning")

# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [LlmResponse(error_code="SAFETY", error_message="no"), ValueError("hidden")])
async def test_the_reason_of_a_failure_is_marked_as_adk_marks_it(refused: Any) -> None:
    _, task = await streamed(Agent.from_adk(llm([refused])))
    assert (task.state, task.status.message.metadata) == (State.FAILED, {"adk_error_code": "FAILED"})


@pytest.mark.parametrize(
    ("error", "reason"),
    [({"error_message": "no more paper"}, "no more paper"), ({"error_code": "MAX_TOKENS"}, "MAX_TOKENS")],
    ids=["only a message", "only a code"],
)
async def test_an_error_without_a_code_or_a_message_fails_the_task(error: dict[str, str], reason: str) -> None:
    _, task = await streamed(served(Says(name="own", events=[event("so far", **error)])))
    assert (task.state, task.status.message.text) == (State.FAILED, reason)
    assert task.artifacts[0].text == "so far"


async def test_an_error_that_the_agent_gets_over_is_none() -> None:
    own_events = [event(error_code="BUSY", error_message="try later"), event("done")]
    _, task = await streamed(served(Says(name="own", events=own_events)))
    assert (task.state, task.text) == (State.COMPLETED, "done")


async def test_text_after_a_refusal_does_not_change_the_refusal() -> None:
    def disclaim(callback_context: Any) -> types.Content:
        del callback_context
        return types.Content(role="model", parts=[types.Part(text="No warranty.")])

    refused = LlmResponse(error_code="SAFETY", error_message="blocked for safety")
    _, task = await streamed(served(llm([refused], after_agent_callback=disclaim)))
    assert (task.state, task.status.message.text) == (State.FAILED, "blocked for safety")


# -- escalation --------------------------------------------------------------------------------------------------------


def gives_up() -> Says:
    return Says(name="own", events=[event("I cannot.", actions=EventActions(escalate=True))])


async def test_an_agent_that_escalates_has_ended() -> None:
    _, task = await streamed(served(LoopAgent(name="loop", sub_agents=[gives_up()], max_iterations=3)))
    assert (task.state, task.text) == (State.COMPLETED, "I cannot.")


async def test_an_agent_that_escalates_can_be_made_to_wait_for_help() -> None:
    async with Client(served(gives_up(), escalate="input")) as client:
        task = await client.send("hi")
        assert task.state is State.INPUT_REQUIRED
        task = await client.send("try again", task=task)
        assert task.state is State.INPUT_REQUIRED
        assert task.artifacts[0].text == "I cannot.\n\nI cannot."


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_cancel_while_the_model_writes_ends_the_model() -> None:
    ended = asyncio.Event()

    class Endless(Scripted):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            try:
                while True:
                    yield parts("on ", piece=True)
                    await asyncio.sleep(0)
            finally:
                ended.set()

    agent = llm()
    agent.model = Endless(turns=[])
    async with Client(served(agent)) as client:
        async for each in client.stream("hi"):
            if each.text and each.task is not None:
                await client.cancel_task(each.task)
                break
        await ended.wait()
