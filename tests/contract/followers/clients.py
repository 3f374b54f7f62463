"""Our clients: their streams in every version, subscriptions, waiting, and the blocking client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import Literal

from contract.followers.follower import Behavior, Follower, Kind, Outcome, Place

from dragoman import Client, State, Task, sync
from dragoman.client.event import Event
from dragoman.client.streams.stream import EventStream
from dragoman.errors import DragomanError

PROBLEMS: Mapping[Literal["unreachable", "task lost", "refusal"], str] = {
    "unreachable": "CannotConnect: nobody answers",
    "task lost": "TaskNotFound",
    "refusal": "AuthError",
}


class Reading:
    """The events of one stream, as they arrive."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.problem = ""

    def outcome(self, result: Task | None) -> Outcome:
        """What was read; the texts of the events, joined, are those of the task."""
        text = ""
        for event in self.events:
            text = event.text if event.replaces else text + event.text
        if result is not None and result.state is State.COMPLETED and not self.problem:
            assert text == result.text
        ends = [event for event in self.events if event.kind in ("task", "status") and event.state.final]
        return Outcome(
            None if result is None or self.problem else result.state,
            text,
            self.problem,
            [event.text for event in self.events if event.text],
            len(ends),
            [event.id or 0 for event in self.events],
            "" if result is None else result.question or "",
        )


def problem_of(error: DragomanError) -> str:
    return f"{type(error).__name__}: {error}"


class StreamFollower(Follower):
    """`Client.stream`."""

    def __init__(self, place: Place, *, protocol: str | None = None, transport: str | None = None) -> None:
        super().__init__(place)
        self.protocol, self.transport = protocol, transport
        self.stream: EventStream | None = None

    def target(self) -> object:
        """What the client calls."""
        return self.place.url

    async def open(self) -> None:
        client = Client(self.target(), protocol=self.protocol, transport=self.transport, reconnect=self.place.reconnect)
        self.client = await self.place.stack.enter_async_context(client)

    async def follow(self, order: str) -> Outcome:
        self.stream = self.client.stream(order)
        return await self.read(self.stream)

    async def answer(self, text: str) -> Outcome:
        assert self.stream is not None
        self.stream = self.client.stream(text, task=self.stream.task)
        return await self.read(self.stream)

    async def cancel(self, following: asyncio.Task[Outcome]) -> Outcome | None:
        assert self.stream is not None
        await self.client.cancel_task(self.stream.task)
        return await following

    async def read(self, stream: EventStream) -> Outcome:
        """Read a stream to its end."""
        reading = Reading()
        try:
            async with aclosing(aiter(stream)) as events:
                async for event in events:
                    reading.events.append(event)
                    if event.text:
                        self.has_text.set()
        except DragomanError as error:
            reading.problem = problem_of(error)
        return reading.outcome(stream.task if reading.events else None)


class SubscriptionFollower(StreamFollower):
    """`Client.subscribe`, to a task that was started without waiting for it. It stays open while the task asks."""

    async def follow(self, order: str) -> Outcome:
        try:
            self.task = await self.client.send(order, wait=False)
        except DragomanError as error:
            return Outcome(None, "", problem_of(error))
        self.stream, self.reading = self.client.subscribe(self.task), Reading()
        self.events = aiter(self.stream)
        self.place.stack.push_async_callback(self.events.aclose)
        return await self._read_on()

    async def answer(self, text: str) -> Outcome:
        await self.client.send(text, task=self.task, wait=False)
        return await self._read_on()

    async def _read_on(self) -> Outcome:
        """Read until the task ends or asks something."""
        assert self.stream is not None
        try:
            async for event in self.events:
                self.reading.events.append(event)
                if event.text:
                    self.has_text.set()
                if event.state is State.INPUT_REQUIRED and event.kind != "artifact":
                    break
        except DragomanError as error:
            self.reading.problem = problem_of(error)
        return self.reading.outcome(self.stream.task if self.reading.events else None)._replace(numbers=None)


