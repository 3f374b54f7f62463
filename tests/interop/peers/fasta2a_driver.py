"""Drive an agent through the client of fasta2a, one JSON line per case.

Runs in the environment of tests/interop/peers/fasta2a.txt, never in ours:

    fasta2a_driver.py BASE_URL --transport jsonrpc --protocol 1.0 [--only CASE]

Its client has three methods: send, stream and get. It calls them by the names of 0.3, without a version header, and
writes and reads the objects of 1.0, so what it says belongs to neither version.

The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed.
"""

import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from driving import HTTP_TIMEOUT, UNSUPPORTED, PeerAtFault, case, drive, expect
from fasta2a.client import A2AClient
from fasta2a.schema import Message, Part

NO_METHOD = UNSUPPORTED + "its client has no method for it"


MIXED_VERSIONS = "it calls message/send, a name of 0.3, and looks in the answer of 0.3 for the wrapper of 1.0"


@dataclass
class Peer:
    """The agent under test, seen through the client; and what the agent really answered last."""

    client: A2AClient
    answered: bytes = b""

    async def keep(self, response: httpx.Response) -> None:
        self.answered = await response.aread()

    @property
    def result(self) -> dict[str, Any]:
        """The result of the last answer, or of the first event of a stream, as it was on the wire."""
        lines = [line for line in self.answered.splitlines() if line.startswith((b"{", b"data: "))]
        return json.loads(lines[0].removeprefix(b"data: "))["result"]

    def fault(self, kind: str) -> PeerAtFault:
        """The client read nothing from an answer that was right.

        Raises:
            CaseFailed: the answer was not right.
        """
        expect(self.result.get("kind") == kind, f"the agent answered {self.result}, wanted a {kind} of 0.3")
        return PeerAtFault(MIXED_VERSIONS)


def message_of(part: Part, **ids: str) -> Message:
    return Message(role="user", parts=[part], message_id=str(uuid.uuid4()), **ids)  # type: ignore[typeddict-item]


def calling(skill: str, **arguments: Any) -> Part:
    return {"data": {"tool": skill, "arguments": arguments}}


async def exchange(peer: Peer, message: Message, kind: str) -> dict[str, Any]:
    """What the client found in the answer to a send: a task or a message."""
    answer: dict[str, Any] = dict(await peer.client.send_message(message))
    expect("error" not in answer, f"it was refused: {answer.get('error')}")
    if kind not in answer["result"]:
        raise peer.fault(kind)
    return answer["result"][kind]


async def send_for_task(peer: Peer, part: Part, **ids: str) -> dict[str, Any]:
    return await exchange(peer, message_of(part, **ids), "task")


def expect_state(task: dict[str, Any], wanted: str) -> None:
    state = task["status"]["state"]
    expect(state == wanted, f"state is {state}, wanted {wanted}")


def text_of(task: dict[str, Any]) -> str:
    parts = [part for artifact in task.get("artifacts") or [] for part in artifact["parts"]]
    return "".join(part.get("text", "") for part in parts or task["status"].get("message", {}).get("parts", []))


@case
async def send(peer: Peer) -> str:
    task = await send_for_task(peer, {"text": "hello"})
    expect_state(task, "completed")
    expect(text_of(task) == "hello", f"echo answered {text_of(task)!r}")
    return "completed"


@case
async def send_reply(peer: Peer) -> str:
    message = await exchange(peer, message_of(calling("reply", text="hi")), "message")
    expect(message["parts"][0].get("text") == "hi", f"it says {message}")
    return "a bare message"


@case
async def stream(peer: Peer) -> str:
    text, state, count = "", "", 0
    async for answer in peer.client.stream_message(message_of(calling("count", n=3))):
        expect("result" in answer, f"it was refused: {answer}")
        event: dict[str, Any] = dict(answer["result"])
        if not event:
            raise peer.fault("task")
        count += 1
        if "artifact_update" in event:
            text += "".join(part.get("text", "") for part in event["artifact_update"]["artifact"]["parts"])
        status = event.get("task", event.get("status_update"))
        state = status["status"]["state"] if status else state
    expect(text == "1 2 3 ", f"the chunks make {text!r}")
    expect(state == "completed", f"the stream ends {state}")
    return f"{count} events"


