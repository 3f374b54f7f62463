"""Changes on a real PostgreSQL, behind a proxy that loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest
from cluster.processes.wire_proxy import How, Trap, WireProxy, changes_tasks
from msgspec import structs
from unit.stores.postgres.changes import NOW, Change, appended, created, new_row

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import DedupeKey, Note, Push, TaskRow
from dragoman.model.state import State
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes
from dragoman.stores.postgres.store import PostgresStore

ALL = 1000


def at_port(url: str, port: int) -> str:
    """The same database behind another port."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[PostgresStore, WireProxy]]:
    """A store whose connections, except that of its heartbeat, go through a proxy."""
    async with WireProxy(urlsplit(url).port or 5432) as proxy:
        store = PostgresStore(PostgresDatabase(at_port(url, proxy.port)), PostgresNodes(url))
        await store.open()
        try:
            yield store, proxy
        finally:
            await store.close()


async def write(store: PostgresStore, *changes: Change) -> list[str]:
    reported = [asyncio.get_running_loop().create_future() for _ in changes]
    for change, future in zip(changes, reported, strict=True):
        change.write.done = future.set_result
        store.write(change.write)
    async with asyncio.timeout(30):
        errors = await asyncio.gather(*reported)
    return ["committed" if error is None else repr(error) for error in errors]


async def history(store: PostgresStore, row: TaskRow) -> tuple[list[int], list[str]]:
    """The generations of a task, and the kinds of its notes."""
    records, notes = await store.records(row.number, 0, ALL), await store.notes(row.number)
    return [record.generation for record in records], [note.kind for note in notes]


@pytest.mark.parametrize("how", ["swallow", "cut", "late"])
async def test_a_change_whose_answer_is_lost_is_written_once_and_reported_as_such(postgres_url: str, how: How) -> None:
    async with proxied(postgres_url) as (store, proxy):
        task, opened, answered, queued = (new_row(number=store.next_number()) for _ in range(4))
        follower = new_row(task.context_id, number=store.next_number())
        hook = Push(task.number, "hook", V1_0, "https://hooks/1", b"", 1, NOW)
        key, reply_key = (DedupeKey(name, NOW * 2) for name in (b"k" * 32, b"r" * 32))
        begun = Note(1, "begun", b"k")
        steps: list[list[Change]] = [
            [created(task, dedupe_key=key, begins=True, serial=True), appended(task, 2, State.WORKING)],
            [created(follower, joins_context=True, queued=True), created(queued, queued=True)],
            [appended(task, 3, State.WORKING, notes=(Note(3, "ask", b"q"),))],
            [Change(at(task, 3, State.WORKING), notes=(begun,), epoch=1) for _ in range(2)],
            [Change(task, pushes=(hook,))],
            [Change(task, push_progress=(structs.replace(hook, cursor=3),))],
            [appended(task, 4, State.COMPLETED, snapshot=b"{}")],
            [
                Change(opened, draft=True, snapshot=b"s", notes=(Note(1, "request", b"r"),), epoch=1),
                Change(answered, draft=True, snapshot=b"s", dedupe_key=reply_key, epoch=1),
            ],
            [Change(opened, notes=(begun,), epoch=1)],
            [created(opened, opens_draft=True), appended(opened, 2, State.INPUT_REQUIRED, snapshot=b"{}")],
            [Change(answered, draft=True, delete=True, reply=b"hello", dedupe_key=reply_key, epoch=1)],
        ]
        for number, changes in enumerate(steps):
            proxy.traps.append(Trap(changes_tasks if number not in (4, 5) else lambda sql: "pushes" in sql, how))
            assert set(await write(store, *changes)) == {"committed"}, f"step {number}"
        await proxy.until_sprung(len(steps))  # those that come late have come
        assert await history(store, task) == ([1, 2, 3, 4], ["ask", "begun", "begun"])
        assert await history(store, opened) == ([1, 2], ["request", "begun"])
        assert await store.drafts("agent") == []
        assert await store.reply(reply_key.digest, NOW) == b"hello"
        assert [push.cursor for push in await store.pushes(task.number)] == [3]
        proxy.traps.append(Trap(lambda sql: "delete from" in sql.lower(), how))
        assert await write(store, Change(at(task, 4, State.COMPLETED), delete=True)) == ["committed"]
        assert await store.task(task.id) is None


def at(row: TaskRow, generation: int, state: State) -> TaskRow:
    return structs.replace(row, generation=generation, state=state)


async def test_a_draft_that_was_answered_is_not_written_again_by_a_late_statement(postgres_url: str) -> None:
    async with proxied(postgres_url) as (store, proxy):
        row, key = new_row(number=store.next_number()), DedupeKey(b"k" * 32, NOW * 2)
        proxy.traps.append(Trap(changes_tasks, "late"))
        draft = Change(row, draft=True, snapshot=b"s", dedupe_key=key, epoch=1, begins=True)
        assert await write(store, draft) == ["committed"]
        reply = Change(row, draft=True, delete=True, reply=b"hello", dedupe_key=key, epoch=1)
        assert await write(store, reply) == ["committed"]
        await proxy.until_sprung(1)
        assert await store.drafts("agent") == []
        assert await store.reply(key.digest, NOW) == b"hello"


async def test_a_claim_and_a_message_whose_answers_are_lost_are_made_once(postgres_url: str) -> None:
    async with proxied(postgres_url) as (store, proxy):
        row = new_row(number=store.next_number())
        assert set(await write(store, created(row), appended(row, 2, State.INPUT_REQUIRED))) == {"committed"}
        stored = await store.task(row.id)
        assert stored is not None
        proxy.traps.append(Trap(changes_tasks, "swallow"))
        claimed = await store.ownership.claim(stored)
        assert claimed is not None
        answer = appended(row, 3, State.WORKING, epoch=claimed.claim.epoch)
        assert await write(store, answer) == ["committed"]
        for how in ("swallow", "late"):
            proxy.traps.append(Trap(lambda sql: "mail" in sql, how))
            assert await store.ownership.post(answer.write.row, b"hello") is True
        assert [number for number, _ in await store.ownership.mail(row.number, 0)] == [1, 2]


async def test_a_silent_connection_is_given_up(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.stores.postgres.writer.SILENCE_SECONDS", 0.2)
    async with proxied(postgres_url) as (store, proxy):
        row = new_row(number=store.next_number())

        proxy.traps.append(Trap(changes_tasks, "hang"))
        assert await write(store, created(row)) == ["committed"]
        assert await history(store, row) == ([1], [])
