"""An ADK agent behind the executor of the source document, and its converter."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import Any

import pytest

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import InMemoryRunner
from google.genai import types

from dragoman.compat.executor import (
    ADKExecutor,
    Artifact,
    Converter,
    DataPart,
    EventQueue,
    FileBytes,
    FilePart,
    Message,
    RequestContext,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from dragoman.model.error import ConfigError

HI = Message(Role.USER, (TextPart("hi"),))


class Says(BaseAgent):
    """An agent without a model: it yields what it was given, by default what it was asked."""

    events: list[Any] | None = None

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        content = ctx.user_content
        asked = content.parts[0].text if content is not None and content.parts else ""
        for each in [event(f"{asked}!")] if self.events is None else self.events:
            if isinstance(each, Exception):
                raise each
            yield each.model_copy(update={"author": self.name, "invocation_id": ctx.invocation_id})


def event(text: str = "", **options: Any) -> Event:
    content = types.Content(role="model", parts=[types.Part(text=text)]) if text else None
    return Event(author="agent", content=content, **options)


async def executed(agent: BaseAgent) -> list[Any]:
    """The events that an executor of this agent enqueues for one message."""
    queue = EventQueue("t")
    subscription = queue.subscribe(object())
    await ADKExecutor(ADKExecutor.Config(InMemoryRunner(agent=agent, app_name="app"))).execute(
        RequestContext("t", "c", HI, queue), "t"
    )
    queue.close()
    return [each async for each in subscription]


@pytest.mark.requirement("S2-50", "S2-52")
async def test_events_are_enqueued_in_the_order_of_the_document() -> None:
    events = await executed(Says(name="helper", events=[event("one"), event("two")]))
    first, *updates, last = events
    assert (first.status.state, first.final) == (TaskState.WORKING, False)
    assert [(each.artifact.parts, each.append, each.last_chunk) for each in updates] == [
        ((TextPart("one"),), False, False),
        ((TextPart("two"),), True, False),
        ((), True, True),
    ]
    assert len({each.artifact.id for each in updates}) == 1
    assert (last.status.state, last.final) == (TaskState.COMPLETED, True)
    assert {(each.task_id, each.context_id) for each in events} == {("t", "c")}


@pytest.mark.requirement("S2-50")
@pytest.mark.parametrize(
    ("given", "state", "text"),
    [
        ({"error_code": "429", "error_message": "too many"}, TaskState.FAILED, "too many"),
        ({"error_code": "429"}, TaskState.FAILED, "429"),
        ({"long_running_tool_ids": {"x"}}, TaskState.INPUT_REQUIRED, None),
        ({"actions": EventActions(escalate=True)}, TaskState.INPUT_REQUIRED, None),
    ],
)
async def test_the_final_state_is_that_of_the_document(
    given: dict[str, Any], state: TaskState, text: str | None
) -> None:
    *_, last = await executed(Says(name="helper", events=[event("one", **given), event("two")]))
    assert last.status.state is state
    assert (last.status.message and last.status.message.text) == text
    assert last.final is True


@pytest.mark.requirement("S2-50", "S2-91", "S2-95")
async def test_a_handler_takes_the_executor_with_its_config(calling: Any) -> None:
    runner = InMemoryRunner(agent=Says(name="helper"), app_name="app")
    caller = calling((ADKExecutor, ADKExecutor.Config(runner=runner, app_name="app")))
    first = await caller.send("hi")
    assert first["status"]["state"] == "completed"
    assert [part["text"] for artifact in first["artifacts"] for part in artifact["parts"]] == ["hi!"]
    await caller.send("and?", contextId=first["contextId"])
    context = first["contextId"]
    session = await runner.session_service.get_session(
        app_name="app", user_id=f"a2a_user_{context}", session_id=context
    )
    assert session is not None
    assert [each.content.parts[0].text for each in session.events if each.content and each.content.parts] == [
        "hi",
        "hi!",
        "and?",
        "and?!",
    ]


@pytest.mark.requirement("S2-50")
async def test_a_task_that_is_canceled_is_reported_as_canceled() -> None:
    queue = EventQueue("t")
    subscription = queue.subscribe(object())
    executor = ADKExecutor(ADKExecutor.Config(Says(name="helper", events=[])))
    await executor.cancel(RequestContext("t", "c", HI, queue), "t")
    queue.close()
    [last] = [each async for each in subscription]
    assert isinstance(last, TaskStatusUpdateEvent)
    assert (last.status.state, last.final) == (TaskState.CANCELED, True)


async def test_an_agent_that_raises_fails_the_task_and_hides_why(calling: Any) -> None:
    agent = Says(name="helper", events=[event("one"), RuntimeError("secret")])
    task = await calling(ADKExecutor(ADKExecutor.Config(agent))).send("hi")
    assert task["status"]["state"] == "failed"
    assert "secret" not in str(task)


async def test_a_context_id_that_is_no_plain_word_is_not_a_session_id(calling: Any) -> None:
    runner = InMemoryRunner(agent=Says(name="helper"), app_name="app")
    await calling((ADKExecutor, ADKExecutor.Config(runner))).send("hi", contextId="../../etc")
    [session_id] = [each for users in runner.session_service.sessions["app"].values() for each in users]  # pyright: ignore
    assert "/" not in session_id


def test_what_adk_cannot_run_is_refused() -> None:
    with pytest.raises(ConfigError):
        ADKExecutor(ADKExecutor.Config(object()))


# -- the converter ---------------------------------------------------------------------------------------------------

CALL: dict[str, Any] = {"name": "add", "id": "1", "args": {"a": 2}}
RESPONSE: dict[str, Any] = {"name": "add", "id": "1", "response": {"sum": 5}}
PARTS = [
    (types.Part(text="hi"), TextPart("hi")),
    (types.Part(text="hm", thought=True), TextPart("hm", {"adk_thought": True})),
    (
        types.Part(inline_data=types.Blob(data=b"hi", mime_type="image/png", display_name="a.png")),
        FilePart(FileBytes("aGk=", "a.png", "image/png")),
    ),
    (types.Part(function_call=types.FunctionCall(**CALL)), DataPart(CALL, {"adk_type": "function_call"})),
    (
        types.Part(function_response=types.FunctionResponse(**RESPONSE)),
        DataPart(RESPONSE, {"adk_type": "function_response"}),
    ),
]


@pytest.mark.requirement("S2-51", "S2-114")
@pytest.mark.parametrize(("theirs", "ours"), PARTS)
def test_parts_are_converted_both_ways(theirs: types.Part, ours: Any) -> None:
    assert Converter.part_from_adk(theirs) == ours
    assert Converter.part_to_adk(ours) == theirs


@pytest.mark.requirement("S2-31", "S2-114")
def test_messages_are_converted_both_ways() -> None:
    for role, theirs in ((Role.USER, "user"), (Role.AGENT, "model")):
        message = Message(role, (TextPart("hi"),), "m")
        content = types.Content(role=theirs, parts=[types.Part(text="hi")])
        assert Converter.message_to_adk(message) == content
        back = Converter.message_from_adk(content)
        assert (back.role, back.parts) == (role, message.parts)


@pytest.mark.requirement("S2-31", "S2-52")
def test_an_event_is_converted_to_an_artifact_and_to_a_status() -> None:
    plain = event("hi")
    assert Converter.artifact_from_adk(plain, "a") == Artifact("a", (TextPart("hi"),))
    assert Converter.artifact_from_adk(event(), "a") is None
    assert Converter.status_from_adk(plain) is None
    failed = Converter.status_from_adk(event(error_code="E", error_message="no"))
    assert failed is not None
    assert failed.state is TaskState.FAILED
    assert failed.message is not None
    assert failed.message.text == "no"
    waiting = Converter.status_from_adk(event(long_running_tool_ids={"x"}))
    assert waiting is not None
    assert waiting.state is TaskState.INPUT_REQUIRED


@pytest.mark.requirement("S2-31", "S2-52")
def test_updates_are_converted_to_events() -> None:
    update = TaskArtifactUpdateEvent("t", "c", Artifact("a", (TextPart("hi"),)), append=True)
    made = Converter.event_to_adk(update, "remote")
    assert (made.author, made.partial) == ("remote", True)
    assert made.content == types.Content(role="model", parts=[types.Part(text="hi")])
    failed = TaskStatus(TaskState.FAILED, Message(Role.AGENT, (TextPart("no"),)))
    made = Converter.event_to_adk(TaskStatusUpdateEvent("t", "c", failed, final=True), "remote")
    assert (made.error_code, made.error_message) == ("remote_agent_error", "no")
    asks = TaskStatus(TaskState.INPUT_REQUIRED, Message(Role.AGENT, (TextPart("which?"),)))
    made = Converter.event_to_adk(TaskStatusUpdateEvent("t", "c", asks, final=True), "remote")
    assert made.long_running_tool_ids == {"remote_input_required"}
    assert made.content == types.Content(role="model", parts=[types.Part(text="which?")])
