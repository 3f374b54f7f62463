"""Dragoman's server with an ADK agent, called by the RemoteA2aAgent of several versions of google-adk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from interop.adk_conversations import drive, parts, pieces_of, streams, text, texts
from interop.field import ADK, ADK_CLIENT, ADKS, PROGRAMS, Peer, program
from interop.table import ABSENT, ADK_THEIRS, PASS, PEER
from support.command import inherited_environment
from support.server_process import ServerProcess

from dragoman import Agent, Client, State
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SRC = Path(__file__).resolve().parents[2] / "src"
SECONDS = 30
PIECES = 5
WELL_KNOWN = "/.well-known/agent-card.json"

Try = Callable[..., Any]


script = program("adk_script")
WHOLE = "".join(script.pieces(PIECES))


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

EMPTY = "RemoteA2aAgent keeps an event without content after the answer, and calls both of them final."
MORE_EMPTY = "RemoteA2aAgent keeps events without content before the answer and after it, and calls all of them final."
NO_ERROR = "RemoteA2aAgent up to google-adk 2.5 makes an ordinary text of the reason: the event has no error_code."
NO_TASK = "RemoteA2aAgent sends plain words without the task whose question they answer: they are a new task."
GOES_ON = "RemoteA2aAgent does not cancel the task of a run that was left."
NO_STREAM = "RemoteA2aAgent of google-adk 1 does not stream, unless a client factory of its own is passed."
FLOATS = "google-adk keeps data in a2a-sdk's protobuf, where every number is a float: `2` is read as `2.0`."


@dataclass(frozen=True)
class Reports:
    """What the client of one version made of every conversation."""

    adk: Peer
    reports: dict[str, dict[str, Any]]

    @property
    def streams(self) -> bool:
        """Whether it streams."""
        return streams(self.adk)

    @property
    def names_tasks(self) -> bool:
        """Whether it sends plain words with the task that they answer: from 2.6 on."""
        return self.adk is ADK

    @property
    def failed(self) -> str:
        """How it spells the state of a failed task."""
        return '"TASK_STATE_FAILED"' if self.streams else '"failed"'

    def __getitem__(self, conversation: str) -> dict[str, Any]:
        return self.reports[conversation]


@pytest.fixture(scope="module", params=ADKS, ids=str)
def adk(request: pytest.FixtureRequest) -> Peer:
    return request.param


@pytest.fixture(scope="module")
def our_server() -> Iterator[str]:
    with served(Agent.from_adk(script.agent())) as url:
        yield url


@pytest.fixture(scope="module")
def received(adk: Peer, our_server: str) -> Reports:
    return Reports(adk, drive(adk, our_server, CONVERSATIONS))


@pytest.fixture
def trying(received: Reports, trying: Try) -> Try:
    """Put a cell of this version into the table."""
    return partial(trying, ADK_THEIRS, ADK_CLIENT, peer=received.adk)


def kept(conversation: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in conversation["kept"] if event["author"] != "user"]


def waiting(turn: list[dict[str, Any]]) -> dict[str, Any]:
    """The part of the one call that waits for an answer."""
    [event] = [event for event in turn if event.get("long_running_tool_ids")]
    [part] = [part for part in parts(event) if "function_call" in part]
    assert event["long_running_tool_ids"] == [part["function_call"]["id"]]
    return part


@pytest.mark.requirement("S2-2", "S2-117")
def test_their_client_gets_an_answer_once_and_keeps_it_once(received: Reports, trying: Try) -> None:
    with trying("answer"):
        for turn in received["answer"]["turns"]:
            assert texts(turn) == ["I heard you."]
        assert texts(kept(received["answer"])) == ["I heard you."] * 2
        assert len({event["custom_metadata"]["a2a:context_id"] for event in kept(received["answer"])}) == 1
        assert texts(kept(received["thought"])) == ["Thought of."]


def test_their_client_gets_it_piece_by_piece(received: Reports, trying: Try) -> None:
    with trying("tokens", *((PASS, "") if received.streams else (ABSENT, NO_STREAM))):
        [turn] = received["tokens"]["turns"]
        assert pieces_of(turn) == (script.pieces(PIECES) if received.streams else [])
        assert texts(turn) == texts(kept(received["tokens"])) == [WHOLE]


def test_their_client_keeps_an_empty_event_of_its_own(received: Reports, trying: Try) -> None:
    found, why = (PASS, "") if not received.streams else (PEER, EMPTY if received.names_tasks else MORE_EMPTY)
    with trying("bare", found, why):
        whole = [event for event in received["tokens"]["turns"][0] if not event.get("partial")]
        [answer] = [event for event in whole if parts(event)]
        assert (text(answer), answer["final"]) == (WHOLE, True)
        before, after = whole[: whole.index(answer)], whole[whole.index(answer) + 1 :]
        assert (len(before), len(after)) == (
            0 if found == PASS or received.names_tasks else 2,
            0 if found == PASS else 1,
        )
        # No question is repeated with its answer: by our marks it knows an ADK agent.
        answered = [event for event in received["pause"]["turns"][1] if text(event)]
        assert text(answered[0]) == ("The review " if received.streams else "The review says yes.")


def test_their_client_gets_no_events_of_tools(received: Reports, trying: Try) -> None:
    with trying("tools"):
        [turn] = received["tools"]["turns"]
        assert texts(turn) == ["The sum is 5."]
        assert not [part for event in turn for part in parts(event) if "text" not in part]


def test_their_client_answers_a_tool_that_waits(received: Reports, trying: Try) -> None:
    with trying("pause"):
        assert_answered(received, received["pause"])


def test_their_client_answers_a_tool_that_waits_in_plain_words(received: Reports, trying: Try) -> None:
    with trying("words", *((PASS, "") if received.names_tasks else (PEER, NO_TASK))):
        if received.names_tasks:
            assert_answered(received, received["words"])
            return
        asked, answered = received["words"]["turns"]
        assert texts(answered) == ["I heard you."]
        assert not tasks_of(asked) & tasks_of(answered)


def assert_answered(received: Reports, conversation: dict[str, Any]) -> None:
    asked, answered = conversation["turns"]
    part = waiting(asked)
    assert part["function_call"]["name"] == "review"
    if received.streams:  # before, a part has no metadata in ADK
        assert part["part_metadata"] == {"adk_type": "function_call", "adk_is_long_running": True}
        assert pieces_of(answered) == ["The review ", "says yes."]
    assert texts(answered) == ["The review says yes."]
    assert len(tasks_of([*asked, *answered])) == 1


def tasks_of(events: list[dict[str, Any]]) -> set[str]:
    return {event["custom_metadata"]["a2a:task_id"] for event in events}


def test_their_client_allows_a_tool_or_does_not(received: Reports, trying: Try) -> None:
    with trying("allow"):
        for name, outcome in ("allowed", "It is gone."), ("refused", "It is still there."):
            asked, answered = received[name]["turns"]
            call = waiting(asked)["function_call"]
            assert call["name"] == "adk_request_confirmation"
            assert call["args"]["originalFunctionCall"]["args"] == {"path": "old.txt"}
            assert texts(answered) == [outcome]


def test_their_client_gets_an_error_with_the_reason_of_a_failure(received: Reports, trying: Try) -> None:
    is_error = received.adk is ADK  # since when is not known: 2.5 does not
    with trying("failure", *((PASS, "") if is_error else (PEER, NO_ERROR))):
        [turn] = received["failed"]["turns"]
        assert texts(turn) == [script.REFUSAL]
        assert [event["error_code"] for event in turn if "error_code" in event] == ["FAILED"] * is_error
        assert received.failed in json.dumps(turn)


def test_their_client_never_gets_the_text_of_an_exception(received: Reports, trying: Try) -> None:
    with trying("secret"):
        assert received.failed in json.dumps(received["secret"])
        assert script.SECRET not in json.dumps(received["secret"])


def test_their_client_gets_a_saved_file(received: Reports, trying: Try) -> None:
    with trying("saved"):
        [turn] = received["saved"]["turns"]
        [file] = [part["inline_data"] for event in turn for part in parts(event) if "inline_data" in part]
        assert file == {"data": "a2VwdA==", "display_name": script.FILE_NAME, "mime_type": "text/plain"}
        assert texts(turn) == ["Done."]


def test_integers_leave_our_server_as_integers(received: Reports, our_server: str, trying: Try) -> None:
    with trying("numbers", *((PEER, FLOATS) if received.streams else (PASS, ""))):
        task = posted(our_server, "review")["result"]["task"]
        [data] = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
        assert repr(data["args"]) == "{'amount': 2}"
        read = waiting(received["pause"]["turns"][0])["function_call"]["args"]
        assert repr(read) == ("{'amount': 2.0}" if received.streams else "{'amount': 2}")


async def test_their_client_leaves_and_the_task_goes_on(received: Reports, our_server: str, trying: Try) -> None:
    if not received.streams:
        with trying("leave", ABSENT, NO_STREAM):
            return
    with trying("leave", PEER, GOES_ON):
        script.began.clear()
        script.canceled.clear()
        [turn] = drive(received.adk, our_server, {"left": [{"text": "hang", "leave": True}]})["left"]["turns"]
        assert text(turn[-1]) == "Please "
        assert script.began.wait(SECONDS)
        async with Client(our_server) as client:
            [task] = [task async for task in client.list_tasks(state=State.WORKING)]
            assert (await client.cancel_task(task)).state is State.CANCELED
        assert script.canceled.wait(SECONDS)


def posted(url: str, text: str) -> dict[str, Any]:
    """The answer to a message, as it stands on the wire."""
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": text}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    with urlopen(Request(url, json.dumps(call).encode(), headers)) as answer:
        return json.loads(answer.read())


def test_their_client_and_dragoman_serve(tmp_path: Path) -> None:
    agent, environment = f"{PROGRAMS / 'adk_script.py'}:root_agent", inherited_environment(OTEL_SDK_DISABLED="true")
    with ServerProcess.serve(tmp_path, "--adk", agent, environment=environment) as server:
        [turn] = drive(ADK, server.url, {"tokens": CONVERSATIONS["tokens"]})["tokens"]["turns"]
    assert pieces_of(turn) == script.pieces(PIECES)
    assert texts(turn) == [WHOLE]
