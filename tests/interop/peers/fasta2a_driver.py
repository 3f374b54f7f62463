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

    async def send(self, *parts: Part, kind: str = "task", state: str | None = None) -> None:
        """Send a message. The answer on the wire must be right, and the client reads nothing of it.

        Raises:
            CaseFailed: the answer was not right, or the client has read it.
            PeerAtFault: else.
        """
        answer: dict[str, Any] = dict(await self.client.send_message(message_of(*parts)))
        expect("error" not in answer, f"it was refused: {answer.get('error')}")
        found = self.result.get("kind"), self.result.get("status", {}).get("state")
        expect(found == (kind, state), f"the agent answered {self.result}, wanted a {kind} of 0.3 that is {state}")
        expect(kind not in answer["result"], f"the client reads answers now, test what it reads: {answer}")
        raise PeerAtFault(MIXED_VERSIONS)


def message_of(*parts: Part) -> Message:
    return Message(role="user", parts=list(parts), message_id=str(uuid.uuid4()))  # type: ignore[typeddict-item]


def calling(skill: str, **arguments: Any) -> Part:
    return {"data": {"tool": skill, "arguments": arguments}}


@case
async def send(peer: Peer) -> None:
    await peer.send({"text": "hello"}, state="completed")


@case
async def send_reply(peer: Peer) -> None:
    await peer.send(calling("reply", text="hi"), kind="message")


@case
async def multi_turn(peer: Peer) -> None:
    await peer.send(calling("ask_name"), state="input-required")


@case
async def failed(peer: Peer) -> None:
    await peer.send(calling("boom"), state="failed")


@case
async def data_roundtrip(peer: Peer) -> None:
    await peer.send(calling("same", value={"number": 7, "none": None, "text": "ünï"}), state="completed")


@case
async def file_roundtrip(peer: Peer) -> None:
    file: Part = {"raw": "AAFkcmFnb21hbg==", "filename": "blob.bin", "media_type": "application/octet-stream"}
    await peer.send({"text": "hello"}, file, state="completed")


@case
async def stream(peer: Peer) -> None:
    async for answer in peer.client.stream_message(message_of(calling("count", n=3))):
        expect("result" in answer, f"it was refused: {answer}")
        expect(peer.result.get("kind") == "task", f"the agent answered {peer.result}, wanted a task of 0.3")
        expect(not answer["result"], f"the client reads streams now, test what it reads: {answer}")
        raise PeerAtFault(MIXED_VERSIONS)


@case
async def get_task(peer: Peer) -> str:
    await peer.client.send_message(message_of({"text": "hello"}))
    task_id = peer.result["id"]  # what the client makes of the answer is for the other cases to tell
    answer: dict[str, Any] = dict(await peer.client.get_task(task_id))
    expect("result" in answer, f"it was refused: {answer.get('error')}")
    expect(answer["result"]["id"] == task_id, "another task")
    expect(answer["result"]["status"]["state"] == "completed", f"its state is {answer['result']['status']}")
    texts = [part.get("text") for artifact in answer["result"]["artifacts"] for part in artifact["parts"]]
    expect(texts == ["hello"], f"its texts are {texts}")
    return "the task"


@case
async def get_unknown(peer: Peer) -> str:
    answer: dict[str, Any] = dict(await peer.client.get_task(str(uuid.uuid4())))
    expect(answer.get("error", {}).get("code") == -32001, f"wanted TaskNotFound, got {answer}")
    return "TaskNotFound"


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