@case
async def get_task(peer: Peer) -> str:
    await peer.client.send_message(message_of({"text": "hello"}))
    task_id = peer.result["id"]  # what the client makes of the answer is for the other cases to tell
    answer: dict[str, Any] = dict(await peer.client.get_task(task_id))
    expect("result" in answer, f"it was refused: {answer.get('error')}")
    expect(answer["result"]["id"] == task_id, "another task")
    expect_state(answer["result"], "completed")
    expect(text_of(answer["result"]) == "hello", f"its text is {text_of(answer['result'])!r}")
    return "the task"


@case
async def get_unknown(peer: Peer) -> str:
    answer: dict[str, Any] = dict(await peer.client.get_task(str(uuid.uuid4())))
    expect(answer.get("error", {}).get("code") == -32001, f"wanted TaskNotFound, got {answer}")
    return "TaskNotFound"


@case
async def multi_turn(peer: Peer) -> str:
    asked = await send_for_task(peer, calling("ask_name"))
    expect_state(asked, "input-required")
    answered = await send_for_task(peer, {"text": "Ada"}, task_id=asked["id"], context_id=asked["context_id"])
    expect_state(answered, "completed")
    expect(answered["id"] == asked["id"], "the answer went to another task")
    expect(text_of(answered) == "Hello Ada", f"it answered {text_of(answered)!r}")
    return "asked and answered"


@case
async def failed(peer: Peer) -> str:
    task = await send_for_task(peer, calling("boom"))
    expect_state(task, "failed")
    return text_of(task)


@case
async def data_roundtrip(peer: Peer) -> str:
    value = {"number": 7, "half": 0.5, "yes": True, "none": None, "list": [1, "two", {"three": 3}], "text": "ünï"}
    task = await send_for_task(peer, calling("same", value=value))
    seen = [part.get("data") for artifact in task["artifacts"] for part in artifact["parts"]]
    expect(seen == [value], f"{value} came back as {seen}")
    return "equal"


@case
async def file_roundtrip(peer: Peer) -> str:
    # No skill of the agent returns files: the one that was sent must stand in the history as it came.
    file: Part = {"raw": "AAFkcmFnb21hbg==", "filename": "blob.bin", "media_type": "application/octet-stream"}
    message = message_of({"text": "hello"})
    message["parts"].append(file)
    task = await exchange(peer, message, "task")
    seen = [part for message in task["history"] for part in message["parts"] if "raw" in part]
    expect(seen == [file], f"{file} came back as {seen}")
    return "equal in the history"


@case
async def list_tasks(peer: Peer) -> str:
    return without(peer, "list_tasks")


@case
async def cancel(peer: Peer) -> str:
    return without(peer, "cancel_task")


@case
async def subscribe(peer: Peer) -> str:
    return without(peer, "resubscribe", "resubscribe_task", "subscribe")


@case
async def push_config(peer: Peer) -> str:
    return without(peer, "set_task_push_notification")


@case
async def extended_card(peer: Peer) -> str:
    return without(peer, "get_extended_agent_card", "get_card")


def without(peer: Peer, *names: str) -> str:
    """The client has none of these methods."""
    there = [name for name in names if hasattr(peer.client, name)]
    expect(not there, f"the client has {there} now: test it")
    return NO_METHOD


@asynccontextmanager
async def opened(url: str, transport: str, protocol: str) -> AsyncIterator[tuple[Peer, str]]:
    async with httpx.AsyncClient(timeout=HTTP_TIMEOUT) as http:
        peer = Peer(A2AClient(url, http_client=http))
        http.event_hooks["response"].append(peer.keep)
        yield peer, card_read_by_the_client(url)


def card_read_by_the_client(url: str) -> str:
    """What becomes of the card: the client demands more of it than the protocol does."""
    A2AClient(url, fetch_card=True)
    return "read"


if __name__ == "__main__":
    sys.exit(drive(opened, ["jsonrpc"], ["1.0"]))
