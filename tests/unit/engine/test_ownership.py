"""Who may write a task, and what happens when it may not any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from dragoman.bus.local import LocalBus
from dragoman.engine.call import CallContext
from dragoman.engine.execute.outputs import Ask
from dragoman.engine.operations import Service
from dragoman.engine.ports.agent import Plan
from dragoman.engine.ports.ownership import Claim, ClaimedTask, OwnershipLost
from dragoman.engine.ports.sole import SoleOwner
from dragoman.engine.ports.store import StoredTask, Write
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import ServerError
from dragoman.model.event import StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import TaskStatus
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

ME = CallContext()


class Agent:
    """Asks once, or works until it is canceled."""

    name = "owned"
    extensions = ()
    closing = "whole"
    closing_message = False
    parallel = False
    pinned = False
    streams = True
    output_metadata = None
    foreign = None

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.begun = asyncio.Event()

    def plan(self, ctx: Any) -> Plan:
        return Plan(self.run)

    async def run(self, ctx: Any) -> Any:
        if ctx.text == "ask" and ctx.resume is None:
            yield Ask("which?")
            return
        self.begun.set()
        try:
            if ctx.text == "work":
                yield "first "
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        yield "done"

    async def canceled(self, ref: Any) -> None: ...


class OthersToo(SoleOwner):
    """Ownership that somebody else has a part in."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.elsewhere = False
        self.claimed: list[int] = []
        self.released: list[int] = []

    async def claim(self, stored: StoredTask, *, revoke: bool = False) -> ClaimedTask | None:
        if self.elsewhere:
            return None
        self.claimed.append(stored.row.number)
        return ClaimedTask(stored, Claim(stored.row.number, len(self.claimed)))

    def release(self, claim: Claim, *, begun: bool = False) -> None:
        self.released.append(claim.task)


class FencedStore(MemoryStore):
    """A store that refuses the writes of those who own a task no more."""

    lost = False

    def queue(self, write: Write) -> None:
        if self.lost:
            asyncio.get_running_loop().call_soon(self.report, write, OwnershipLost("the task has another owner"))
        else:
            super().queue(write)


def message(text: str, task_id: str | None = None, *, wait: bool = True) -> SendMessageRequest:
    user_message = Message("m1", Role.USER, (Part(text=text),), None, task_id)
    return SendMessageRequest(user_message, SendMessageConfiguration(return_immediately=not wait))


@pytest.fixture
async def engine() -> Any:
    clock, store, agent = Clock(), FencedStore(), Agent()
    owners = OthersToo(store)
    service = Service(agent, store, LocalBus(clock), clock, EngineSettings(drain=0), ownership=owners)
    await service.start()
    yield service, store, agent, owners, clock
    store.lost = False
    await service.close()


async def test_a_task_that_is_created_here_needs_no_claim(engine: Any) -> None:
    service, _, _, owners, _ = engine
    task = (await service.send(ME, message("go"))).result
    assert (task.state, task.text, owners.claimed) == (State.COMPLETED, "done", [])


async def test_a_task_at_rest_is_claimed_to_be_answered_and_its_end_ends_the_claim(engine: Any) -> None:
    service, _, _, owners, _ = engine
    task = (await service.send(ME, message("ask"))).result
    assert task.state is State.INPUT_REQUIRED
    task = (await service.send(ME, message("this one", task.id))).result
    assert task.state is State.COMPLETED
    for _ in range(3):
        await asyncio.sleep(0)
    assert (owners.claimed, owners.released) == ([1], [])


async def test_a_task_that_somebody_else_has_is_not_answered_here(engine: Any) -> None:
    service, _, _, owners, clock = engine
    task = (await service.send(ME, message("ask"))).result
    owners.elsewhere = True
    answering = asyncio.create_task(service.send(ME, message("this one", task.id)))
    await clock.advance(3)
    with pytest.raises(ServerError, match="worked on elsewhere"):
        await answering
    kept = (await service.get(ME, GetTaskRequest(task.id))).result
    assert (kept.state, kept.generation) == (State.INPUT_REQUIRED, task.generation)


async def test_a_run_that_loses_its_task_stops_and_writes_nothing_more(engine: Any) -> None:
    service, store, agent, _, clock = engine
    task = (await service.send(ME, message("work", wait=False))).result
    await agent.begun.wait()
    for _ in range(5):  # the chunk is written
        await asyncio.sleep(0)
    before = await store.task(task.id)
    store.lost = True
    service._tasks.live[task.id].status(State.WORKING)
    await agent.stopped.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    store.lost = False
    # Nobody here fails it either, as a task is failed whose store broke: it is the new owner's.
    await clock.advance(5)
    for _ in range(5):
        await asyncio.sleep(0)
    assert await store.task(task.id) == before
    assert not service.running


async def test_a_stream_of_a_task_that_was_lost_goes_on_from_the_journal(engine: Any) -> None:
    service, store, agent, _, _ = engine
    stream = await service.stream(ME, message("work"))
    seen: list[Any] = []

    async def read() -> None:
        async for batch in stream.batches:
            seen.extend(batch.records)

    reading = asyncio.create_task(read())
    await agent.begun.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    live = service._tasks.live[seen[0].event.id]
    store.lost = True
    live.status(State.WORKING)
    await agent.stopped.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done()
    # The new owner ends it.
    store.lost = False
    stored = await store.task(live.row.id)
    ended = StatusUpdate(live.row.id, live.row.context_id, TaskStatus(State.CANCELED))
    record = Record.of(stored.row.generation + 1, ended)
    row = structs.replace(stored.row, state=State.CANCELED, generation=record.generation)
    store.write(Write(row, lambda _: None, previous_state=State.WORKING, records=(record,)))
    await asyncio.sleep(0)
    service._bus.notify(live.row.id, record.generation)
    await asyncio.wait_for(reading, 5)
    assert [each.generation for each in seen] == list(range(1, record.generation + 1))
    assert seen[-1].state is State.CANCELED
