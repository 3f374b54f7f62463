"""Calls that nobody answers: tasks that end while tools wait, and tasks that go on beside them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import ParallelAgent, SequentialAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from unit.agents.adk.scripted import call, llm, parts, says

from dragoman import Agent, Client
from dragoman.agents.adk.run import AdkRuns
from dragoman.model.state import State

pytestmark = [
    pytest.mark.filterwarnings("ignore:(Sequential|Parallel)Agent is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\] ResumabilityConfig:UserWarning"),
]


def slow(x: int) -> None:
    """Wait for somebody."""


SLOW = LongRunningFunctionTool(slow)
WAITS = [parts(call("slow", x=1))]


def last_prompt(agent: Any) -> list[Any]:
    """What the model was told last: texts, calls by their name, responses."""
    contents = agent.model.requests[-1].contents
    return [
        part.text or (part.function_call.name if part.function_call else part.function_response.response)
        for content in contents
        for part in content.parts
    ]


# -- tasks that end ----------------------------------------------------------------------------------------------------


async def test_pending_calls_of_a_canceled_task_are_canceled() -> None:
    agent = llm(WAITS, says("fresh"), says("again"), tools=[SLOW])
    async with Client(Agent.from_adk(agent)) as client:
        task = await client.send("hi")
        await client.cancel_task(task)
        await client.send("new", context=task)
        assert last_prompt(agent) == ["hi", "slow", {"status": "canceled"}, "new"]
        await client.send("newer", context=task)
        assert last_prompt(agent)[-3:] == ["new", "fresh", "newer"]


async def test_pending_calls_of_a_task_canceled_at_work_are_canceled() -> None:
    began, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        """Hang."""
        began.set()
        await never.wait()

    agent = llm([parts(call("slow", x=1), call("hang"))], says("fresh"), tools=[SLOW, hang])
    async with Client(Agent.from_adk(agent)) as client:
        task = await client.send("hi", wait=False)
        await began.wait()
        await client.cancel_task(task)
        await client.send("new", context=task)
    assert last_prompt(agent)[0] == "hi"
    assert {"status": "canceled"} in last_prompt(agent)
    assert last_prompt(agent)[-1] == "new"


async def test_pending_calls_of_a_failed_task_are_canceled() -> None:
    def patient(x: int) -> dict[str, str]:
        """Wait."""
        return {"status": "pending"}

    refused = [LlmResponse(error_code="SAFETY", error_message="blocked")]
    agent = llm([parts(call("patient", x=1))], refused, says("fresh"), tools=[LongRunningFunctionTool(patient)])
    async with Client(Agent.from_adk(agent)) as client:
        task = await client.send("hi")
        assert task.state is State.FAILED
        await client.send("new", context=task)
    assert last_prompt(agent)[-3:] == ["patient", {"status": "canceled"}, "new"]


async def test_after_a_cancel_the_conversation_goes_on_with_whom_it_would_have() -> None:
    steps = [llm(WAITS, name="a", tools=[SLOW]), llm(says("B"), name="b")]
    transfer = [parts(call("transfer_to_agent", agent_name="both"))]
    root = llm(transfer, says("Back."), name="root", sub_agents=[SequentialAgent(name="both", sub_agents=steps)])
    async with Client(Agent.from_adk(root)) as client:
        task = await client.send("hi")
        await client.cancel_task(task)
        task = await client.send("new", context=task)
    assert task.text == "Back."


async def test_a_service_that_breaks_does_not_keep_a_task_from_being_canceled() -> None:
    runs = AdkRuns(llm(WAITS, tools=[SLOW]))

    class Broken(InMemorySessionService):
        async def get_session(self, **options: Any) -> Any:
            raise OSError("disk")

    async with Client(Agent.from_adk(runs.runner)) as client:
        task = await client.send("hi")
        runs.runner.session_service = Broken()
        assert (await client.cancel_task(task)).state is State.CANCELED


async def test_nothing_is_written_beside_a_run() -> None:
    more, sessions = asyncio.Event(), InMemorySessionService()
    agent = llm(WAITS, [parts("on ", piece=True), more, parts("on it")], says("fresh"), tools=[SLOW])
    runs = AdkRuns(agent)
    runs.runner.session_service = sessions
    async with Client(Agent.from_adk(runs.runner)) as client:
        paused = await client.send("hi")
        stream = client.stream("meanwhile", context=paused)
        async for each in stream:
            if each.kind == "artifact" and not more.is_set():
                await client.cancel_task(paused)
                user = f"A2A_USER_{paused.context_id}"
                found = await sessions.get_session(app_name="helper", user_id=user, session_id=paused.context_id)
                assert found is not None
                responses = [each.response for event in found.events for each in event.get_function_responses()]
                assert responses == [{"status": "pending"}]
                more.set()
        await client.send("new", context=paused)
    assert last_prompt(agent)[:3] == ["hi", "slow", {"status": "canceled"}]


# -- tasks that go on --------------------------------------------------------------------------------------------------


async def test_a_waiting_task_can_be_answered_after_another_message() -> None:
    agent = llm(WAITS, says("Beside."), says("Done."), tools=[SLOW])
    async with Client(Agent.from_adk(agent)) as client:
        task = await client.send("hi")
        await client.send("something else", context=task)
        assert last_prompt(agent) == ["hi", "slow", {"status": "pending"}, "something else"]
        task = await client.send("42", task=task)
    assert (task.state, task.text) == (State.COMPLETED, "Done.")
    assert {"result": "42"} in last_prompt(agent)
    assert {"status": "pending"} not in last_prompt(agent)


async def test_a_session_without_other_messages_holds_no_events_of_ours() -> None:
    agent = llm(WAITS, says("Done."), tools=[SLOW])
    runs = AdkRuns(agent)
    async with Client(Agent.from_adk(runs.runner)) as client:
        task = await client.send("hi")
        task = await client.send("42", task=task)
    place = {"user_id": f"A2A_USER_{task.context_id}", "session_id": task.context_id}
    session = await runs.runner.session_service.get_session(app_name="helper", **place)
    assert session is not None
    assert [event.author for event in session.events] == ["user", "helper", "user", "helper"]


# -- calls of several agents -------------------------------------------------------------------------------------------


def two(tool: Any = SLOW, *, resumable: bool = False) -> Agent:
    """Two agents that wait at once."""
    both = [
        llm([parts(call(tool.name, x=1))], *(says(f"{name} after") for _ in range(2)), name=name, tools=[tool])
        for name in ("a", "b")
    ]
    config = ResumabilityConfig(is_resumable=True) if resumable else None
    return Agent.from_adk(
        App(name="app", root_agent=ParallelAgent(name="p", sub_agents=both), resumability_config=config)
    )


def answers(task: Any) -> dict[str, Any]:
    calls = [
        part.data for part in task.status.message.parts if (part.metadata or {}).get("adk_type") == "function_call"
    ]
    return {each["id"]: {"of": each["name"]} for each in calls}


@pytest.mark.parametrize("resumable", [False, True])
async def test_agents_that_wait_at_once_all_go_on_when_all_is_answered(resumable: bool) -> None:
    async with Client(two(resumable=resumable)) as client:
        task = await client.send("go")
        assert len(answers(task)) == 2
        task = await client.send(data=answers(task), task=task)
    assert (task.state, sorted(task.text.split("\n\n"))) == (State.COMPLETED, ["a after", "b after"])


async def test_an_answer_that_adk_does_not_take_fails_the_task() -> None:
    def patient(x: int) -> dict[str, str]:
        """Wait."""
        return {"status": "pending"}

    async with Client(two(LongRunningFunctionTool(patient), resumable=True)) as client:
        task = await client.send("go")
        task = await client.send(data=answers(task), task=task)
    assert (task.state, "did not continue" in task.status.message.text) == (State.FAILED, True)
