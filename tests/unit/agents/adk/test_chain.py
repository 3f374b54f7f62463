"""A remote agent that is served again: its answers, files and questions arrive as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest
from google.adk.agents import SequentialAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types
from unit.agents.adk.scripted import call, llm, parts, says, streamed

from dragoman import Agent, Client, Context, Part
from dragoman.adk import RemoteAgent
from dragoman.model.state import State
from dragoman.outputs import Ask

pytestmark = pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")

Run = Callable[[Context], AsyncGenerator[Any, None]]


def chain(run: Run | Agent, **options: Any) -> Agent:
    """Our agent, as an agent of ADK's, as an agent of ours."""
    far = run if isinstance(run, Agent) else Agent("far", run=partial(run))
    return Agent.from_adk(RemoteAgent(name="near", url=far), **options)


def notes(events: list[Any]) -> list[str]:
    return [each.raw.status.message.text for each in events if each.kind == "status" and each.raw.status.message]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [(), (" three",)])
async def test_text_before_and_after_data_arrives_once(after: tuple[str, ...]) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "one "
        await asyncio.sleep(0)
        yield "two"
        yield {"rows": [1]}
        for text in after:
            yield text

    _, task = await streamed(chain(run))
    assert (task.state, task.text, task.data) == (State.COMPLETED, "".join(("one two", *after)), {"rows": [1]})
    assert len(task.artifacts) == 2


async def test_a_file_arrives_once() -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "Look"
        yield Part(raw=b"png", media_type="image/png", filename="a.png")

    _, task = await streamed(chain(run))
    assert task.text == "Look"
    assert [(file.raw, file.filename) for file in task.files] == [(b"png", "a.png")]


async def test_an_image_between_pieces_and_the_whole_text_repeats_nothing() -> None:
    image = types.Part(inline_data=types.Blob(data=b"png", mime_type="image/png"))
    turn = [parts("Loo", piece=True), parts("k", piece=True), parts(image), parts("Look")]
    _, task = await streamed(Agent.from_adk(llm(turn)))
    assert (task.text, [file.raw for file in task.files]) == ("Look", [b"png"])


async def test_progress_of_the_remote_agent_is_shown_once_and_at_once() -> None:
    seen = asyncio.Event()

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        await ctx.progress("looking")
        await seen.wait()
        yield "found"

    events: list[Any] = []
    async with Client(chain(run, show_thoughts=True)) as client:
        async for each in client.stream("hi"):
            events.append(each)
            if notes(events):
                seen.set()
    assert notes(events) == ["looking"]


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("auth", "state"), [(False, State.INPUT_REQUIRED), (True, State.AUTH_REQUIRED)])
async def test_a_question_is_asked_in_its_own_words_and_is_no_part_of_the_answer(auth: bool, state: State) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        if ctx.resume is None:
            yield "Hm. "
            yield Ask("Your name?", auth=auth, details=({"form": ["name"]},), forwards=True)
            return
        yield f"Hello {ctx.text}"

    async with Client(chain(run)) as client:
        task = await client.send("hi")
        assert (task.state, task.status.message.parts[0].text) == (state, "Your name?")
        assert [part.data for part in task.status.message.parts[1:]] == [{"form": ["name"]}]
        assert [artifact.text for artifact in task.artifacts] == ["Hm. "]
        task = await client.send("Bob", task=task)
    assert (task.state, task.text) == (State.COMPLETED, "Hm. \n\nHello Bob")


@pytest.mark.parametrize("data", [{"age": 5}, {"age": 5, "name": "Bob"}, [1], {"result": "Bob"}])
async def test_data_answers_a_question_as_it_is(data: Any) -> None:
    received: list[Any] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        if ctx.resume is None:
            yield Ask("Who?")
            return
        received.append(ctx.data if ctx.data is not None else {"result": ctx.text})

    async with Client(chain(run)) as client:
        task = await client.send(data=data, task=await client.send("hi"))
    assert (task.state, received) == (State.COMPLETED, [data])


def approve(amount: int) -> None:
    """Ask the boss."""


def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@pytest.mark.parametrize(
    ("tool", "question"),
    [
        (LongRunningFunctionTool(approve), 'approve({"amount":5}) waits for its result.'),
        (FunctionTool(pay, require_confirmation=True), 'Allow pay({"amount":5})? Answer yes or no.'),
    ],
)
async def test_a_tool_far_away_that_waits_is_asked_about_once(tool: Any, question: str) -> None:
    far = llm([parts("I ask.", call(tool.name, amount=5))], says("Done."), tools=[tool])
    async with Client(chain(Agent.from_adk(far))) as client:
        task = await client.send("go")
        assert (task.state, task.status.message.parts[0].text) == (State.INPUT_REQUIRED, question)
        assert [artifact.text for artifact in task.artifacts] == ["I ask."]
        task = await client.send("yes", task=task)
    assert (task.state, task.text) == (State.COMPLETED, "I ask.\n\nDone.")


async def test_a_question_of_googles_own_client_is_asked_in_its_words() -> None:
    from unit.agents.adk.scripted import Says, event, served

    name = "mock_function_call_for_required_user_input"
    asked = types.FunctionCall(id="c1", name=name, args={"input_required": "Your name?"})
    content_parts = [types.Part(text="First:"), types.Part(text="Your name?"), types.Part(function_call=asked)]
    asking = event(long_running_tool_ids={"c1"})
    asking.content = types.Content(role="model", parts=content_parts)
    async with Client(served(Says(name="own", events=[asking]))) as client:
        task = await client.send("hi")
    assert (task.status.message.text, task.artifacts[0].text) == ("Your name?", "First:")


async def test_a_message_after_a_canceled_question_does_not_answer_it() -> None:
    received: list[tuple[str, bool]] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        received.append((ctx.text, ctx.resume is None))
        if ctx.text == "hi":
            yield Ask("Your name?")
        else:
            yield "fine"

    near = RemoteAgent(name="near", url=Agent("far", run=partial(run)))
    async with Client(Agent.from_adk(SequentialAgent(name="desk", sub_agents=[near]))) as client:
        task = await client.send("hi")
        await client.cancel_task(task)
        task = await client.send("new words", context=task)
    assert (task.text, received) == ("fine", [("hi", True), ("new words", True)])
