"""Everything at once, in random order: journals stay whole and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.error import A2AError
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.task import Task
from dragoman.outputs import Ask
from dragoman.stores.sqlite.store import SqliteStore

CALLERS, STEPS = 12, 10


async def rest(chance: random.Random, most: int) -> None:
    for _ in range(chance.randrange(most)):
        await asyncio.sleep(0)


def agent(chance: random.Random) -> Any:
    """A run that does a bit of everything an agent can do."""

    async def run(ctx: Any) -> Any:
        for _ in range(chance.randrange(6)):
            step = chance.randrange(9)
            if step < 3:
                yield "word "
            elif step == 3:
                yield {"n": chance.random()}
            elif step == 4:
                await ctx.progress("on")
            elif step == 5:
                await ctx.artifact("side")
            elif step == 6:
                await ctx.once("once", dict.fromkeys, "ab")
            elif step == 7:
                await rest(chance, 8)
            elif chance.random() < 0.5:
                yield Ask("?")
                return
            else:
                async for _ in ctx.messages():
                    break
        if chance.random() < 0.2:
            raise ValueError

    return run


class Crowd:
    """Callers who ask for random things of random tasks, and readers of all kinds."""

    def __init__(self, engine: Any, chance: random.Random) -> None:
        self.engine = engine
        self.chance = chance
        self.known: list[str] = []
        self.readers: list[asyncio.Task[tuple[str, list[int], bool]]] = []

    async def call(self) -> None:
        for _ in range(STEPS):
            with suppress(A2AError):
                await self.step()
            await rest(self.chance, 5)

    async def step(self) -> None:
        engine, chance = self.engine, self.chance
        task = chance.choice(self.known) if self.known and chance.random() < 0.7 else None
        step = chance.randrange(6)
        if step == 0 or task is None:
            context = chance.choice([None, "a", "b"])
            self.known.append((await engine.send("go", context=context, wait=False)).id)
        elif step == 1:
            await engine.send("more", task=task, wait=False)
        elif step == 2:
            await engine.cancel(task)
        elif step == 3:
            await engine.get(task)
        elif step == 4:
            await engine.list(include_artifacts=True)
        else:
            stream = await engine.subscribe(task, chance.choice([None, 0, 1, 2]))
            self.readers.append(asyncio.create_task(self.read(task, stream)))

    async def read(self, task: str, stream: Any) -> tuple[str, list[int], bool]:
        """Follow a task slowly, to its end or not. Gives what was read, and whether that was all."""
        numbers: list[int] = []
        leaves_early = self.chance.random() < 0.3
        async with aclosing(stream.batches) as batches:
            async for batch in batches:
                numbers += [record.generation for record in batch.records]
                await rest(self.chance, 10)
                if leaves_early and self.chance.random() < 0.3:
                    return task, numbers, False
        return task, numbers, True

    async def go_home(self) -> None:
        """End what hangs or waits."""
        for task in self.known:
            with suppress(A2AError):
                await self.engine.cancel(task)
        await self.engine.idle()


@pytest.mark.parametrize(("seed", "in_file"), [*((seed, False) for seed in range(12)), (12, True), (13, True)])
async def test_random_callers_and_a_random_agent_leave_whole_journals(
    start: Any, turns: Any, tmp_path: Path, seed: int, in_file: bool
) -> None:
    chance = random.Random(seed)
    engine = await start(agent(chance), store=SqliteStore(tmp_path / "tasks.db") if in_file else None)
    crowd = Crowd(engine, chance)
    async with asyncio.timeout(20):
        await asyncio.gather(*(crowd.call() for _ in range(CALLERS)))
        await crowd.go_home()
        seen = await asyncio.gather(*crowd.readers)
    await turns()
    assert engine.left() == {}
    assert len(crowd.known) > CALLERS
    for task_id, numbers, whole in seen:
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else not whole
        assert not whole or numbers[-1] == (await engine.get(task_id)).generation
    for task_id in crowd.known:
        events = await engine.journal(task_id)
        assert isinstance(events[0], Task)
        assert all(isinstance(event, (StatusUpdate, ArtifactUpdate)) for event in events[1:])
        states = await engine.states(task_id)
        assert states[-1].final
        assert not any(state.final for state in states[:-1])
        stored = await engine.store.task(task_id)
        task = await engine.get(task_id)
        assert task.generation == stored.row.generation == len(events)
        replayed = await engine.service._tasks.read(stored._replace(snapshot=None, snapshot_generation=0))
        assert replayed == task
