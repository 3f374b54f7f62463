"""A database with two nodes, and the changes of tasks that tests make in it."""

from __future__ import annotations

from itertools import count
from typing import Any

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import Note, Push, Scope, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.postgres.database import NodeInfo

NOW = 1_800_000_000_000
SCOPE = Scope("agent", "", "")
ONE, TWO = 101, 202
ANSWER = b'{"role":"ROLE_USER"}'


class Tables:
    """A database with two nodes, and short words for what tests do with it."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self._numbers = count()
        self._first = 0

    async def open(self) -> None:
        for node in (ONE, TWO):
            await self.database.join(NodeInfo(node, f"node-{node}", ("agent",), "1"))
        self._first = await self.database.numbers(1000)

    def row(self, context: str = "", state: State = State.SUBMITTED, generation: int = 1) -> TaskRow:
        """A new row, with a number and a context of its own."""
        number = self._first + next(self._numbers)
        return TaskRow(number, f"t{number}", SCOPE, context or f"c{number}", V1_0, state, NOW, generation, NOW)

    async def commit(self, node: int, *writes: Write) -> str:
        """Commit the changes of one task, and say what became of them."""
        (outcome,) = await self.database.commit(node, [writes])
        return outcome.kind

    async def create(self, node: int = ONE, context: str = "", **parts: Any) -> TaskRow:
        """A task that a node has created; with a context, it joins it."""
        row = self.row(context)
        assert await self.commit(node, created(row, joins_context=bool(context), **parts)) == "committed"
        return row

    async def waiting(self, node: int = ONE, context: str = "") -> TaskRow:
        """A task that waits for an answer: at generation 2, of epoch 1, and nobody's."""
        row = await self.create(node, context)
        row = after(row, State.INPUT_REQUIRED)
        assert await self.commit(node, change(row, 1)) == "committed"
        return row

    async def kill(self, node: int) -> None:
        """Declare a node dead."""
        peers = {peer.id: peer for peer in (await self.database.beat(ONE)).peers}
        assert await self.database.bury(node, peers[node].beat)

    async def take(self, node: int, *, parallel: bool = False, limit: int = 100) -> list[int]:
        """The numbers of the tasks that a node takes."""
        return [c.claim.task for c in await self.database.take(node, "agent", parallel=parallel, limit=limit)]


def created(row: TaskRow, **parts: Any) -> Write:
    """The change that creates a task."""
    records = tuple(Record(n, f"r{n}".encode()) for n in range(1, row.generation + 1))
    return Write(row, print, create=True, records=records, notes=(Note(1, "request", b"{}"),), **parts)


def after(row: TaskRow, state: State) -> TaskRow:
    """The row one generation later, in a state."""
    return TaskRow(
        row.number, row.id, SCOPE, row.context_id, V1_0, state, NOW + row.generation, row.generation + 1, NOW
    )


def change(row: TaskRow, epoch: int, **parts: Any) -> Write:
    """The change that brought a task to this row, with one record."""
    return Write(row, print, records=(Record(row.generation, b"change"),), epoch=epoch, **parts)


def push(row: TaskRow, **parts: Any) -> Push:
    """A webhook of a task."""
    return Push(row.number, "p", V1_0, "https://example.org", b"", 0, NOW, **parts)
