"""The tables of task states in docs/scaling.md are what PostgreSQL does: every row is brought about and tried out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster.test_database_contract import ANSWER, NOW, after, change, created

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import Note, Scope, TaskRow, Write
from dragoman.model.state import State
from dragoman.net.postgres import connect
from dragoman.stores.postgres.database import NodeInfo
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
SCOPE = Scope("agent", "", "")
NO, YES = "no", "yes"
# As the page names them.
STATES = {1: "submitted", 2: "working", 3: "ended", 6: "waiting", 8: "waiting", -1: "draft"}


class Placed(NamedTuple):
    """A task in one row of the table: the node that owns it or had it, and the node that tries things out."""

    row: TaskRow
    epoch: int
    owner: int
    other: int


class Board:
    """A database on which tasks are put into the rows of the table. Each has nodes and a context of its own."""

    def __init__(self, database: PostgresDatabase, nodes: PostgresNodes, control: Any) -> None:
        self.database = database
        self.nodes = nodes
        self.control = control
        self._ids = count(1)

    async def node(self) -> int:
        node = next(self._ids)
        await self.nodes.join(NodeInfo(node, f"node-{node}", ("agent",), "1"))
        return node

    async def kill(self, node: int) -> None:
        peers = {peer.id: peer for peer in (await self.nodes.beat(node)).peers}
        assert await self.nodes.bury(node, peers[node].beat)

    async def commit(self, node: int, write: Write) -> bool:
        (outcome,) = await self.database.commit(node, [[write]])
        return outcome.kind == "committed"

    async def begin(self, **parts: Any) -> Placed:
        """A new task of a node."""
        owner, other = await self.node(), await self.node()
        number = await self.database.numbers(1)
        row = TaskRow(number, f"t{number}", SCOPE, f"c{number}", V1_0, State.SUBMITTED, NOW, 1, NOW)
        assert await self.commit(owner, created(row, **parts))
        return Placed(row, 1, owner, other)

    async def go_on(self, placed: Placed, state: State, **parts: Any) -> Placed:
        row = after(placed.row, state)
        assert await self.commit(placed.owner, change(row, placed.epoch, **parts))
        return placed._replace(row=row)

    # -- the rows ------------------------------------------------------------------------------------------------------

    async def queued(self) -> Placed:
        return await self.begin(queued=True)

    async def pinned(self) -> Placed:
        return await self.begin(queued=True, pins=True)

    async def homeless(self) -> Placed:
        placed = await self.pinned()
        await self.kill(placed.owner)
        return placed

    async def claimed(self) -> Placed:
        return await self.begin()

    async def running(self) -> Placed:
        return await self.go_on(await self.begin(), State.WORKING, begins=True, serial=True)

    async def handed_over(self) -> Placed:
        placed = await self.running()
        assert await self.database.release(placed.owner, placed.row.number, placed.epoch, begun=True)
        return placed

    async def draft(self) -> Placed:
        owner, other = await self.node(), await self.node()
        number = await self.database.numbers(1)
        row = TaskRow(number, f"t{number}", SCOPE, f"c{number}", V1_0, State.WORKING, NOW, 1, NOW)
        note = (Note(1, "request", b"{}"),)
        assert await self.commit(owner, Write(row, print, draft=True, snapshot=b"d", notes=note, begins=True))
        return Placed(row, 1, owner, other)

    async def waiting(self) -> Placed:
        return await self.go_on(await self.running(), State.INPUT_REQUIRED)

    async def answered(self) -> Placed:
        placed = await self.waiting()
        claimed = await self.database.claim(placed.owner, placed.row.number, placed.row.generation, revoke=False)
        assert claimed is not None
        return placed._replace(epoch=claimed.claim.epoch)

    async def waiting_for_login(self) -> Placed:
        return await self.go_on(await self.running(), State.AUTH_REQUIRED)

    async def logged_in(self) -> Placed:
        placed = await self.waiting_for_login()
        claimed = await self.database.claim(placed.owner, placed.row.number, placed.row.generation, revoke=False)
        assert claimed is not None
        return placed._replace(epoch=claimed.claim.epoch)

    async def ended(self) -> Placed:
        return await self.go_on(await self.running(), State.COMPLETED)

    # -- what is seen --------------------------------------------------------------------------------------------------

    async def columns(self, placed: Placed) -> tuple[str, ...]:
        """State, owner, begun, home and attempts of a task, as the first table writes them."""
        state, owner, begun, attempts, home = await self.control.fetchrow(
            "SELECT t.state, t.owner, t.begun, t.attempts, c.home FROM tasks t "
            "LEFT JOIN contexts c ON c.scope = t.scope AND c.context_id = t.context_id WHERE t.number = $1",
            placed.row.number,
        )
        is_alive = await self.control.fetchval("SELECT EXISTS (SELECT 1 FROM nodes WHERE name = $1 AND NOT dead)", home)
        homes = {True: "a live node", False: "a node that is gone"}
        return (
            STATES[state],
            "none" if owner is None else "a node",
            YES if begun else NO,
            "any" if home is None else homes[is_alive],
            str(attempts),
        )

    async def taken(self, node: int, placed: Placed) -> str:
        claimed = await self.database.take(node, "agent", parallel=False, limit=1000)
        for one in claimed:
            if one.claim.task == placed.row.number:
                words = ["as begun" if one.begun else "as new"]
                if one.claim.attempts:
                    words.append(f"attempt {one.claim.attempts}")
                if one.home is not None:
                    words.append("to fail it")
                return ", ".join(words)
        return NO


Try = Callable[[Board, Placed], Awaitable[str]]


async def owner_writes(board: Board, placed: Placed) -> str:
    return _yes(await board.commit(placed.owner, _next_note(placed, placed.epoch)))


async def another_writes(board: Board, placed: Placed) -> str:
    return _yes(await board.commit(placed.other, _next_note(placed, placed.epoch)))


async def another_takes_it(board: Board, placed: Placed) -> str:
    return await board.taken(placed.other, placed)


async def another_answers_it(board: Board, placed: Placed) -> str:
    number, generation = placed.row.number, placed.row.generation
    return _yes(await board.database.claim(placed.other, number, generation, revoke=False) is not None)


async def another_cancels_it(board: Board, placed: Placed) -> str:
    number, generation = placed.row.number, placed.row.generation
    return _yes(await board.database.claim(placed.other, number, generation, revoke=True) is not None)


async def it_takes_a_message(board: Board, placed: Placed) -> str:
    return _yes((await board.database.post(placed.row, ANSWER, None, None, key=placed.row.number)).kind == "committed")


async def owner_dies(board: Board, placed: Placed) -> str:
    # The node of a session that is gone is dead already.
    if await board.control.fetchval("SELECT NOT dead FROM nodes WHERE id = $1", placed.owner):
        await board.kill(placed.owner)
    return await _after_owner(board, placed)


async def owner_leaves(board: Board, placed: Placed) -> str:
    await board.nodes.leave(placed.owner)
    return await _after_owner(board, placed)


async def _after_owner(board: Board, placed: Placed) -> str:
    """What a take of another node comes to, once the owner is dead."""
    before = await board.columns(placed)
    how = await board.taken(placed.other, placed)
    if how != NO:
        return f"taken {how}"
    return "nothing changes" if await board.columns(placed) == before else "waits again"


def _next_note(placed: Placed, epoch: int) -> Write:
    return Write(placed.row, print, notes=(Note(placed.row.generation, "begun", b"k"),), epoch=epoch, key=1)


def _yes(is_so: bool) -> str:
    return YES if is_so else NO


ROWS: dict[str, Callable[[Board], Awaitable[Placed]]] = {
    "queued": Board.queued,
    "queued, pinned": Board.pinned,
    "queued, session gone": Board.homeless,
    "claimed": Board.claimed,
    "running": Board.running,
    "handed over": Board.handed_over,
    "draft": Board.draft,
    "waiting": Board.waiting,
    "being answered": Board.answered,
    "waiting for a login": Board.waiting_for_login,
    "being resumed": Board.logged_in,
    "ended": Board.ended,
}
TRIES: dict[str, Try] = {
    "its owner writes": owner_writes,
    "another node writes": another_writes,
    "another takes it": another_takes_it,
    "another answers it": another_answers_it,
    "another cancels it": another_cancels_it,
    "a message is added": it_takes_a_message,
    "its owner dies": owner_dies,
    "its owner leaves": owner_leaves,
}


@pytest.fixture
async def board(postgres_url: str) -> AsyncIterator[Board]:
    database, nodes = PostgresDatabase(postgres_url), PostgresNodes(postgres_url)
    await database.open(())
    control = await connect(postgres_url)
    yield Board(database, nodes, control)
    await control.close()
    await nodes.close()
    await database.close()


def page_table(first: str) -> list[list[str]]:
    """The cells of the page's table whose head begins with this cell."""
    lines = PAGE.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    found: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return [found[0], *found[2:]]


async def test_every_row_of_the_table_is_a_task_as_the_database_has_it(board: Board) -> None:
    head, *rows = page_table("row")
    assert head[1:6] == ["state", "owner", "begun", "home", "attempts"]
    assert [row[0] for row in rows] == list(ROWS)
    for name, *cells in rows:
        seen = await board.columns(await ROWS[name](board))
        for cell, value in zip(cells[:5], seen, strict=True):
            assert value in cell.split(" or "), f"{name}: {cell!r}, and in the database {value!r}"


async def test_the_database_does_what_the_table_says(board: Board) -> None:
    head, *rows = page_table("what happens")
    assert head[1:] == list(TRIES)
    assert [row[0] for row in rows] == list(ROWS)
    for name, *cells in rows:
        for (what, trial), cell in zip(TRIES.items(), cells, strict=True):
            assert f"{name}, {what}: {await trial(board, await ROWS[name](board))}" == f"{name}, {what}: {cell}"
