"""Both pairings with google-adk's own bridge: Dragoman's server and their client, their server and Dragoman's client."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types
from interop_field import ADK, ADK_CLIENT, ADK_SERVERS, PROGRAMS, serving
from interop_table import ABSENT, ADK_OURS, ADK_THEIRS, FAIL, PASS, PEER, Cell

from dragoman import Agent, Client, State
from dragoman.adk import RemoteAgent
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SRC = Path(__file__).resolve().parents[2] / "src"
SECONDS = 30
PIECES = 5
WELL_KNOWN = "/.well-known/agent-card.json"

Turns = list[list[dict[str, Any]]]
Try = Callable[..., Any]


def _load(name: str) -> Any:
    # By path: in importlib mode neither tests/ nor its parent is on sys.path.
    spec: Any = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = _load("adk_script")
WHOLE = "".join(script.pieces(PIECES))


@pytest.fixture
def trying(record: Callable[[Cell], None]) -> Try:
    """Puts a cell into the table: how the block went, or that the peer cannot do better and the block has shown it."""

    @contextmanager
    def tried(direction: str, wire: str, operation: str, found: str = PASS, why: str = "") -> Generator[None]:
        try:
            yield
        except BaseException as error:
            record(Cell(direction, str(ADK), wire, operation, FAIL, str(error)))
            raise
        record(Cell(direction, str(ADK), wire, operation, found, why))

    return tried


# -- their RemoteA2aAgent, our server ----------------------------------------------------------------------------------

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "answer": [{"text": "hello"}, {"text": "hello"}],
    "tokens": [{"text": f"stream {PIECES}"}],
    "tools": [{"text": "add"}],
    "pause": [{"text": "review"}, {"answer": {"result": "yes"}}],
    "words": [{"text": "review"}, {"text": "yes"}],
    "allowed": [{"text": "delete"}, {"answer": {"confirmed": True}}],
    "refused": [{"text": "delete"}, {"answer": {"confirmed": False}}],
    "thought": [{"text": "think"}],
    "failed": [{"text": "refuse"}],
    "secret": [{"text": "fail"}],
    "saved": [{"text": "save"}],
}

EMPTY = (
    "RemoteA2aAgent keeps an event without content before the answer and another after it, both of which it calls "
    "final, and after a pause it tells the question again as a thought."
)
NO_ERROR = "RemoteA2aAgent makes an ordinary text of the reason: the event has neither error_code nor error_message."
GOES_ON = "RemoteA2aAgent does not cancel the task of a run that was left."
FLOATS = "google-adk keeps data in a2a-sdk's protobuf, where every number is a float: `2` is read as `2.0`."


def drive(url: str, conversations: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Have their client play conversations; what it said of each."""
    if ADK.missing:
        pytest.skip(ADK.missing)
    done = subprocess.run(
        [*ADK.client, url],
        input=json.dumps(conversations),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "OTEL_SDK_DISABLED": "true"},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {each["name"]: each for each in found}


@pytest.fixture(scope="module")
def our_server() -> Iterator[str]:
    with served(Agent.from_adk(script.agent())) as url:
        yield url


@pytest.fixture(scope="module")
def heard(our_server: str) -> dict[str, dict[str, Any]]:
    """What their client made of every conversation."""
    return drive(our_server, CONVERSATIONS)


def parts(event: dict[str, Any]) -> list[dict[str, Any]]:
    return event.get("content", {}).get("parts") or []


def text(event: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in parts(event) if not part.get("thought"))


def pieces_of(turn: list[dict[str, Any]]) -> list[str]:
    return [text(event) for event in turn if event.get("partial")]


def said(events: list[dict[str, Any]]) -> list[str]:
    """What was told as a whole."""
    return [text(event) for event in events if not event.get("partial") and text(event)]


def kept(conversation: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in conversation["kept"] if event["author"] != "user"]


def waiting(turn: list[dict[str, Any]]) -> dict[str, Any]:
    """The part of the one call that waits for an answer."""
    [event] = [event for event in turn if event.get("long_running_tool_ids")]
    [part] = [part for part in parts(event) if "function_call" in part]
    assert event["long_running_tool_ids"] == [part["function_call"]["id"]]
    return part


@pytest.mark.requirement("S2-2", "S2-117")
def test_their_client_gets_an_answer_once_and_keeps_it_once(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "answer"):
        for turn in heard["answer"]["turns"]:
            assert said(turn) == ["I heard you."]
        assert said(kept(heard["answer"])) == ["I heard you."] * 2
        assert len({event["custom_metadata"]["a2a:context_id"] for event in kept(heard["answer"])}) == 1
        assert said(kept(heard["thought"])) == ["Thought of."]


