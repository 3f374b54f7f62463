"""How a turn of a remote agent ends: the work over there with it, and what cannot be done as an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from google.adk.agents import SequentialAgent
from google.adk.events import Event
from google.adk.workflow import Workflow
from google.genai import types
from unit.agents.adk import remote_talk as talks
from unit.agents.adk.scripted import call

from dragoman import Agent, Context
from dragoman.adk import RemoteAgent
from dragoman.outputs import Done
from dragoman.testing import served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Talk, says, top = talks.Talk, talks.says, talks.top
Parrot, Working, asks_who = talks.Parrot, talks.Working, talks.asks_who
text_of, texts_of = talks.text_of, talks.texts_of

Make = Callable[..., RemoteAgent]


def in_a_sequence(agent: RemoteAgent) -> Any:
    return SequentialAgent(name="team", sub_agents=[says("near", "Hm."), agent])


def handed_over_to(agent: RemoteAgent) -> Any:
    return top([call("transfer_to_agent", agent_name="far")], sub_agents=[agent])


def in_a_workflow(agent: RemoteAgent) -> Any:
    return Workflow(name="flow", edges=[("START", agent)])


def called_as_a_tool(agent: RemoteAgent) -> Any:
    return top([call("far", request="work")], "ok", tools=[agent.as_tool()])


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("place", [lambda agent: agent, in_a_sequence, handed_over_to, in_a_workflow, called_as_a_tool])
async def test_canceling_the_run_cancels_the_remote_work(remote: Make, streaming: bool, place: Any) -> None:
    worker = Working("begun ")
    talk = Talk(place(remote(worker)), streaming=streaming)
    running = asyncio.ensure_future(talk.say("work"))
    await worker.begun()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await worker.canceled()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("protocol", [None, "0.3", "0.1"])
@pytest.mark.parametrize("words", [(), ("Well, ",)])
async def test_work_behind_a_port_is_canceled_too(
    streaming: bool, protocol: str | None, words: tuple[str, ...]
) -> None:
    worker = Working(*words)
    with served(worker) as url:
        agent = RemoteAgent(name="far", url=url, protocol=protocol)
        running = asyncio.ensure_future(Talk(agent, streaming=streaming).say("work"))
        await worker.begun()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await worker.canceled()
        await agent.close()


async def test_leaving_the_stream_cancels_the_remote_work(talk_with: Any) -> None:
    worker = Working("begun ")
    async with aclosing(talk_with(worker).turn("work")) as events:
        async for event in events:
            assert text_of(event) == "begun "
            break
    await worker.canceled()


async def test_a_task_that_waits_for_an_answer_is_not_canceled(talk_with: Any) -> None:
    talk = talk_with(asks_who)
    async with aclosing(talk.turn("hi")) as events:
        async for event in events:
            assert event.long_running_tool_ids
            break
    assert texts_of(await talk.say("Ann")) == ["Hello Ann"]


async def test_an_agent_that_is_not_there_is_an_error_without_its_address() -> None:
    agent = RemoteAgent(name="far", url="http://ann:s3cret@127.0.0.1:1/agents/x", retries=0)
    (event,) = await Talk(agent).say("hi")
    assert (event.error_code, event.error_message) == (
        "remote_agent_error",
        "send failed: the remote agent cannot be reached",
    )
    assert event.content is None and event.turn_complete
    await agent.close()


async def test_a_message_that_was_refused_is_sent_again_with_the_next_turn(remote: Make) -> None:
    parrot = Parrot()
    app = parrot.app(store="memory:")
    down = True

    async def sometimes(scope: Any, receive: Any, send: Any) -> None:
        if down and scope.get("method") == "POST":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"token s3cret expired"})
        else:
            await app(scope, receive, send)

    talk = Talk(remote(sometimes, retries=0))
    (event,) = await talk.say("one")
    assert event.error_message == "send failed: the remote agent does not accept the credentials"
    down = False
    assert texts_of(await talk.say("two")) == ["echo one\n\ntwo"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("closing", "texts"), [("that was all", ["one two", "that was all"]), ("one two", ["one two"])]
)
async def test_a_closing_message_comes_last_unless_it_repeats_the_answer(
    remote: Make, streaming: bool, closing: str, texts: list[str]
) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "one "
        yield "two"
        yield Done(closing)

    events = await Talk(remote(Agent("closer", run=run)), streaming=streaming).say("go")
    assert [text for text in texts_of(events) if text] == texts
    assert events[-1].turn_complete


async def test_nothing_to_say_is_an_error(remote: Make) -> None:
    parrot = Parrot()
    talk = Talk(remote(parrot))
    gone = types.FunctionResponse(id="gone", name="somebody_else", response={"result": 1})
    (event,) = await talk.say(types.Part(function_response=gone))
    assert event.error_message == "no user content in invocation context"
    assert isinstance(event, Event) and event.author == "far"
    assert parrot.received == []


# -- what is lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("protocol", [None, "0.3"])
async def test_work_that_is_silent_for_too_long_is_canceled(streaming: bool, protocol: str | None) -> None:
    worker = Working("Well, ")
    with served(worker) as url:
        agent = RemoteAgent(name="far", url=url, protocol=protocol, idle_timeout=0.2, retries=0)
        events = await Talk(agent, streaming=streaming).say("work")
        assert events[-1].error_message == "send failed: the remote agent did not answer in time"
        await worker.canceled()
        await agent.close()


@pytest.mark.parametrize("protocol", [None, "0.3"])
async def test_an_answer_that_takes_its_time_is_waited_for(protocol: str | None) -> None:
    go_on = threading.Event()

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "Well, "
        await asyncio.to_thread(go_on.wait, 10)
        yield "yes."

    with served(Agent("worker", run=run)) as url:
        seen: list[str] = []

        async def interceptor(request: Any, call_next: Any) -> Any:
            seen.append(request.operation)
            if seen.count("GetTask") > 1 or "SubscribeToTask" in seen:
                go_on.set()
            return await call_next(request)

        agent = RemoteAgent(name="far", url=url, protocol=protocol, interceptors=[interceptor])
        talk = Talk(agent)
        assert texts_of(await talk.say("work")) == texts_of(await talk.kept()) == ["Well, yes."]
        assert "SendMessage" in seen and "SendStreamingMessage" not in seen
        # Servers of 0.3 may write down twice what two listen to.
        assert ("SubscribeToTask" in seen) is (protocol is None)
        await agent.close()


async def test_text_received_before_a_stream_breaks_for_good_is_kept(remote: Make) -> None:
    over = asyncio.Event()

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "begun "
        await over.wait()

    app = Agent("worker", run=run).app(store="memory:")
    down = False

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        async def sends(message: Any) -> None:
            nonlocal down
            await send(message)
            if b"begun" in message.get("body", b""):
                down = True
                raise ConnectionResetError

        if down and scope["type"] == "http":
            raise ConnectionResetError
        await app(scope, receive, sends if scope["type"] == "http" else send)

    talk = Talk(remote(breaking, retries=0, reconnect=0), streaming=True)
    events = await talk.say("work")
    assert texts_of(events, partial=True) == ["begun "]
    assert texts_of(events) == texts_of(await talk.kept()) == ["begun ", ""]
    assert events[-1].error_code == "remote_agent_error" and events[-1].turn_complete
    assert events[0].id == events[1].id
    over.set()


async def test_an_answer_that_may_not_have_arrived_leaves_its_question_open(remote: Make) -> None:
    app = Agent("asker", run=asks_who).app(store="memory:")
    lossy = False

    async def sometimes(scope: Any, receive: Any, send: Any) -> None:
        async def received() -> Any:
            message = await receive()
            if lossy and b"SendMessage" in message.get("body", b""):
                raise ConnectionResetError
            return message

        await app(scope, received if scope["type"] == "http" else receive, send)

    talk = Talk(remote(sometimes, retries=0))
    await talk.say("hi")
    lossy = True
    assert (await talk.say("Ann"))[-1].error_code == "remote_agent_error"
    lossy = False
    assert texts_of(await talk.say("It is me")) == ["Hello Ann\n\nIt is me"]
