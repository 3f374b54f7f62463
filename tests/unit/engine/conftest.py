"""One agent in an engine, stores that misbehave on purpose, and a check that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from dragoman import Agent
from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.model.event import ArtifactUpdate
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task
from dragoman.outputs import Ask, Reply
from dragoman.server.agent.in_process import connect
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sole import DedupeKeys
from dragoman.testing import Clock

if TYPE_CHECKING:
    from dragoman.engine.call import OperationResult
    from dragoman.engine.journal.follow import Stream
    from dragoman.engine.ports.store import Write
    from dragoman.model.record import Record

SECONDS = 10  # what hangs fails, long before the suite's own limit
ME = CallContext()


async def until(condition: Callable[[], object]) -> None:
    """Let others run until the condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - any condition, also one that a thread fulfills
            await asyncio.sleep(0)


async def turns(number: int = 30) -> None:
    """Let everything that can go on do so."""
    for _ in range(number):
        await asyncio.sleep(0)


class Engine:
    """An agent with everything around it, without a port or a file."""

    def __init__(self, agent: Any, store: Any, clock: Clock, settings: EngineSettings | None) -> None:
        self.agent = agent if isinstance(agent, Agent) else Agent("test", run=agent)
        self.store = store
        self.clock = clock
        self.connection = connect(self.agent, store=store, clock=clock, settings=settings or EngineSettings(drain=0))
        self.service = self.connection.service

    # Asking

    def request(
        self,
        text: str | None = "go",
        *,
        parts: tuple[Part, ...] = (),
        task: Task | str | None = None,
        context: str | None = None,
        message_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        message_metadata: dict[str, Any] | None = None,
        tenant: str | None = None,
        new_task_id: str | None = None,
        wait: bool = True,
        **configuration: Any,
    ) -> SendMessageRequest:
        content = (*(() if text is None else (Part(text=text),)), *parts)
        task_id = task.id if isinstance(task, Task) else task
        message = Message(message_id or str(uuid4()), Role.USER, content, context, task_id, message_metadata)
        configured = SendMessageConfiguration(return_immediately=not wait, **configuration)
        return SendMessageRequest(message, configured, metadata, tenant, new_task_id)

    async def answer(self, *args: Any, call: CallContext = ME, **options: Any) -> OperationResult:
        async with asyncio.timeout(SECONDS):
            return await self.service.send(call, self.request(*args, **options))

    async def send(self, *args: Any, **options: Any) -> Any:
        return (await self.answer(*args, **options)).result

    def sending(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        """Send without waiting for the answer here."""
        return asyncio.create_task(self.send(*args, **options))

    async def begin(self, *args: Any, **options: Any) -> Task:
        """Send a message, and wait until its run is at work."""
        return await self.until_state(await self.send(*args, wait=False, **options), State.WORKING)

    async def stream(self, *args: Any, call: CallContext = ME, **options: Any) -> list[Record]:
        async with asyncio.timeout(SECONDS):
            return await records_of(await self.service.stream(call, self.request(*args, **options)))

    async def get(self, task: Task | str, *, call: CallContext = ME, **options: Any) -> Task:
        async with asyncio.timeout(SECONDS):
            result = (await self.service.get(call, GetTaskRequest(_id(task), **options))).result
        assert isinstance(result, Task)
        return result

    async def cancel(self, task: Task | str, *, call: CallContext = ME) -> Task:
        async with asyncio.timeout(SECONDS):
            result = (await self.service.cancel(call, CancelTaskRequest(_id(task)))).result
        assert isinstance(result, Task)
        return result

    async def subscribe(self, task: Task | str, after: int | None = None, *, call: CallContext = ME) -> Stream:
        return await self.service.subscribe(call, SubscribeToTaskRequest(_id(task)), after)

    async def follow(self, task: Task | str, after: int | None = None) -> list[Record]:
        """Everything a subscriber gets, up to the end."""
        async with asyncio.timeout(SECONDS):
            return await records_of(await self.subscribe(task, after))

    async def list(self, *, call: CallContext = ME, **options: Any) -> Any:
        return await self.service.list(call, ListTasksRequest(**options))

    # Looking

    async def journal(self, task: Task | str) -> list[Any]:
        """The events of a task as they are stored."""
        stored = await self.store.task(_id(task))
        return [record.event for record in await self.store.records(stored.row.number, 0, 100_000)]

    async def states(self, task: Task | str) -> list[State]:
        events = [event for event in await self.journal(task) if hasattr(event, "status")]
        return [event.status.state for event in events]

    async def until_state(self, task: Task | str, state: State, *, call: CallContext = ME) -> Task:
        async with asyncio.timeout(SECONDS):
            while (found := await self.get(task, call=call)).state is not state:  # noqa: ASYNC110
                await asyncio.sleep(0)
        return found

    async def idle(self) -> None:
        await until(lambda: not self.service.running)

    def left(self) -> dict[str, int]:
        """How much the engine still holds, by kind; nothing when nothing goes on."""
        service = self.service
        held = {
            "live tasks": service._tasks.live,
            "locks": service._locks._locks,
            "queues": service.runner._queues,
            "workers": service.runner._workers,
            "listeners": service._bus.listeners,
        }
        return {kind: len(things) for kind, things in held.items() if things}


class Gate:
    """An agent whose runs wait until the gate is open. By the text of its message a run asks first, or replies."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.runs = 0
        self.stopped = 0

    async def run(self, ctx: Any) -> AsyncIterator[Any]:
        self.runs += 1
        if ctx.text == "ask" and ctx.resume is None:
            yield Ask("?")
            return
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        yield Reply("hi") if ctx.text == "reply" else "done"


def yielding(*values: Any) -> Callable[[Any], AsyncIterator[Any]]:
    """A run that yields some values."""

    async def run(ctx: Any) -> AsyncIterator[Any]:
        for value in values:
            yield value

    return run


def raising(error: BaseException, *before: Any) -> Callable[[Any], AsyncIterator[Any]]:
    """A run that yields some values and then raises."""

    async def run(ctx: Any) -> AsyncIterator[Any]:
        for value in before:
            yield value
        raise error

    return run


def artifact_updates(events: list[Any]) -> list[tuple[str, bool, bool]]:
    """Text, append and lastChunk of every artifact event."""
    found = [event for event in events if isinstance(event, ArtifactUpdate)]
    return [(event.artifact.text, event.append, event.last_chunk) for event in found]


async def records_of(stream: Stream) -> list[Record]:
    records: list[Record] = []
    async with aclosing(stream.batches) as batches:
        async for batch in batches:
            records += batch.records
    return records


def _id(task: Task | str) -> str:
    return task if isinstance(task, str) else task.id


Start = Callable[..., Awaitable[Engine]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def start(clock: Clock) -> AsyncIterator[Start]:
    """Start an engine around an agent or a low-level `run`. Afterwards it is closed and must hold nothing."""
    engines: list[Engine] = []

    async def start(agent: Any, *, store: Any = None, settings: EngineSettings | None = None) -> Engine:
        engine = Engine(agent, store if store is not None else MemoryStore(), clock, settings)
        await engine.connection.open()
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        async with asyncio.timeout(SECONDS):
            await engine.connection.close()
        await turns()
        assert engine.left() == {}


class HeldStore(MemoryStore):
    """A store whose commits can be held back: what is written is neither read nor reported before `release`."""

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__()
        self.holding = False
        self.held: list[Write] = []
        self.durable = durable
        self._dead = False

    def queue(self, write: Write) -> None:
        if self._dead:
            return
        if self.holding:
            self.held.append(write)
        else:
            super().queue(write)

    @property
    def events(self) -> int:
        """How many records are held back."""
        return sum(len(write.records) for write in self.held)

    def crash(self) -> HeldStore:
        """Take nothing more, as when the process is killed. Gives what the next one finds: what was committed."""
        left = HeldStore(durable=self.durable)
        mine = vars(left)
        mine.update({name: value for name, value in vars(self).items() if name in vars(MemoryStore())})
        left._unreported, left._keys = [], DedupeKeys()
        for digest in left._repeats:
            left._keys.load(digest)
        self._dead = True
        self.held.clear()
        return left

    def release(self, number: int | None = None) -> None:
        """Commit that many of the writes that are held, or all, and hold nothing back any more."""
        due = self.held[:number]
        del self.held[:number]
        for write in due:
            super().queue(write)
        self.holding = number is not None

    async def close(self) -> None:
        self.release()
        await super().close()


class FailingStore(MemoryStore):
    """A store that refuses the writes for which `refuses` is true."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[Write], bool] = lambda write: False

    def queue(self, write: Write) -> None:
        if self.refuses(write):
            asyncio.get_running_loop().call_soon(self.report, write, OSError("no space left on device"))
        else:
            super().queue(write)


@pytest.fixture
def held_store() -> HeldStore:
    return HeldStore()


@pytest.fixture
def disk() -> HeldStore:
    """A store that promises what a file does: what was committed is there after a crash."""
    return HeldStore(durable=True)


@pytest.fixture
def failing_store() -> FailingStore:
    return FailingStore()


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return until


@pytest.fixture(name="turns")
def turns_fixture() -> Callable[..., Awaitable[None]]:
    return turns
