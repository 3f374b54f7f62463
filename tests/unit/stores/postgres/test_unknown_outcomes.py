"""Whatever happens to statements and their answers, a change is reported as what it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

from cluster.simulated_database import SimulatedDatabase
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from unit.stores.postgres.changes import NOW, Change, new_row
from unit.stores.postgres.faulty import FaultyDatabase

from dragoman.engine.ports.store import DedupeKey, Note, TaskRow
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.postgres.database import ConnectionLost, NodeInfo
from dragoman.stores.postgres.writer import GroupCommit
from dragoman.testing.clock import ManualClock

ONE, TWO = 101, 202


class Author:
    """Writes one task as a run does, until a change is refused or the task has ended."""

    def __init__(self, run: Run, row: TaskRow) -> None:
        self.run = run
        self.row = row
        self.epoch = 1
        self.changes: list[Change] = []
        self.is_over = False

    def next(self) -> None:
        if self.is_over or any(change.outcome not in ("waiting", "committed") for change in self.changes):
            return
        body = f'"{self.row.id}/{len(self.changes)}"'.encode()
        if not self.changes:
            key = DedupeKey(self.row.id.encode(), NOW * 2)
            self.put(create=True, records=(Record(1, body),), dedupe_key=key, begins=True)
        elif self.run.random.random() < 0.3:
            self.put(notes=(Note(self.row.generation, "once", body),))
        else:
            self.is_over = self.run.random.random() < 0.1
            state = State.COMPLETED if self.is_over else State.WORKING
            self.row = structs.replace(self.row, generation=self.row.generation + 1, state=state)
            self.put(records=(Record(self.row.generation, body),))

    def put(self, **parts: Any) -> None:
        self.changes.append(change := Change(self.row, epoch=self.epoch, **parts))
        self.run.writer.put(change.write)

    async def check(self) -> None:
        database = self.run.simulated
        bodies = [record.body for record in await database.records(self.row.number, 0, 9999)]
        notes = [note.body for note in await database.notes(self.row.number)]
        assert len(set(bodies)) == len(bodies)
        for change in self.changes:
            written = [*(record.body for record in change.write.records), *(note.body for note in change.write.notes)]
            stored = [(bodies + notes).count(body) for body in written]
            assert stored == ([1] if change.outcome == "committed" else [0]), (change.outcome, written)


class Run:
    """Some authors on one writer, whose connection is as bad as a seed says."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock(NOW)
        self.simulated = SimulatedDatabase(lambda: self.clock.now() / 1000)
        self.database = FaultyDatabase(self.simulated)
        self.writer = GroupCommit(self.database, self.clock, lambda: None)
        self.late: list[Awaitable[Any]] = []

    async def late_statement(self, statement: Awaitable[Any]) -> Any:
        """It is applied after its connection was lost, at some later time."""
        self.late.append(statement)
        raise ConnectionLost("it is on its way")

    async def silent_statement(self, statement: Awaitable[Any]) -> Any:
        await statement
        await asyncio.get_running_loop().create_future()

    async def play(self) -> None:
        for node in (ONE, TWO):
            await self.simulated.join(NodeInfo(node, str(node), ("agent",), "1"))
        self.writer.open(ONE)
        authors = [Author(self, new_row()) for _ in range(4)]
        faults = ["unsent", "swallowed", "refused", self.late_statement, self.silent_statement]
        for _ in range(60):
            match self.random.randrange(8):
                case 0:
                    self.database.fail("commit", *self.random.choices(faults, k=self.random.randint(1, 3)))
                case 1:
                    self.database.fail(self.random.choice(["owners", "records", "notes"]), "unsent")
                case 2 if self.late:
                    await self.late.pop(self.random.randrange(len(self.late)))
                case 3 if self.random.random() < 0.3:
                    number = self.random.choice(authors).row.number
                    await self.simulated.claim(TWO, number, 0, revoke=True)
                case 4:
                    await self.clock.advance(self.random.uniform(0, 0.3))
                case _:
                    self.random.choice(authors).next()
        self.database.faults.clear()
        await self.clock.advance(120)
        for statement in self.late:
            await statement
        for author in authors:
            assert all(change.outcome != "waiting" for change in author.changes)
            await author.check()
        await self.writer.close()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_change_is_stored_once_if_it_is_reported_as_committed_and_never_if_not(seed: int) -> None:
    asyncio.run(Run(seed).play())
