"""Ended tasks are forgotten in time."""

from __future__ import annotations

import pytest

from dragoman import Agent, Client
from dragoman.engine.journal.retention import SWEEP_SECONDS, Janitor, Retention
from dragoman.engine.ports.store import Sweep
from dragoman.model.error import ServerError, TaskNotFound
from dragoman.server.agent.in_process import connect
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock


class InMemory:
    """An agent with a store and a clock that a test holds."""

    def __init__(self) -> None:
        self.agent = Agent("echo", description="Echo")
        self.store = MemoryStore()
        self.clock = Clock()

        @self.agent.skill
        async def echo(text: str) -> str:
            """Echo."""
            return text

    def in_process(self):
        return connect(self.agent, store=self.store, clock=self.clock)


@pytest.mark.parametrize("retention", [Retention(keep=600), Retention(keep_tasks=1)])
async def test_what_is_too_old_or_too_much_goes_within_a_minute(retention: Retention) -> None:
    held = InMemory()
    janitor = Janitor(held.store, held.clock, retention)
    async with Client(held) as client:
        janitor.start()
        old = await client.send("old")
        await held.clock.advance(590)
        young = await client.send("young")
        await held.clock.advance(10 + SWEEP_SECONDS)

        with pytest.raises(TaskNotFound):
            await client.get_task(old)
        assert (await client.get_task(young)).text == "young"
        await janitor.stop()


async def test_by_default_a_task_stays_and_only_its_events_go_after_a_day() -> None:
    held = InMemory()
    janitor = Janitor(held.store, held.clock, Retention())
    async with Client(held) as client:
        janitor.start()
        task = await client.send("kept")
        stored = await held.store.task(task.id)
        assert stored is not None
        assert len(await held.store.records(stored.row.number, 0, 10)) == 4

        await held.clock.advance(86_400 + 2 * SWEEP_SECONDS)

        assert await held.store.records(stored.row.number, 0, 10) == []
        assert await client.get_task(task) == task
        await janitor.stop()


async def test_no_task_is_touched_when_none_may_go() -> None:
    rules = Retention(keep=0, keep_tasks=0, compact=0).sweep(1000)
    assert (rules.ended_before_ms, rules.keep_tasks, rules.compact_before_ms) == (None, None, None)


async def test_an_outage_of_the_store_is_one_warning_and_sweeping_goes_on_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unsteady(MemoryStore):
        down = True

        async def sweep(self, rules: Sweep) -> int:
            if self.down:
                raise ServerError("it does not answer")
            return await super().sweep(rules)

    held = InMemory()
    held.store = store = Unsteady()
    janitor = Janitor(held.store, held.clock, Retention(keep=30))
    async with Client(held) as client:
        task = await client.send("old")
        janitor.start()
        await held.clock.advance(3 * SWEEP_SECONDS)
        assert [record.message for record in caplog.records] == ["old tasks cannot be deleted now: it does not answer"]
        store.down = False
        await held.clock.advance(SWEEP_SECONDS)
        with pytest.raises(TaskNotFound):
            await client.get_task(task)
        await janitor.stop()
