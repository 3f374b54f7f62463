"""google-adk's own `to_a2a`, called by Dragoman's RemoteAgent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing
from typing import Any

import pytest
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types
from interop.field import ADK, ADK_SERVERS, ADKS, Peer, program, serving
from interop.table import ABSENT, ADK_OURS, PASS, PEER

from dragoman import Agent, Client, Part, State
from dragoman.adk import RemoteAgent
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

Try = Callable[..., Any]

script = program("adk_script")
PIECES = 5
WHOLE = "".join(script.pieces(PIECES))

NO_TOKENS = (
    "to_a2a streams no tokens, though its card says that it streams: its converter of requests must be replaced."
)
AS_NOTES = "to_a2a tells every token as a note of progress, and the whole text as another: they are shown as thoughts."
EXPOSES_EXCEPTIONS = "to_a2a tells the text of an exception to the caller."
NOT_SENT = "to_a2a does not send saved files, unless an interceptor is added."
STATUS_FLOATS = "google-adk keeps data in a2a-sdk's protobuf, where every number is a float: `2` arrives as `2.0`."

NEW = ("v2", "v2-streaming")


class Talk:
    """A user who talks with their agent through a RemoteAgent."""

    def __init__(self, url: str, mode: StreamingMode) -> None:
        self.agent = RemoteAgent(name="far", url=url)
        self._runner = InMemoryRunner(agent=self.agent, app_name="talk")
        self._mode = mode

    async def turn(self, *texts: str | types.Part) -> AsyncGenerator[Event, None]:
        sessions = self._runner.session_service
        who = {"app_name": "talk", "user_id": "ada", "session_id": "one"}
        if await sessions.get_session(**who) is None:
            await sessions.create_session(**who)
        parts = [types.Part(text=each) if isinstance(each, str) else each for each in texts]
        events = self._runner.run_async(
            user_id="ada",
            session_id="one",
            new_message=types.Content(role="user", parts=parts),
            run_config=RunConfig(streaming_mode=self._mode),
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def say(self, *texts: str | types.Part) -> list[Event]:
        async with aclosing(self.turn(*texts)) as events:
            return [event async for event in events]

    async def kept(self) -> list[Event]:
        session = await self._runner.session_service.get_session(app_name="talk", user_id="ada", session_id="one")
        assert session is not None
        return [event for event in session.events if event.author != "user"]


@pytest.fixture(scope="module")
def their_server() -> Iterator[str]:
    if ADK.missing:
        pytest.skip(ADK.missing)
    with serving(ADK) as url:
        yield url


@pytest.fixture(params=ADK_SERVERS)
def path(request: pytest.FixtureRequest) -> str:
    """Which of their servers."""
    return request.param


@pytest.fixture
async def talk(their_server: str, path: str) -> AsyncGenerator[Talk]:
    """A conversation that is streamed."""
    talk = Talk(f"{their_server}/{path}", StreamingMode.SSE)
    yield talk
    await talk.agent.close()


@pytest.fixture(params=[StreamingMode.SSE, StreamingMode.NONE], ids=lambda mode: mode.name.lower())
async def any_talk(their_server: str, path: str, request: pytest.FixtureRequest) -> AsyncGenerator[Talk]:
    """A conversation that is streamed, and one that is not."""
    talk = Talk(f"{their_server}/{path}", request.param)
    yield talk
    await talk.agent.close()


def words(event: Event) -> str:
    return "".join(part.text or "" for part in _parts(event) if not part.thought)


def whole(events: list[Event]) -> list[str]:
    return [words(event) for event in events if not event.partial and words(event)]


def _parts(event: Event) -> list[types.Part]:
    return (event.content.parts if event.content is not None else None) or []


def pending(events: list[Event]) -> types.FunctionCall:
    """The one call that waits for an answer."""
    [call] = [
        call for each in events for call in each.get_function_calls() if call.id in (each.long_running_tool_ids or ())
    ]
    return call


def answer(call: types.FunctionCall, **response: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response))


@pytest.mark.requirement("S2-3", "S2-54", "S2-117")
async def test_our_agent_gets_an_answer_once_and_keeps_it_once(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "answer"):
        for _ in range(2):
            events = await any_talk.say("hello")
            assert whole(events) == ["I heard you."]
            [last] = [event for event in events if event.is_final_response()]
            assert (last.turn_complete, words(last)) == (True, "I heard you.")
        kept = await any_talk.kept()
        assert whole(kept) == ["I heard you."] * 2
        assert len({(event.custom_metadata or {})["a2a:context_id"] for event in kept}) == 1


async def test_our_agent_gets_it_piece_by_piece(talk: Talk, path: str, trying: Try) -> None:
    verdict = {"v2-streaming": (PASS, ""), "legacy-streaming": (PEER, AS_NOTES)}.get(path, (ABSENT, NO_TOKENS))
    with trying(ADK_OURS, path, "tokens", *verdict):
        events = await talk.say(f"stream {PIECES}")
        shown = [words(event) for event in events if event.partial]
        thought = ["".join(part.text or "" for part in _parts(event) if part.thought) for event in events[:-1]]
        match path:
            case "v2-streaming":
                assert shown == script.pieces(PIECES)
            case "legacy-streaming":
                assert thought == [*script.pieces(PIECES), WHOLE]
            case "legacy":
                assert thought == [WHOLE]
            case _:
                assert len(events) == 1
        assert whole(events) == whole(await talk.kept()) == [WHOLE]


async def test_our_agent_keeps_no_empty_event_and_nothing_twice(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "bare"):
        for text in "hello", f"stream {PIECES}", "add":
            events = await any_talk.say(text)
            assert all(_parts(event) for event in events)
            assert [event.is_final_response() for event in events if not event.partial].count(True) == 1
        assert whole(await any_talk.kept()) == ["I heard you.", WHOLE, "The sum is 5."]


async def test_our_agent_takes_no_call_of_a_tool_for_the_answer(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "tools"):
        events = await any_talk.say("add")
        assert whole(events) == ["The sum is 5."]
        assert words(events[-1]) == "The sum is 5."
        parts = [part for event in events for part in _parts(event) if part.text is None]
        # The newer of their executors sends them as artifacts. They are what they were, and no answers.
        assert [bool(part.function_call or part.function_response) for part in parts] == [True] * (
            2 if path in NEW else 0
        )


async def test_our_agent_answers_a_tool_that_waits(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "pause"):
        asked = await any_talk.say("review")
        call = pending(asked)
        assert call.name == "review"
        [part] = [part for part in _parts(asked[-1]) if part.function_call]
        assert (part.part_metadata or {})["adk_is_long_running"] is True
        answered = await any_talk.say(answer(call, result="yes"))
        assert whole(answered) == ["The review says yes."]
        assert len(_task_ids([*asked, *answered])) == 1


async def test_our_agent_answers_in_plain_words(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "words"):
        asked = await any_talk.say("review")
        answered = await any_talk.say("yes")
        assert whole(answered) == ["The review says yes."]
        assert len(_task_ids([*asked, *answered])) == 1
        await any_talk.say("delete")
        assert whole(await any_talk.say("yes")) == ["It is gone."]


async def test_our_agent_allows_a_tool_or_does_not(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "allow"):
        for confirmed, outcome in (True, "It is gone."), (False, "It is still there."):
            call = pending(await any_talk.say("delete"))
            assert call.name == "adk_request_confirmation"
            assert whole(await any_talk.say(answer(call, confirmed=confirmed))) == [outcome]


async def test_our_agent_makes_an_error_of_a_failure(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "failure"):
        events = await any_talk.say("refuse")
        assert (events[-1].error_code, events[-1].error_message) == ("remote_agent_error", script.REFUSAL)
        assert whole(events) == []


async def test_their_server_tells_exceptions(talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "secret", PEER, EXPOSES_EXCEPTIONS):
        events = await talk.say("fail")
        assert (events[-1].error_code, events[-1].error_message) == ("remote_agent_error", script.SECRET)


async def test_their_server_drops_saved_files(talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "saved", ABSENT, NOT_SENT):
        events = await talk.say("save")
        assert whole(events) == ["Done."]
        assert not [part for event in events for part in _parts(event) if part.inline_data or part.file_data]


async def test_their_server_makes_floats_of_integers(talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "numbers", PEER, STATUS_FLOATS):
        assert repr(pending(await talk.say("review")).args) == "{'amount': 2.0}"


async def test_our_agent_leaves_and_the_task_is_canceled(talk: Talk, their_server: str, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "leave"):
        async with Client(f"{their_server}/{path}") as client:
            run = asyncio.ensure_future(talk.say("hang"))
            while not (at_work := [task async for task in client.list_tasks() if task.state is State.WORKING]):
                assert not run.done()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert [(await client.get_task(task)).state for task in at_work] == [State.CANCELED]


def _task_ids(events: list[Event]) -> set[str]:
    return {event.custom_metadata["a2a:task_id"] for event in events if event.custom_metadata}


# Every version of `to_a2a`, by a plain client


@pytest.mark.parametrize("front", [False, True], ids=["direct", "in-front"])
@pytest.mark.parametrize("adk", ADKS, ids=str)
async def test_our_client_reads_every_version_directly_and_through_a_server_of_ours(
    server_of: Callable[[Peer], str], adk: Peer, front: bool
) -> None:
    url = f"{server_of(adk)}/legacy" if adk is ADK else server_of(adk)
    with ExitStack() as stack:
        async with Client(stack.enter_context(served(Agent.from_a2a(url))) if front else url) as client:
            assert [(await client.send("hello")).text for _ in range(2)] == ["I heard you."] * 2
            stream = client.stream(f"stream {PIECES}")
            assert "".join([event.text async for event in stream if event.text]) == WHOLE
            assert (await client.get_task(stream.task)).text == WHOLE
            failed = await client.send("refuse")
            assert (failed.state, failed.error) == (State.FAILED, script.REFUSAL)
            asked = await client.send("review")
            assert asked.state is State.INPUT_REQUIRED
            [call] = [part for part in asked.status.message.parts if "adk_is_long_running" in (part.metadata or {})]
            answer = {"id": call.data["id"], "name": call.data["name"], "response": {"result": "yes"}}
            response = Part(data=answer, metadata={"adk_type": "function_response"})
            assert (await client.send(files=[response], task=asked)).text == "The review says yes."
