"""The tables of task states in docs/scaling.md are what PostgreSQL and the simulation do: every row is tried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster.tables import ANSWER, ONE, Tables, after, change

from dragoman.engine.ports.store import Note, TaskRow, Write
from dragoman.model.state import State
from dragoman.stores.postgres.database import NodeInfo

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
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
    """Tasks in the rows of the table. Each has nodes and a context of its own."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.database = tables.database
        self._ids = count(1000)

    async def node(self) -> int:
        node = next(self._ids)
        await self.database.join(NodeInfo(node, f"node-{node}", ("agent",), "1"))
        return node

    async def live_nodes(self) -> list[int]:
        return [peer.id for peer in (await self.database.beat(ONE)).peers]

    async def begin(self, **parts: Any) -> Placed:
        """A new task of a node."""
        owner, other = await self.node(), await self.node()
        return Placed(await self.tables.create(owner, **parts), 1, owner, other)

    async def go_on(self, placed: Placed, state: State, **parts: Any) -> Placed:
        row = after(placed.row, state)
        assert await self.tables.commit(placed.owner, change(row, placed.epoch, **parts)) == "committed"
        return placed._replace(row=row)

    async def claim(self, placed: Placed) -> Placed:
        claimed = await self.database.claim(placed.owner, placed.row.number, placed.row.generation, revoke=False)
        return placed._replace(epoch=claimed.claim.epoch)

    # -- the rows ------------------------------------------------------------------------------------------------------

    async def queued(self) -> Placed:
        return await self.begin(queued=True)

    async def pinned(self) -> Placed:
        return await self.begin(queued=True, pins=True)

    async def homeless(self) -> Placed:
        placed = await self.pinned()
        await self.tables.kill(placed.owner)
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
        row, note = self.tables.row(state=State.WORKING), Note(1, "request", b"{}")
        draft = Write(row, print, draft=True, snapshot=b"d", notes=(note,), begins=True)
        assert await self.tables.commit(owner, draft) == "committed"
        return Placed(row, 1, owner, other)

    async def waiting(self) -> Placed:
        return await self.go_on(await self.running(), State.INPUT_REQUIRED)

    async def answered(self) -> Placed:
        return await self.claim(await self.waiting())

    async def waiting_for_login(self) -> Placed:
        return await self.go_on(await self.running(), State.AUTH_REQUIRED)

    async def logged_in(self) -> Placed:
        return await self.claim(await self.waiting_for_login())

    async def ended(self) -> Placed:
        return await self.go_on(await self.running(), State.COMPLETED)

    # -- what is seen --------------------------------------------------------------------------------------------------

    async def columns(self, placed: Placed) -> tuple[str, ...]:
        """State, owner, begun, home and attempts of a task, as the first table writes them."""
        state, owner, begun, attempts, home = await self.database.state_of(placed.row.number)
        names = {f"node-{node}" for node in await self.live_nodes()}
        return (
            STATES[state],
            "none" if owner is None else "a node",
            YES if begun else NO,
            "any" if home is None else "a live node" if home in names else "a node that is gone",
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
    return _yes(await board.tables.commit(placed.owner, _next_note(placed)) == "committed")


async def another_writes(board: Board, placed: Placed) -> str:
    return _yes(await board.tables.commit(placed.other, _next_note(placed)) == "committed")


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
    if placed.owner in await board.live_nodes():
        await board.tables.kill(placed.owner)
    return await _after_owner(board, placed)


async def owner_leaves(board: Board, placed: Placed) -> str:
    await board.database.leave(placed.owner)
    return await _after_owner(board, placed)


async def _after_owner(board: Board, placed: Placed) -> str:
    """What a take of another node comes to, once the owner is dead."""
    before = await board.columns(placed)
    how = await board.taken(placed.other, placed)
    if how != NO:
        return f"taken {how}"
    return "nothing changes" if await board.columns(placed) == before else "waits again"


def _next_note(placed: Placed) -> Write:
    return Write(placed.row, print, notes=(Note(placed.row.generation, "begun", b"k"),), epoch=placed.epoch, key=1)


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
def board(tables: Tables) -> Board:
    return Board(tables)


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
