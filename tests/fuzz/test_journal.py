"""Any interleaving of messages, answers, cancels and crashes leaves a legal history."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.login_link import handle_of, link

from dragoman.engine.call import CallContext
from dragoman.engine.ports.agent import Plan
from dragoman.engine.ports.store import Scope, Write
from dragoman.engine.settings import EngineSettings
from dragoman.model.card import AgentExtension
from dragoman.model.error import A2AError, ServerError
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import CancelTaskRequest, GetTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.record import fold
from dragoman.model.state import Role, State
from dragoman.model.task import Task
from dragoman.outputs import Ask, Replace
from dragoman.server.agent.in_process import ServiceConnection, connect
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock

SECONDS = 10
MOST = 6  # tasks at a time: few, that much happens to each
ME = CallContext()
SCOPE = Scope("script", "", "")
UNFINISHED = (State.SUBMITTED, State.WORKING)
OUTPUTS = {"chunk": "word ", "data": {"a": [1, None]}, "replace": Replace("all")}
STEPS = (*OUTPUTS, "progress", "side", "turn", "ask", "auth", "wait", "fail", "once")


class Scripted:
    """An agent that does what its first message says, word by word. `restarts` is in the script's first word."""

    name = "script"
    extensions: tuple[AgentExtension, ...] = ()
    closing = "whole"
    closing_message = False
    parallel = True
    pinned = False
    streams = True

    def __init__(self) -> None:
        self.doors: dict[str, asyncio.Event] = {}

    output_metadata = None
    foreign = None

    def plan(self, ctx: Any) -> Plan:
        return Plan(self.run, restarts=_script(ctx)[0] == "again")

    async def run(self, ctx: Any) -> AsyncIterator[Any]:
        steps = _script(ctx)[1:]
        pauses = len(ctx.answers)
        for step in steps:
            if step in ("ask", "auth"):
                # A run after a pause goes on behind it.
                pauses -= 1
                if pauses < 0:
                    yield Ask("?", auth=True, url=link) if step == "auth" else Ask("?")
                    return
            elif pauses > 0:
                continue
            elif step in OUTPUTS:
                yield OUTPUTS[step]
            else:
                await self._do(step, ctx)

    async def _do(self, step: str, ctx: Any) -> None:
        if step == "progress":
            await ctx.progress("on")
        elif step == "side":
            await ctx.artifact("beside")
        elif step == "once":
            await ctx.once("key", _effect)
        elif step == "wait":
            await self.doors.setdefault(ctx.task_id, asyncio.Event()).wait()
        elif step == "fail":
            raise ValueError
        else:
            await asyncio.sleep(0)


async def _effect() -> dict[str, Any]:
    return {}


def _script(ctx: Any) -> list[str]:
    return ctx.history[0].text.split()


class CrashingMemory(MemoryStore):
    """A store of which only what it reported is left after a crash, and that forgets whom to report to."""

    def crash(self) -> None:
        self._unreported.clear()