def test_their_client_gets_it_piece_by_piece(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "tokens"):
        [turn] = heard["tokens"]["turns"]
        assert pieces_of(turn) == script.pieces(PIECES)
        assert said(turn) == said(kept(heard["tokens"])) == [WHOLE]


def test_their_client_keeps_empty_events_of_its_own(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "bare", PEER, EMPTY):
        first, answer, last = (event for event in heard["tokens"]["turns"][0] if not event.get("partial"))
        assert (parts(first), parts(last)) == ([], [])
        assert first["final"] and answer["final"] and last["final"]
        again = heard["pause"]["turns"][1][0]
        assert all(part["thought"] for part in parts(again))
        assert waiting([again])["function_call"]["name"] == "review"


def test_their_client_is_not_told_of_tools(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "tools"):
        [turn] = heard["tools"]["turns"]
        assert said(turn) == ["The sum is 5."]
        assert not [part for event in turn for part in parts(event) if "text" not in part]


@pytest.mark.parametrize("answer", ["pause", "words"])
def test_their_client_answers_a_tool_that_waits(heard: Any, answer: str, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, answer):
        asked, answered = heard[answer]["turns"]
        part = waiting(asked)
        assert part["function_call"]["name"] == "review"
        assert part["part_metadata"] == {"adk_type": "function_call", "adk_is_long_running": True}
        assert said(answered) == ["The review says yes."]
        assert pieces_of(answered) == ["The review ", "says yes."]
        assert len({event["custom_metadata"]["a2a:task_id"] for event in [*asked, *answered]}) == 1


def test_their_client_allows_a_tool_or_does_not(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "allow"):
        for name, outcome in ("allowed", "It is gone."), ("refused", "It is still there."):
            asked, answered = heard[name]["turns"]
            call = waiting(asked)["function_call"]
            assert call["name"] == "adk_request_confirmation"
            assert call["args"]["originalFunctionCall"]["args"] == {"path": "old.txt"}
            assert said(answered) == [outcome]


def test_their_client_makes_a_text_of_a_failure(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "failed", PEER, NO_ERROR):
        [turn] = heard["failed"]["turns"]
        assert said(turn) == [script.REFUSAL]
        assert not [event for event in turn if event.get("error_code") or event.get("error_message")]
        failed = turn[-1]["custom_metadata"]["a2a:response"]
        assert "TASK_STATE_FAILED" in json.dumps(failed)


def test_their_client_hears_nothing_of_an_exception(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "secret"):
        assert "TASK_STATE_FAILED" in json.dumps(heard["secret"])
        assert script.SECRET not in json.dumps(heard["secret"])


def test_their_client_gets_a_saved_file(heard: Any, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "saved"):
        [turn] = heard["saved"]["turns"]
        [file] = [part["inline_data"] for event in turn for part in parts(event) if "inline_data" in part]
        assert file == {"data": "a2VwdA==", "display_name": script.FILE_NAME, "mime_type": "text/plain"}
        assert said(turn) == ["Done."]


def test_integers_leave_our_server_as_integers(heard: Any, our_server: str, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "numbers", PEER, FLOATS):
        task = posted(our_server, "review")["result"]["task"]
        [data] = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
        assert repr(data["args"]) == "{'amount': 2}"
        assert repr(waiting(heard["pause"]["turns"][0])["function_call"]["args"]) == "{'amount': 2.0}"


async def test_their_client_leaves_and_the_task_goes_on(our_server: str, trying: Try) -> None:
    with trying(ADK_THEIRS, ADK_CLIENT, "cancel", PEER, GOES_ON):
        script.began.clear()
        script.canceled.clear()
        [turn] = drive(our_server, {"left": [{"text": "hang", "leave": True}]})["left"]["turns"]
        assert text(turn[-1]) == "Please "
        assert script.began.wait(SECONDS)
        async with Client(our_server) as client:
            [task] = [task async for task in client.list_tasks(state=State.WORKING)]
            assert (await client.cancel_task(task)).state is State.CANCELED
        assert script.canceled.wait(SECONDS)


def posted(url: str, said: str) -> dict[str, Any]:
    """The answer to a message, as it stands on the wire."""
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": said}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    with urlopen(Request(url, json.dumps(call).encode(), headers)) as answer:
        return json.loads(answer.read())


