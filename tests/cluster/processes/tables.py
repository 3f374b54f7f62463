"""The tables of the cluster, read directly: what really is stored, whatever a node says."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

import asyncpg
from cluster.processes.checker import StoredCluster, StoredJournal

from dragoman.stores.state_numbers import STATES

SECONDS = 60
POLL_SECONDS = 0.1


class Takeover(NamedTuple):
    """A task of a dead node: the seconds from the node's last beat to the claim of another."""

    task: int
    seconds: float


class Tables:
    """A connection to the database, straight and not through a proxy, made again when the database was away."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def __aenter__(self) -> Tables:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.close(timeout=5)

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        """Run a query, as soon as the database answers."""
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await asyncpg.connect(self._dsn)
                    return await self._connection.fetch(query, *arguments)
                except (
                    OSError,
                    asyncpg.PostgresConnectionError,
                    asyncpg.InterfaceError,
                    asyncpg.CannotConnectNowError,
                    asyncpg.TargetServerAttributeNotMatched,
                ):
                    await asyncio.sleep(POLL_SECONDS)

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]], seconds: float = SECONDS) -> None:
        """Wait until the tables say so."""
        try:
            async with asyncio.timeout(seconds):
                while not await condition():  # noqa: ASYNC110 - another process changes it
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{what}: not within {seconds} s") from None

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def live_nodes(self) -> dict[str, int]:
        """The nodes that nobody has declared dead: their ids by their names. Of two with one name, the last."""
        rows = await self.fetch("SELECT id, name FROM nodes WHERE NOT dead ORDER BY joined")
        return {row["name"]: row["id"] for row in rows}

    async def count_dead(self) -> int:
        """How many nodes were declared dead."""
        return (await self.fetch("SELECT count(*) FROM nodes WHERE dead"))[0][0]

    async def until_dead(self, node: int) -> None:
        """Wait until others have declared a node dead."""

        async def dead() -> bool:
            return bool(await self.fetch("SELECT 1 FROM nodes WHERE id = $1 AND dead", node))

        await self.until(f"node {node} is dead", dead)

    async def owned_by(self, node: int) -> set[int]:
        """The tasks that a node owns."""
        return {row["number"] for row in await self.fetch("SELECT number FROM tasks WHERE owner = $1", node)}

    async def takeovers(self, node: int, tasks: set[int]) -> list[Takeover]:
        """Wait until the tasks of a dead node are owned by others or have ended; how long each took."""

        left: list[str] = []

        async def taken() -> bool:
            rows = await self.fetch(
                "SELECT id FROM tasks WHERE number = ANY($1) AND (owner = $2 OR state IN (1, 2) AND owner IS NULL)",
                list(tasks),
                node,
            )
            left[:] = [row["id"] for row in rows]
            return not left

        try:
            await self.until(f"the tasks of node {node} are taken over", taken)
        except AssertionError:
            print(await self.story(left))
            raise
        rows = await self.fetch(
            "SELECT number, extract(epoch FROM claimed_at - nodes.seen)::float AS seconds FROM tasks, nodes "
            "WHERE number = ANY($1) AND nodes.id = $2",
            list(tasks),
            node,
        )
        # One that its owner has canceled or ended before it died was never taken over.
        return [Takeover(row["number"], row["seconds"]) for row in rows if row["seconds"] > 0]

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def until_settled(self) -> None:
        """Wait until nobody works on anything."""

        async def settled() -> bool:
            return not await self.fetch("SELECT 1 FROM tasks WHERE state <= 2 OR owner IS NOT NULL LIMIT 1")

        with suppress(AssertionError):  # the checker says what is left
            await self.until("everything comes to rest", settled)

    async def unfinished(self) -> list[str]:
        """The ids of tasks that have not ended and do not wait for their caller."""
        return [row["id"] for row in await self.fetch("SELECT id FROM tasks WHERE state IN (1, 2)")]

    async def story(self, task_ids: list[str]) -> str:
        """All that is stored about some tasks, to find out what happened to them."""
        lines: list[str] = []
        for row in await self.fetch("SELECT * FROM tasks WHERE id = ANY($1)", task_ids):
            lines.append(str(dict(row)))
            beside = "SELECT * FROM tasks WHERE scope = $1 AND context_id = $2 AND number <> $3"
            others = await self.fetch(beside, row["scope"], row["context_id"], row["number"])
            lines += [f"  beside {dict(each)}" for each in others]
            context = "SELECT * FROM contexts WHERE scope = $1 AND context_id = $2"
            lines += [f"  in {dict(each)}" for each in await self.fetch(context, row["scope"], row["context_id"])]
            for part in ("events", "notes"):
                rows = await self.fetch(f"SELECT * FROM {part} WHERE task = $1 ORDER BY generation", row["number"])
                lines += [f"  {part} {dict(each)}" for each in rows]
        return "\n".join(lines)

    async def read(self) -> StoredCluster:
        """Everything."""
        events: dict[int, dict[int, bytes]] = defaultdict(dict)
        for row in await self.fetch("SELECT task, generation, body FROM events ORDER BY task, generation"):
            events[row["task"]][row["generation"]] = row["body"]
        messages: dict[int, list[str]] = defaultdict(list)
        for row in await self.fetch("SELECT task, body FROM notes WHERE kind IN ('message', 'answer')"):
            messages[row["task"]].append(json.loads(row["body"])["messageId"])
        journals = {
            row["id"]: StoredJournal(
                row["id"],
                row["context_id"],
                STATES[row["state"]].value,
                row["generation"],
                row["owner"],
                events[row["number"]],
                messages[row["number"]],
            )
            for row in await self.fetch("SELECT * FROM tasks WHERE state >= 0 ORDER BY number")
        }
        drafts = (await self.fetch("SELECT count(*) FROM tasks WHERE state < 0"))[0][0]
        busy = (await self.fetch("SELECT count(*) FROM contexts WHERE running IS NOT NULL"))[0][0]
        return StoredCluster(journals, drafts, busy)
