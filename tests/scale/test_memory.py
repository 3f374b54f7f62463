"""What a server holds: nothing for tasks that wait, no more for long streams, and nothing of yesterday."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.engine.call import CallContext
from dragoman.engine.journal.retention import Janitor, Retention
from dragoman.engine.settings import EngineSettings
from dragoman.model.message import Message
from dragoman.model.operation import CancelTaskRequest, GetTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.server.agent.in_process import connect
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

MB = 1_000_000
ME = CallContext()


@contextmanager
def traced() -> Generator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def held() -> int:
    """The bytes Python holds now."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def asker() -> Agent:
    agent = Agent("asker", description="Asks before it does anything")

    @agent.skill
    async def greet(ctx: Context) -> str:
        """Ask, then greet."""
        return f"Hello, {await ctx.ask('What is your name?')}!"

    return agent


def chunks_agent() -> Agent:
    agent = Agent("chunks", description="Says a lot")

    @agent.skill
    async def talk(n: int) -> AsyncIterator[str]:
        """Say that many words."""
        for number in range(n):
            yield f"word {number} "

    return agent


class Counted:
    """Looks at each write, and keeps nothing but the number of the last event."""

    def __init__(self, reader: Any) -> None:
        self.last = 0
        self._reader = reader
        reader._keep = True
        reader.on_write = self._look

    def _look(self) -> None:
        for number, _ in self._reader.events:
            assert number == self.last + 1
            self.last = number
        self._reader.writes.clear()


def left(service: Any) -> dict[str, int]:
    """How much an engine still holds, by kind."""
    kept = {
        "live tasks": service._tasks.live,
        "queues": service.runner._queues,
        "workers": service.runner._workers,
        "listeners": service._bus.listeners,
    }
    return {kind: len(things) for kind, things in kept.items() if things}


@pytest.mark.parametrize("tasks", [500, pytest.param(5000, marks=[pytest.mark.soak, pytest.mark.timeout(300)])])
async def test_tasks_that_wait_hold_no_asyncio_task_and_little_memory(
    host: Any, until: Any, tmp_path: Path, tasks: int
) -> None:
    server = await host(asker(), store=f"sqlite:///{tmp_path / 'tasks.db'}")

    async def park() -> None:
        body = {"message": server.message()}
        answer = await server.reader("POST", "/message:send", body).ask()
        assert answer.json["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    async def park_many(number: int) -> None:
        for _ in range(0, number, 100):
            await asyncio.gather(*(park() for _ in range(100)))
        await until(lambda: not server.service.running)

    await park_many(200)  # what is made once: connections, threads, caches
    before_tasks = len(asyncio.all_tasks())
    with traced():
        before = held()
        await park_many(tasks)
        grown = held() - before
    print(f"{tasks} parked tasks hold {grown / MB:.2f} MB")
    assert len(asyncio.all_tasks()) == before_tasks
    assert left(server.service) == {}
    assert grown < 500_000 + tasks * 2000  # caches and pages of the store grow once


@pytest.mark.parametrize("chunks", [5000, pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(300)])])
async def test_a_stalled_reader_gets_every_chunk_and_neither_the_agent_nor_the_memory_waits_for_it(
    host: Any, until: Any, tmp_path: Path, chunks: int
) -> None:
    server = await host(chunks_agent(), store=f"sqlite:///{tmp_path / 'tasks.db'}")
    data = {"tool": "talk", "arguments": {"n": chunks}}
    body = {"message": {**server.message(), "parts": [{"data": data}]}}
    with traced():
        before = held()
        reader = server.reader("POST", "/message:stream", body, keep=False)
        reader.gate.clear()
        reading = reader.asking()
        await until(lambda: server.service.running)
        await until(lambda: not server.service.running, 240)
        # The agent is done, and its reader has not taken anything.
        assert reader.count == 0
        after_run, peak_of_run = held() - before, tracemalloc.get_traced_memory()[1] - before
        tracemalloc.reset_peak()
        counted = Counted(reader)
        reader.gate.set()
        async with asyncio.timeout(240):
            await reading
        peak_of_reading = tracemalloc.get_traced_memory()[1] - before
    print(
        f"{chunks} chunks: peak {peak_of_run / MB:.1f} MB while the agent runs, {after_run / MB:.1f} MB after it, "
        f"peak {peak_of_reading / MB:.1f} MB while the reader catches up"
    )
    # The task, working, the chunks, the end.
    assert counted.last == chunks + 3
    # What grows is the text itself, of which the task and its snapshot are copies.
    text = chunks * len("word 12345 ")
    assert peak_of_run < 3 * MB + 6 * text
    assert after_run < 2 * MB + 3 * text
    assert peak_of_reading < 4 * MB + 8 * text


@pytest.mark.parametrize("hours", [6, pytest.param(24, marks=[pytest.mark.soak, pytest.mark.timeout(300)])])
async def test_hours_of_load_end_at_the_memory_they_began_with(hours: int) -> None:
    """Tasks come, end, wait, are answered, are canceled; what has ended is forgotten after ten minutes."""
    clock, store = Clock(), MemoryStore()
    agent = asker()
    connection = connect(agent, store=store, clock=clock, settings=EngineSettings(drain=0))
    janitor = Janitor(store, clock, Retention(keep=600))
    service: Any = connection.service
    await connection.open()
    janitor.start()

    def message(text: str, number: int, task_id: str | None = None) -> SendMessageRequest:
        # Ids of the form that is remembered, for repeats.
        message_id = f"00000000-0000-4000-8000-{number:012x}"
        user_message = Message(message_id, Role.USER, (Part(text=text),), task_id=task_id)
        return SendMessageRequest(user_message, SendMessageConfiguration())

    count = 0

    async def hour() -> None:
        nonlocal count
        for _ in range(60):
            for turn in range(4):
                count += 2
                task = (await service.send(ME, message("go", count))).result
                assert task.state is State.INPUT_REQUIRED
                if turn % 2:
                    await service.cancel(ME, CancelTaskRequest(task.id))
                else:
                    done = (await service.send(ME, message("Ada", count + 1, task.id))).result
                    assert done.state is State.COMPLETED
            await clock.advance(60)

    with traced():
        await hour()
        before, tasks_before = held(), len(store._by_id)
        for _ in range(hours - 1):
            await hour()
        after = held()
    print(f"{hours} hours: {count} messages, {before / MB:.2f} MB after an hour, {after / MB:.2f} MB after all")
    assert left(service) == {}
    assert not service._locks._locks
    assert len(store._by_id) == tasks_before <= 4 * 12
    # Caches of the interpreter and of other tests move by this much: a hundred bytes kept per message would show in
    # six hours, twenty in a day.
    assert abs(after - before) < 0.1 * before + 200_000

    # Nobody comes any more: all is forgotten.
    await clock.advance(1300)
    assert not store._by_id
    assert not store._context_states
    assert not store._conversations
    with pytest.raises(Exception, match="not found"):
        await service.get(ME, GetTaskRequest("any"))
    await janitor.stop()
    await connection.close()
