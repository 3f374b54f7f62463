"""A server under load is killed: callers, what they saw, and whether all of it is still there."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

SECONDS = 60
UNFINISHED = ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
FINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")


class Event(NamedTuple):
    """One event as its bytes arrived."""

    id: int
    data: bytes


# The smallest client that does it: one request, one connection.


async def _request(
    url: str, method: str, params: dict[str, Any], after: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, str]]:
    place = urlsplit(url)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = [
        "POST / HTTP/1.1",
        f"Host: {place.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "A2A-Version: 1.0",
        *([] if after is None else [f"Last-Event-ID: {after}"]),
    ]
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 24)
    try:
        writer.write("\r\n".join(headers).encode() + b"\r\n\r\n" + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    except BaseException:
        writer.close()
        raise
    return reader, writer, dict(line.lower().split(": ", 1) for line in head[1:] if line)


async def ask(url: str, method: str, params: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """The answer to a request, and its headers."""
    async with asyncio.timeout(SECONDS):
        reader, writer, headers = await _request(url, method, params, None)
        try:
            return json.loads(await reader.readexactly(int(headers["content-length"]))), headers
        finally:
            writer.close()


async def stream(url: str, method: str, params: dict[str, Any], after: int | None = None) -> AsyncIterator[Event]:
    """The events of a stream, also those whose connection broke in the middle of a chunk."""
    reader, writer, headers = await _request(url, method, params, after)
    try:
        if not headers["content-type"].startswith("text/event-stream"):
            body = await reader.readexactly(int(headers["content-length"]))
            raise AssertionError(f"this is no stream: {body!r}")
        text = b""
        async for chunk in _chunks(reader):
            *frames, text = (text + chunk).split(b"\n\n")
            for frame in frames:
                if frame.startswith(b"id: "):
                    number, _, data = frame.partition(b"\n")
                    yield Event(int(number[4:]), data.removeprefix(b"data: "))
    finally:
        writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")), 16):
        try:
            chunk = await reader.readexactly(size + 2)
        except asyncio.IncompleteReadError as error:
            yield error.partial
            raise
        yield chunk[:-2]


# The callers


class Caller:
    """Somebody who sends a message, reads its stream as long as it lasts, and sends the message again later."""

    def __init__(self, skill: str, words: int) -> None:
        self.message_id = str(uuid4())
        parts = [{"data": {"words": words}}]
        message = {"messageId": self.message_id, "role": "ROLE_USER", "parts": parts, "metadata": {"skillId": skill}}
        self.params = {"message": message}
        self.seen: list[Event] = []

    @property
    def task_id(self) -> str | None:
        return json.loads(self.seen[0].data)["result"]["task"]["id"] if self.seen else None

    @property
    def ended(self) -> bool:
        return bool(self.seen) and any(state.encode() in self.seen[-1].data for state in FINAL)

    async def read(self, url: str, notice: Callable[[], None]) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):  # the server is dead
            async for event in stream(url, "SendStreamingMessage", self.params):
                self.seen.append(event)
                notice()

    async def verify(self, url: str, gate: asyncio.Semaphore) -> int:
        """Send the message again, and compare everything that was seen. Gives how many events the task has now."""
        async with gate, asyncio.timeout(SECONDS):
            params = {**self.params, "configuration": {"returnImmediately": True}}
            answer, headers = await ask(url, "SendMessage", params)
            task_id = answer["result"]["task"]["id"]
            if self.seen:
                assert task_id == self.task_id, f"{self.message_id} was {self.task_id} and is {task_id}"
                assert headers.get("idempotent-replayed") == "true"
            found = [event async for event in stream(url, "SubscribeToTask", {"id": task_id}, 0)]
        assert found[: len(self.seen)] == self.seen, f"task {task_id} lost what a reader had seen of it"
        assert [event.id for event in found] == list(range(1, len(found) + 1)), f"task {task_id} has a gap"
        last = json.loads(found[-1].data)["result"]["statusUpdate"]["status"]["state"]
        assert last in FINAL, f"task {task_id} ends as {last}"
        return len(found)


async def load(url: str, callers: list[Caller], kill: Callable[[], None], after: int, *, early: bool) -> None:
    """Let all callers read, and kill the server when they have seen that many events, or all there are.

    Unless it is to be `early`, each of them has seen something before these are counted.
    """
    enough = asyncio.Event()
    left = after
    begun = early

    def notice() -> None:
        nonlocal left, begun
        begun = begun or all(caller.seen for caller in callers)
        left -= begun
        if left == 0:
            enough.set()

    async with asyncio.timeout(SECONDS):
        reading = asyncio.gather(*(caller.read(url, notice) for caller in callers))
        waiting = asyncio.ensure_future(enough.wait())
        await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        kill()
        await reading
        waiting.cancel()


async def verify(url: str, callers: list[Caller]) -> int:
    """Check every caller's task. Gives how many events there are."""
    gate = asyncio.Semaphore(20)
    return sum(await asyncio.gather(*(caller.verify(url, gate) for caller in callers)))


async def tasks_by_message(url: str) -> Counter[str]:
    """How many tasks every messageId has made."""
    found: Counter[str] = Counter()
    params: dict[str, Any] = {"pageSize": 100}
    while True:
        page = (await ask(url, "ListTasks", params))[0]["result"]
        found.update(task["history"][0]["messageId"] for task in page["tasks"])
        if not page["nextPageToken"]:
            return found
        params = {"pageSize": 100, "pageToken": page["nextPageToken"]}


async def unfinished(url: str) -> int:
    """How many tasks are neither ended nor waiting."""
    pages = [(await ask(url, "ListTasks", {"status": state, "pageSize": 1}))[0] for state in UNFINISHED]
    return sum(page["result"]["totalSize"] for page in pages)


def rounds(launch: Callable[[], Any], number: int, streams: int, seed: int) -> list[str]:
    """Kill a server that many times in a row, each time at another moment. Gives a line about each."""
    random = Random(seed)
    server = launch()
    everybody: list[Caller] = []
    reports: list[str] = []
    for turn in range(number):
        callers = [
            Caller(*random.choice([("chatter", random.randint(20, 4000)), ("slowly", random.randint(100, 300))]))
            for _ in range(streams)
        ]
        everybody += callers
        moment = int(10 ** random.uniform(1, 4.3))
        asyncio.run(load(server.url, callers, server.kill, moment, early=turn % 4 == 3))
        server = launch()
        events = asyncio.run(verify(server.url, callers))
        assert asyncio.run(unfinished(server.url)) == 0, "a task stays at work with nobody at it"
        seen = sum(len(caller.seen) for caller in callers)
        ended = sum(caller.ended for caller in callers)
        unheard = sum(not caller.seen for caller in callers)
        reports.append(f"{seen} events seen, {events} in the journal; {ended} streams had ended, {unheard} not begun")
        made = asyncio.run(tasks_by_message(server.url))
        assert made == Counter(caller.message_id for caller in everybody), "a message made two tasks, or none"
    return reports