class Journals(RuleBasedStateMachine):
    """One agent on one store, through several lives."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.agent = Scripted()
        self.store: Any = self.new_store()
        self.connection: ServiceConnection | None = None
        self.tasks: list[str] = []
        self.scripts: dict[str, list[str]] = {}
        self.final: dict[str, State] = {}
        self.seen: dict[str, int] = {}

    def new_store(self) -> Any:
        return CrashingMemory()

    @property
    def service(self) -> Any:
        assert self.connection is not None
        return self.connection.service

    def run(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(SECONDS):
                return await work

        return self.runner.run(bounded())

    # -- life ------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        self.agent.doors.clear()
        settings = EngineSettings(drain=0)
        self.connection = connect(self.agent, store=self.store, clock=self.clock, settings=settings)  # type: ignore[arg-type]
        await self.connection.open()
        await self._turns()

    async def _turns(self, number: int = 40) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    @rule()
    def crash(self) -> None:
        """The process is gone in the middle of everything, and another comes up on the same store."""
        self.run(self._crash())
        self.run(self._open())

    async def _crash(self) -> None:
        await self._drop_store()
        runner = self.service.runner
        workers = list(runner._workers)
        # What a dead process does not do: put away, fail, or tell anybody.
        for live in list(self.service._tasks.live.values()):
            live.durability.stop(lambda: ServerError("the process is gone"))
        runner._queues.clear()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self.connection = None

    async def _drop_store(self) -> None:
        self.store.crash()

    @rule()
    def stop_and_start(self) -> None:
        """The server is stopped properly."""
        assert self.connection is not None
        self.run(self.connection.close())
        self.run(self._open())

    # -- callers ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.tasks) < MOST)
    @rule(
        steps=st.lists(st.sampled_from(STEPS), max_size=7),
        again=st.booleans(),
        wait=st.booleans(),
    )
    def send(self, steps: list[str], again: bool, wait: bool) -> None:
        words = ["again" if again else "never", *steps]
        # A caller who waits for one that waits for us would wait for ever.
        answer = self.run(self._send(" ".join(words), wait=wait and "wait" not in steps))
        self.tasks.append(answer.id)
        self.scripts[answer.id] = words

    async def _send(self, text: str, task_id: str | None = None, *, wait: bool = False) -> Any:
        message = Message(str(uuid4()), Role.USER, (Part(text=text),), task_id=task_id)
        configured = SendMessageConfiguration(return_immediately=not wait)
        return (await self.service.send(ME, SendMessageRequest(message, configured))).result

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(self.tasks))
        try:
            self.run(self._send("yes", task_id))
        except A2AError:
            assert self.run(self._state(task_id)).final

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(self.tasks))
        task = self.run(self._get(task_id))
        try:
            handle = handle_of(task) if task.state is State.AUTH_REQUIRED else task_id
            self.run(self.service.resume(handle, {"by": "callback"}))
        except A2AError:
            assert task.state is not State.AUTH_REQUIRED

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(self.tasks))
        was = self.run(self._state(task_id))
        try:
            task = self.run(self._cancel(task_id))
        except A2AError:
            assert self.run(self._state(task_id)).final
        else:
            assert not was.final
            assert task.state is State.CANCELED

    async def _cancel(self, task_id: str) -> Task:
        return (await self.service.cancel(ME, CancelTaskRequest(task_id))).result

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def open_the_door(self, data: st.DataObject) -> None:
        """Let a run that waits in its own code go on."""
        task_id = data.draw(st.sampled_from(self.tasks))
        self.agent.doors.setdefault(task_id, asyncio.Event()).set()

    @rule(number=st.integers(0, 30))
    def pass_turns(self, number: int) -> None:
        self.run(self._turns(number))

    # -- what always holds -----------------------------------------------------------------------------------------

    async def _get(self, task_id: str) -> Task:
        return (await self.service.get(ME, GetTaskRequest(task_id))).result

    async def _state(self, task_id: str) -> State:
        return (await self._get(task_id)).state

    @invariant()
    def histories_are_legal(self) -> None:
        if self.connection is not None:
            for task_id in self.tasks:
                self.run(self._check(task_id))

    async def _check(self, task_id: str) -> None:
        task = await self._get(task_id)
        stored = await self.store.task(task_id)
        # A run may have gone on since the row was read.
        records = await self.store.records(stored.row.number, 0, stored.row.generation)
        assert [record.generation for record in records] == list(range(1, len(records) + 1))
        events = [record.event for record in records]
        assert isinstance(events[0], Task)
        assert all(isinstance(event, (StatusUpdate, ArtifactUpdate)) for event in events[1:])
        states = [event.status.state for event in events if isinstance(event, (Task, StatusUpdate))]
        assert not any(state.final for state in states[:-1]), states
        assert not states[-1].final or isinstance(events[-1], StatusUpdate)
        assert stored.row.state is states[-1]
        assert stored.row.generation == len(records) >= (task.generation or 0) >= self.seen.get(task_id, 0)
        self.seen[task_id] = len(records)
        if task_id in self.final:
            assert states[-1] is self.final[task_id]
        elif states[-1].final:
            self.final[task_id] = states[-1]
        # fold(journal), what callers get, and the snapshot are the same, but for messages, which no event carries.
        generation = task.generation or 0
        folded = fold(events[0], events[1:generation])
        assert folded.artifacts == task.artifacts
        assert folded.status == task.status
        if stored.row.state.final or stored.row.state.waiting:
            replayed = await self.service._tasks.read(stored._replace(snapshot=None, snapshot_generation=0))
            assert replayed == await self.service._tasks.read(stored) == await self._get(task_id)

    @invariant()
    def nothing_works_without_a_run(self) -> None:
        if self.connection is None:
            return
        for task_id in self.tasks:
            if self.run(self._state(task_id)) in UNFINISHED:
                assert task_id in self.service._tasks.live

    def teardown(self) -> None:
        if self.connection is not None:
            for task_id in self.tasks:
                self.agent.doors.setdefault(task_id, asyncio.Event()).set()
            self.run(self._settle())
            for task_id in self.tasks:
                assert self.run(self._state(task_id)) not in UNFINISHED
            self.histories_are_legal()
            service = self.service
            assert not service._tasks.live
            assert not service._bus.listeners
            self.run(self.connection.close())
        self.runner.close()

    async def _settle(self) -> None:
        while self.service.running:  # noqa: ASYNC110 - whatever it waits for
            await asyncio.sleep(0)


class FileJournals(Journals):
    """The same in a file. A crash loses what the writer had not taken yet."""

    def new_store(self) -> Any:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteStore(Path(self.folder.name) / "tasks.db")

    async def _drop_store(self) -> None:
        store = self.store
        # From here on nothing is written: what is queued is lost, as with the process.
        store._writer._queue = _Deaf(store._writer._queue)
        await store.close()
        self.store = SqliteStore(Path(self.folder.name) / "tasks.db")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class _Deaf:
    """A queue that takes nothing but the word to stop."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def put(self, item: Write | None) -> None:
        if item is None:
            self._queue.put(None)

    def get(self, *args: Any, **options: Any) -> Any:
        return self._queue.get(*args, **options)


_base = settings(deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=25)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Thousands of agents that fail on purpose are no news."""
    logger = logging.getLogger("dragoman")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


class TestAnyHistoryInMemoryIsLegal(Journals.TestCase):
    settings = settings(_base, max_examples=60, derandomize=True)


class TestAnyHistoryInAFileIsLegal(FileJournals.TestCase):
    settings = settings(_base, max_examples=10, derandomize=True)


@pytest.mark.soak
@pytest.mark.timeout(1200)
class TestVeryManyHistoriesInMemoryAreLegal(Journals.TestCase):
    settings = settings(_base, max_examples=1500, stateful_step_count=50, database=None)


@pytest.mark.soak
@pytest.mark.timeout(1200)
class TestManyHistoriesInAFileAreLegal(FileJournals.TestCase):
    settings = settings(_base, max_examples=200, stateful_step_count=50, database=None)