class WaitFollower(StreamFollower):
    """`Client.wait`, for a task that was started without waiting for it."""

    reports_texts = False

    async def follow(self, order: str) -> Outcome:
        try:
            task = await self.client.send(order, wait=False)
            assert isinstance(task, Task)
            self.task = task
            return await self._wait()
        except DragomanError as error:
            return Outcome(None, "", problem_of(error))

    async def answer(self, text: str) -> Outcome:
        await self.client.send(text, task=self.task, wait=False)
        return await self._wait()

    async def cancel(self, following: asyncio.Task[Outcome]) -> Outcome | None:
        await self.client.cancel_task(self.task)
        return await following

    async def _wait(self) -> Outcome:
        task = await self.client.wait(self.task)
        return Outcome(task.state, task.text, question=task.question or "")


class BlockingFollower(Follower):
    """`sync.Client.stream`, in a thread."""

    stream: sync.EventStream | None = None

    async def open(self) -> None:
        self.client = await asyncio.to_thread(lambda: sync.Client(self.place.url, reconnect=self.place.reconnect))
        self.place.stack.push_async_callback(asyncio.to_thread, self.client.close)

    async def follow(self, order: str) -> Outcome:
        self.stream = self.client.stream(order)
        return await asyncio.to_thread(self._read, self.stream, asyncio.get_running_loop())

    async def answer(self, text: str) -> Outcome:
        assert self.stream is not None
        self.stream = self.client.stream(text, task=self.stream.task)
        return await asyncio.to_thread(self._read, self.stream, asyncio.get_running_loop())

    async def cancel(self, following: asyncio.Task[Outcome]) -> Outcome | None:
        assert self.stream is not None
        await asyncio.to_thread(self.client.cancel_task, self.stream.task)
        return await following

    def _read(self, stream: sync.EventStream, loop: asyncio.AbstractEventLoop) -> Outcome:
        reading = Reading()
        try:
            for event in stream:
                reading.events.append(event)
                if event.text:
                    loop.call_soon_threadsafe(self.has_text.set)
        except DragomanError as error:
            reading.problem = problem_of(error)
        return reading.outcome(stream.task if reading.events else None)


IN_ADVANCE = "it knows the id of the task before the stream begins"
LACKS_OVER_GRPC: dict[Behavior, str] = {
    "leave": "one connection carries all calls, and stays open: test_streams.py of the bindings",
    "first event lost": "one connection carries all calls: what is cut is not the stream alone",
    "acceptance lost": "one connection carries all calls: what is cut is not the stream alone",
    "cut at random": "frames of HTTP/1.1 are cut",
    "no numbers": "the foreign server speaks HTTP",
    "no subscriptions": "the foreign server speaks HTTP",
    "no streams": "the foreign server speaks HTTP",
}


def client(protocol: str, transport: str, **lacks: str) -> Kind:
    is_grpc = transport == "grpc"
    return Kind(
        name=f"client {protocol} {transport}",
        make=partial(StreamFollower, protocol=protocol, transport=transport),
        is_grpc=is_grpc,
        problems=PROBLEMS,
        lacks=LACKS_OVER_GRPC if is_grpc else {"acceptance lost": lacks["in_advance"]} if lacks else {},
    )


KINDS = [
    client("1.1", "jsonrpc"),
    client("1.0", "jsonrpc"),
    client("1.0", "rest"),
    client("1.0", "grpc"),
    client("0.3", "jsonrpc"),
    client("0.3", "rest"),
    client("0.3", "grpc"),
    client("0.1", "jsonrpc", in_advance="the client names the task, and finds it"),
    Kind(name="subscription", make=SubscriptionFollower, problems=PROBLEMS, lacks={"acceptance lost": IN_ADVANCE}),
    Kind(name="wait", make=WaitFollower, problems=PROBLEMS, lacks={"acceptance lost": IN_ADVANCE}),
    Kind(
        name="blocking client",
        make=BlockingFollower,
        problems=PROBLEMS,
        lacks={"leave": "a thread is not interrupted"},
    ),
]
