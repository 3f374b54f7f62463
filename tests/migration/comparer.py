"""Compares a SQLite store with the PostgreSQL store that it was moved into, record by record, through their ports.

It shares no code with the migration: what it compares is what servers and commands read on both sides.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from msgspec import structs

from dragoman.compat.tool_server.rows import A2A_TASKS
from dragoman.engine.ports.store import Cursor, Push, Scope, Store, StoredTask, TaskQuery
from dragoman.model.state import State
from dragoman.stores.postgres.admin.users import PostgresUsers
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes
from dragoman.stores.postgres.store import PostgresStore
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.stores.sqlite.store import SqliteStore

ALL_RECORDS = 1 << 30
DAY_MS = 86_400_000


class StoreComparer:
    """Both stores, open. `unseal` opens the secrets of webhooks as the servers of each side do."""

    def __init__(self, file: Path, old: Store, new: Store, unseal: Callable[[bytes], bytes]) -> None:
        self._file = file
        self._old = old
        self._new = new
        self._unseal = unseal
        self.tasks = 0
        self.records = 0

    async def compare(self) -> None:
        """Compare everything. Raises AssertionError at the first difference."""
        scopes = [Scope(*row) for row in self._read("SELECT agent, tenant, owner FROM scopes ORDER BY 1, 2, 3")]
        for scope in scopes:
            await self._compare_scope(scope)
        for agent in {scope.agent for scope in scopes}:
            await self._compare_all(await self._old.drafts(agent), await self._new.drafts(agent))
            await self._compare_all(await self._old.unfinished(agent), await self._new.unfinished(agent))
        assert self.tasks >= self._read("SELECT count(*) FROM tasks")[0][0]
        await self._compare_contexts()
        await self._compare_keys()
        await self._compare_rows()

    def _read(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)) as file:
            return file.execute(query).fetchall()

    async def _compare_scope(self, scope: Scope) -> None:
        query = TaskQuery(scope, limit=500)
        for filtered in (query, *(structs.replace(query, state=state) for state in State)):
            old, new = await asyncio.gather(self._old.page(filtered), self._new.page(filtered))
            assert old.total == new.total, (scope, filtered.state)
        after: tuple[Cursor, Cursor] | None = None
        while True:
            pages = await asyncio.gather(
                self._old.page(structs.replace(query, after=after[0]) if after else query),
                self._new.page(structs.replace(query, after=after[1]) if after else query),
            )
            old, new = pages
            assert old.more == new.more
            await self._compare_all(old.tasks, new.tasks)
            if not old.more:
                return
            last = [page.tasks[-1].row for page in pages]
            after = (Cursor(last[0].status_ms, last[0].number), Cursor(last[1].status_ms, last[1].number))

    async def _compare_all(self, old: Any, new: Any) -> None:
        assert [stored.row.id for stored in old] == [stored.row.id for stored in new], "the order"
        for start in range(0, len(old), 50):
            pairs = zip(old[start : start + 50], new[start : start + 50], strict=True)
            await asyncio.gather(*(self._compare_task(*pair) for pair in pairs))

    async def _compare_task(self, old: StoredTask, new: StoredTask) -> None:
        expected = (old.row.created_ms // DAY_MS) * 2**37 + old.row.number
        row = structs.replace(old.row, number=expected, context_id=old.row.context_id.replace("\0", "\ufffd"))
        assert new.row == row
        assert (new.snapshot, new.snapshot_generation) == (old.snapshot, old.snapshot_generation), row.id
        assert (new.mail, new.snapshot_mail) == (old.mail, old.snapshot_mail), row.id
        numbers = old.row.number, new.row.number
        records = await asyncio.gather(
            self._old.records(numbers[0], 0, ALL_RECORDS), self._new.records(numbers[1], 0, 1 << 20)
        )
        assert records[0] == records[1], row.id
        journals = await asyncio.gather(
            self._old.journal(numbers[0], 0, ALL_RECORDS, 1 << 40), self._new.journal(numbers[1], 0, 1 << 20, 1 << 40)
        )
        assert journals[0] == journals[1], row.id
        notes = await asyncio.gather(self._old.notes(numbers[0]), self._new.notes(numbers[1]))
        assert notes[0] == notes[1], row.id
        pushes = await asyncio.gather(self._old.pushes(numbers[0]), self._new.pushes(numbers[1]))
        assert [self._opened(push, expected) for push in pushes[0]] == [
            self._opened(push, expected) for push in pushes[1]
        ]
        self.tasks += 1
        self.records += len(records[0])

    def _opened(self, push: Push, number: int) -> Push:
        return structs.replace(push, task=number, secrets=self._unseal(push.secrets), epoch=0)

    async def _compare_contexts(self) -> None:
        contexts = self._read("SELECT agent, tenant, owner, context_id FROM contexts JOIN scopes USING (scope)")
        for agent, tenant, owner, context_id in contexts:
            scope = Scope(agent, tenant, owner)
            assert await self._new.context_state(scope, context_id) == await self._old.context_state(scope, context_id)

    async def _compare_keys(self) -> None:
        keys = await self._old.dedupe_keys(0)
        assert sorted(keys) == sorted(await self._new.dedupe_keys(0))
        for key in keys:
            reply = await self._old.reply(key, 0)
            assert await self._new.reply(key, 0) == reply
            assert await self._new.duplicate_of(key, 0) == await self._old.duplicate_of(key, 0)

    async def _compare_rows(self) -> None:
        if not self._read("SELECT name FROM sqlite_master WHERE name = 'a2a_tasks'"):
            return
        for (key,) in self._read("SELECT id FROM a2a_tasks"):
            row = await self._old.read_row(A2A_TASKS, key)
            assert row is not None
            assert await self._new.read_row(A2A_TASKS, key) == row


@asynccontextmanager
async def compared_stores(
    file: Path, url: str, unseal: Callable[[bytes], bytes] = bytes
) -> AsyncIterator[StoreComparer]:
    """Open both stores. The file must not be marked as moved: it is the backup."""
    old = SqliteStore(file)
    new = PostgresStore(PostgresDatabase(url), PostgresNodes(url), name="comparer")
    for store in (old, new):
        store.add_table(A2A_TASKS)
    await old.open()
    try:
        await new.open()
        try:
            yield StoreComparer(file, old, new, unseal)
        finally:
            await new.close()
    finally:
        await old.close()


def compare_users(file: Path, url: str) -> None:
    """Compare the users of both stores as `dragoman users list` shows them."""
    old, new = SqliteUsers(file), PostgresUsers(url)
    assert old.list_users() == new.list_users()
    for user in old.list_users():
        before, after = old.account(user.name), new.account(user.name)
        assert before is not None and after is not None
        assert (before.user, before.password, before.epoch) == (after.user, after.password, after.epoch)
