"""A remote agent as an agent of ADK's: where it can stand, how it is configured, how it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.genai import types
from pydantic import ValidationError
from unit.agents.adk import remote_talk as talks
from unit.agents.adk.scripted import call

import dragoman.adk
import dragoman.compat.executor as a2a
from dragoman import Client
from dragoman.adk import RemoteAgent
from dragoman.errors import ConfigError
from dragoman.testing import served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Talk, Recorded, says, top = talks.Talk, talks.Recorded, talks.says, talks.top
Parrot, text_of, texts_of = talks.Parrot, talks.text_of, talks.texts_of

Make = Callable[..., RemoteAgent]


# -- where it can stand ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-3", "S2-26", "S2-54")
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_remote_agent_answers_like_a_local_one(remote: Make, streaming: bool) -> None:
    talk = Talk(remote(Parrot()), streaming=streaming)
    events = await talk.say("hello")
    assert texts_of(events) == ["echo hello"]
    (kept,) = await talk.kept()
    assert (kept.author, text_of(kept), kept.content.role) == ("far", "echo hello", "model")
    assert kept.is_final_response() and kept.turn_complete


@pytest.mark.requirement("S2-107")
@pytest.mark.parametrize("streaming", [False, True])
async def test_it_is_called_over_a_real_port(remote: Make, streaming: bool) -> None:
    with served(Parrot()) as url:
        agent = remote(url)
        talk = Talk(agent, streaming=streaming)
        assert texts_of(await talk.say("one")) == ["echo one"]
        assert texts_of(await talk.say("two")) == ["echo two"]
        await agent.close()


@pytest.mark.requirement("S2-3", "S2-26", "S2-115")
@pytest.mark.parametrize("streaming", [False, True])
async def test_in_a_sequence_it_receives_the_text_of_the_agent_before_it(remote: Make, streaming: bool) -> None:
    parrot = Parrot()
    steps = [says("near", "It rains."), remote(parrot), says("end", "Bye.")]
    events = await Talk(SequentialAgent(name="team", sub_agents=steps), streaming=streaming).say("What now?")
    assert parrot.received == ["What now?\n\nFor context: [near] said: It rains."]
    assert [(event.author, text_of(event)) for event in events if not event.partial] == [
        ("near", "It rains."),
        ("far", f"echo {parrot.received[0]}"),
        ("end", "Bye."),
    ]


async def test_side_by_side_agents_answer_for_themselves(remote: Make) -> None:
    left, right = Parrot("left"), Parrot("right")
    team = ParallelAgent(name="team", sub_agents=[remote(left, "left"), remote(right, "right")])
    talk = Talk(team)
    events = await talk.say("hello") + await talk.say("again")
    assert sorted((event.author, text_of(event)) for event in events) == [
        ("left", "echo again"),
        ("left", "echo hello"),
        ("right", "echo again"),
        ("right", "echo hello"),
    ]
    assert len(set(left.contexts)) == len(set(right.contexts)) == 1


async def test_after_parallel_agents_it_receives_the_texts_of_all_of_them(remote: Make) -> None:
    parrot = Parrot()
    fan = ParallelAgent(name="fan", sub_agents=[says("left", "Gold."), says("right", "Silver.")])
    await Talk(SequentialAgent(name="team", sub_agents=[fan, remote(parrot)])).say("Look!")
    first, *others = parrot.received[0].split("\n\n")
    assert first == "Look!"
    assert sorted(others) == ["For context: [left] said: Gold.", "For context: [right] said: Silver."]


async def test_a_rewound_turn_is_not_sent_to_the_remote_agent(remote: Make) -> None:
    parrot = Parrot()
    talk = Talk(SequentialAgent(name="team", sub_agents=[says("near", "Hm."), remote(parrot)]))
    (event, *_) = await talk.say("secret")
    session = await talk.session()
    await talk.runner.rewind_async(
        user_id=session.user_id, session_id=session.id, rewind_before_invocation_id=event.invocation_id
    )
    await talk.say("hello")
    assert parrot.received[1:] == ["hello\n\nFor context: [near] said: Hm."]
    # What it was told before is not part of this conversation.
    assert len(set(parrot.contexts)) == 2


async def test_in_a_loop_it_receives_what_is_new_in_each_round_or_else_the_request(remote: Make) -> None:
    critic = Parrot()
    writer = says("writer", "A draft.")
    await Talk(LoopAgent(name="loop", sub_agents=[writer, remote(critic)], max_iterations=2)).say("Write!")
    remark = "For context: [writer] said: A draft."
    assert critic.received == [f"Write!\n\n{remark}", remark]
    assert len(set(critic.contexts)) == 1
    alone = Parrot()
    await Talk(LoopAgent(name="loop", sub_agents=[remote(alone, "alone")], max_iterations=2)).say("Go on")
    assert alone.received == ["Go on", "Go on"]


async def test_a_model_hands_over_to_it_by_its_description(remote: Make) -> None:
    parrot = Parrot()
    local = top([call("transfer_to_agent", agent_name="far")], sub_agents=[remote(parrot)])
    events = await Talk(local).say("Tell it")
    assert "Repeats each message" in local.model.requests[0].config.system_instruction
    # How the local agents hand over to each other is no business of the remote one.
    assert parrot.received == ["Tell it"]
    assert text_of(events[-1]) == "echo Tell it"


async def test_turns_of_a_session_are_one_conversation_and_other_sessions_are_others(remote: Make) -> None:
    parrot = Parrot()
    agent = remote(parrot)
    talk, other = Talk(agent), Talk(agent)
    await talk.say("one")
    await talk.say("two")
    await other.say("three")
    first, second, third = parrot.contexts
    assert first == second != third
    assert parrot.received == ["one", "two", "three"]


# -- how it is configured --------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-90")
async def test_it_takes_a_name_an_address_a_description_a_card_and_the_options_of_a_client(remote: Make) -> None:
    with served(Parrot()) as url:
        async with Client(url) as client:
            card = await client.card()
        seen: list[str] = []

        async def interceptor(request: Any, call_next: Any) -> Any:
            seen.append(request.headers.get("x-team", ""))
            return await call_next(request)

        options: dict[str, Any] = {"headers": {"x-team": "blue"}, "interceptors": [interceptor], "retries": 0}
        agent = remote(url, description="Knows birds", **options)
        assert (agent.name, agent.description) == ("far", "Knows birds")
        assert texts_of(await Talk(agent).say("hi")) == ["echo hi"]
        assert "blue" in seen

        by_card = RemoteAgent(name="carded", agent_card=card)
        assert by_card.description == "Repeats each message"
        assert texts_of(await Talk(by_card).say("hi")) == ["echo hi"]
        await agent.close()
        await by_card.close()


def test_wrong_options_are_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match="needs url="):
        RemoteAgent(name="far")
    with pytest.raises(ConfigError, match="write http://example"):
        RemoteAgent(name="far", url="example")
    with pytest.raises(ConfigError, match="retries"):
        RemoteAgent(name="far", url="http://127.0.0.1:1", retries=-1)
    with pytest.raises(ValidationError):
        RemoteAgent(name="far", url="http://127.0.0.1:1", color="red")
    with pytest.raises(ValidationError):
        RemoteAgent(name="not a name", url="http://127.0.0.1:1")


async def test_a_description_that_is_not_given_is_read_from_the_card() -> None:
    with served(Parrot()) as url:
        agent = RemoteAgent(name="far", url=url)
        assert agent.description == "The remote agent far."
        await Talk(agent).say("hi")
        assert agent.description == "Repeats each message"
        early = RemoteAgent(name="early", url=url)
        await early.learn()
        assert early.description == "Repeats each message"
        given = RemoteAgent(name="given", url=url, description="My words")
        await given.learn()
        assert given.description == "My words"
        for each in (agent, early, given):
            await each.close()


@pytest.mark.requirement("S2-105")
async def test_callbacks_run_before_and_after_it(remote: Make) -> None:
    parrot = Parrot()
    order: list[str] = []

    def before(callback_context: Any) -> None:
        order.append("before")

    def after(callback_context: Any) -> types.Content:
        order.append(f"after {len(parrot.received)}")
        return types.Content(role="model", parts=[types.Part(text="and more")])

    agent = remote(parrot, before_agent_callback=before, after_agent_callback=after)
    assert texts_of(await Talk(agent).say("hi")) == ["echo hi", "and more"]
    assert order == ["before", "after 1"]


@pytest.mark.requirement("S2-105")
async def test_a_callback_that_answers_itself_keeps_the_remote_agent_out_of_it(remote: Make) -> None:
    parrot = Parrot()

    async def before(callback_context: Any) -> types.Content:
        return types.Content(role="model", parts=[types.Part(text="not now")])

    assert texts_of(await Talk(remote(parrot, before_agent_callback=before)).say("hi")) == ["not now"]
    assert parrot.received == []


@pytest.mark.requirement("S2-106")
@pytest.mark.parametrize(("streaming", "method"), [(False, "SendMessage"), (True, "SendStreamingMessage")])
async def test_the_run_config_says_whether_it_is_sent_or_streamed(remote: Make, streaming: bool, method: str) -> None:
    app = Recorded(Parrot().app(store="memory:"))
    talk = Talk(remote(app), streaming=streaming)
    assert texts_of(await talk.say("hi")) == ["echo hi"]
    # Who sends may look afterwards what has become of it.
    assert [each for each in app.methods if each.startswith("Send")] == [method]
    assert not streaming or len(app.methods) == 1


@pytest.mark.requirement("S2-106")
@pytest.mark.parametrize(
    ("config", "method"),
    [
        (RunConfig(streaming_mode=StreamingMode.NONE), "message/send"),
        (RunConfig(streaming_mode=StreamingMode.SSE), "message/stream"),
        (None, "message/send"),
    ],
)
async def test_an_agent_of_0_3_is_called_with_the_method_that_the_run_config_asks_for(
    remote: Make, config: RunConfig | None, method: str
) -> None:
    class Echo(a2a.AgentExecutor):
        async def execute(self, context: a2a.RequestContext, task_id: str) -> None:
            await context.queue.enqueue(a2a.Message("agent", (a2a.TextPart(f"echo {context.message.text}"),)))

        async def cancel(self, context: a2a.RequestContext, task_id: str) -> None: ...

    streaming = a2a.AgentCapabilities(streaming=True)
    card = a2a.AgentCard("echo", "Says it again", "http://test", "1.0.0", capabilities=streaming)
    app = Recorded(a2a.RequestHandler(Echo, agent_card=card).app())
    talk = Talk(remote(app))
    assert texts_of(await talk.say("hi", config=config)) == ["echo hi"]
    assert app.methods[0] == method
    assert {each for each in app.methods if each.startswith("message/")} == {method}


@pytest.mark.requirement("S2-90")
async def test_a_config_is_an_agent_as_one_value() -> None:
    app = Recorded(Parrot().app(store="memory:"))
    config = RemoteAgent.Config(name="far", url=app, description="Hears", client_opts={"auth": "s3cret"})
    agent = RemoteAgent(config)
    try:
        assert (agent.name, agent.description) == ("far", "Hears")
        assert texts_of(await Talk(agent).say("hi")) == ["echo hi"]
        assert app.headers[-1]["authorization"] == "Bearer s3cret"
    finally:
        await agent.close()
    with pytest.raises(ConfigError, match="needs url="):
        RemoteAgent(RemoteAgent.Config(name="far"))


async def test_a_copy_under_another_name_calls_the_same_agent(remote: Make) -> None:
    parrot = Parrot()
    copy = remote(parrot).clone(update={"name": "other"})
    assert [event.author for event in await Talk(copy).say("hi")] == ["other"]
    assert parrot.received == ["hi"]


def test_without_google_adk_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.adk", None)
    monkeypatch.delitem(vars(dragoman.adk), "RemoteAgent", raising=False)
    with pytest.raises(ConfigError, match=r"needs the extra `adk`: .*\[adk\]"):
        _ = dragoman.adk.RemoteAgent
    with pytest.raises(AttributeError):
        _ = dragoman.adk.Other  # type: ignore[attr-defined]


def test_importing_the_module_does_not_import_adk() -> None:
    code = "import sys, dragoman.adk; assert dir(dragoman.adk) == ['RemoteAgent']; print('google.adk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