def test_their_client_and_dragoman_serve(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragoman.cli.main", "serve", "--adk", f"{PROGRAMS / 'adk_script.py'}:root_agent"]
    with subprocess.Popen(
        [*command, "--port", "0", "--store", "memory:"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC), "OTEL_SDK_DISABLED": "true"},
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            url = next(found[1] for line in lines if (found := re.search(rf"(http://\S+?){WELL_KNOWN}", line)))
            [turn] = drive(url, {"tokens": CONVERSATIONS["tokens"]})["tokens"]["turns"]
        finally:
            process.terminate()
    assert pieces_of(turn) == script.pieces(PIECES)
    assert said(turn) == [WHOLE]


# -- our RemoteAgent, their to_a2a -------------------------------------------------------------------------------------

NO_TOKENS = "to_a2a streams no tokens, though its card says that it streams: its converter of requests must be replaced."
AS_NOTES = "to_a2a tells every token as a note of progress, and the whole text as another: they are shown as thoughts."
A_NEW_MESSAGE = "to_a2a gives the words to the model as a new message; the tool never hears of them."
NO_WORDS = "to_a2a refuses plain words: it wants a function response, and asks for one in words."
TOLD = "to_a2a tells the text of an exception to the caller."
NOT_SENT = "to_a2a does not send saved files, unless an interceptor is added."
STATUS_FLOATS = "google-adk keeps data in a2a-sdk's protobuf, where every number is a float: `2` arrives as `2.0`."

NEW = ("v2", "v2-streaming")


class Talk:
    """A user who talks with their agent through a RemoteAgent."""

    def __init__(self, url: str, mode: StreamingMode) -> None:
        self.agent = RemoteAgent(name="far", url=url)
        self._runner = InMemoryRunner(agent=self.agent, app_name="talk")
        self._mode = mode

    async def turn(self, *said: str | types.Part) -> AsyncGenerator[Event, None]:
        sessions = self._runner.session_service
        who = {"app_name": "talk", "user_id": "ada", "session_id": "one"}
        if await sessions.get_session(**who) is None:
            await sessions.create_session(**who)
        told = [types.Part(text=each) if isinstance(each, str) else each for each in said]
        events = self._runner.run_async(
            user_id="ada",
            session_id="one",
            new_message=types.Content(role="user", parts=told),
            run_config=RunConfig(streaming_mode=self._mode),
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def say(self, *said: str | types.Part) -> list[Event]:
        async with aclosing(self.turn(*said)) as events:
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
        assert (await Client(f"{talk.agent._line._target}").card()).capabilities.streaming
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
        told = [part for event in events for part in _parts(event) if part.text is None]
        # The newer of their executors sends them as artifacts. They are what they were, and no answers.
        assert [bool(part.function_call or part.function_response) for part in told] == [True] * (
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


async def test_our_agent_answers_in_plain_words(talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "words", PEER, NO_WORDS if path in NEW else A_NEW_MESSAGE):
        asked = await talk.say("review")
        answered = await talk.say("yes")
        assert len(_task_ids([*asked, *answered])) == 1
        if path in NEW:
            refusal = "It was not provided a function response for the function call."
            assert pending(answered).args == {"input_required": refusal}
        else:
            assert whole(answered) == ["I heard you."]


async def test_our_agent_allows_a_tool_or_does_not(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "allow"):
        for confirmed, outcome in (True, "It is gone."), (False, "It is still there."):
            call = pending(await any_talk.say("delete"))
            assert call.name == "adk_request_confirmation"
            assert whole(await any_talk.say(answer(call, confirmed=confirmed))) == [outcome]


async def test_our_agent_makes_an_error_of_a_failure(any_talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "failed"):
        events = await any_talk.say("refuse")
        assert (events[-1].error_code, events[-1].error_message) == ("remote_agent_error", script.REFUSAL)
        assert whole(events) == []


async def test_their_server_tells_exceptions(talk: Talk, path: str, trying: Try) -> None:
    with trying(ADK_OURS, path, "secret", PEER, TOLD):
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


async def test_our_agent_leaves_and_the_task_is_canceled(
    talk: Talk, their_server: str, path: str, trying: Try
) -> None:
    with trying(ADK_OURS, path, "cancel"):
        async with aclosing(talk.turn("hang")) as events:
            assert "wait" in "".join(part.text or "" for part in _parts(await anext(events)))
        async with Client(f"{their_server}/{path}") as client:
            found = [task.state async for task in client.list_tasks()]
        assert found.count(State.CANCELED) == 1
        assert not [state for state in found if state in (State.WORKING, State.SUBMITTED)]


def _task_ids(events: list[Event]) -> set[str]:
    return {event.custom_metadata["a2a:task_id"] for event in events if event.custom_metadata}
