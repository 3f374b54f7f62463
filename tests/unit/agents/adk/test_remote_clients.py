"""The way to a remote agent: copies have their own, and event loops too."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from unit.agents.adk import remote_talk as talks
from unit.agents.adk.scripted import call

from dragoman import Agent
from dragoman.adk import RemoteAgent
from dragoman.testing import served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Talk, texts_of, top, types = talks.Talk, talks.texts_of, talks.top, talks.types


def pickled(agent: Any) -> Any:
    return pickle.loads(pickle.dumps(agent))


def deeply(agent: Any) -> Any:
    return agent.model_copy(deep=True)


# -- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, deeply, pickled])
async def test_a_copy_of_an_agent_that_is_in_use_calls_it_too(copied: Callable[[Any], Any]) -> None:
    with served(talks.Parrot()) as url:
        agent = RemoteAgent(name="far", url=url, headers={"x-team": "blue"})
        assert texts_of(await Talk(agent).say("one")) == ["echo one"]
        other = copied(agent)
        assert (other.name, other.description) == ("far", agent.description)
        assert texts_of(await Talk(other).say("two")) == ["echo two"]
        await other.close()
        # Each has its own way, or they share one that opens again.
        assert texts_of(await Talk(agent).say("three")) == ["echo three"]
        await agent.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, deeply])
async def test_a_deep_copy_calls_the_same_agent_of_this_process(copied: Callable[[Any], Any]) -> None:
    parrot = talks.Parrot()
    agent = RemoteAgent(name="far", url=parrot)
    await Talk(agent).say("one")
    other = copied(agent)
    await Talk(other).say("two")
    assert parrot.received == ["one", "two"]
    await agent.close()
    await other.close()


async def test_a_team_with_a_remote_agent_in_use_can_be_copied_deeply() -> None:
    agent = RemoteAgent(name="far", url=talks.Parrot())

    def team() -> LlmAgent:
        return top([call("transfer_to_agent", agent_name="far")], sub_agents=[agent.clone()])

    used = team()
    await Talk(used).say("one")
    other = copy.deepcopy(team())
    assert texts_of(await Talk(other).say("two"))[-1] == "echo two"
    await agent.close()
    await other.sub_agents[0].close()


# -- event loops -------------------------------------------------------------------------------------------------------


def turn(talk: Any, session: Any, text: str) -> list[Any]:
    """A turn of the synchronous runner, which has an event loop of its own."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return list(talk.runner.run(user_id=session.user_id, session_id=session.id, new_message=content))


def test_a_question_of_a_served_agent_is_answered_from_another_event_loop() -> None:
    with served(Agent("asker", run=talks.asks_who)) as url:
        agent = RemoteAgent(name="far", url=url)
        talk = Talk(agent)

        async def once(text: str) -> list[str]:
            try:
                return texts_of(await talk.say(text))
            finally:
                await agent.close()

        assert asyncio.run(once("hi")) == ["Who?"]
        assert asyncio.run(once("Ann")) == ["Hello Ann"]


def test_a_question_lost_with_its_event_loop_is_reported_once_as_an_error() -> None:
    talk = Talk(RemoteAgent(name="far", url=Agent("asker", run=talks.asks_who)))
    session = asyncio.run(talk.session())
    assert texts_of(turn(talk, session, "hi")) == ["Who?"]
    (event,) = turn(talk, session, "Ann")
    assert "on another event loop" in event.error_message and "run_async" in event.error_message
    # And then it is over with.
    assert texts_of(turn(talk, session, "hi again")) == ["Who?"]


def test_a_tool_reports_a_question_lost_with_its_event_loop() -> None:
    agent = RemoteAgent(name="far", url=Agent("asker", run=talks.asks_who))
    ask = [call("far", request="hi")]
    talk = Talk(top(*[ask, "ok"] * 3, tools=[agent.as_tool()]))
    session = asyncio.run(talk.session())

    def results() -> list[Any]:
        events = turn(talk, session, "go")
        return [response.response for event in events for response in event.get_function_responses()]

    assert results()[0]["question"] == "Who?"
    assert "on another event loop" in results()[0]["error"]
    assert results()[0]["question"] == "Who?"
