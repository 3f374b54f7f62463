"""Every value comes back from a real PostgreSQL as it was written."""

from __future__ import annotations

import pytest
from msgspec import structs
from unit.stores.postgres.changes import NOW, SCOPE, created, new_row
from unit.stores.postgres.cluster import ClusterNode

from dragoman.engine.ports.store import DedupeKey, Note, Push, TaskQuery
from dragoman.stores.postgres.database import InvalidValue
from dragoman.stores.postgres.sql import reader

STRANGE = [
    '"',
    "\\",
    '\\"',
    '","',
    "{a,b}",
    "NULL",
    "None",
    "",
    " ",
    "a\nb\tc",
    "é✓𝄞",
    "\\x41",
    "'",
    "$1",
    "%s",
    "\x01",
]


async def test_texts_with_any_characters_come_back(node: ClusterNode) -> None:
    rows = [structs.replace(new_row(), id=f"{number} {text}", context_id=text) for number, text in enumerate(STRANGE)]
    pushes = [
        Push(row.number, text, "1.0", f"http://{text}", b"\0", 0, NOW) for row, text in zip(rows, STRANGE, strict=True)
    ]
    changes = [created(row, pushes=(push,)) for row, push in zip(rows, pushes, strict=True)]
    assert set(await node.kinds(*changes)) == {"committed"}
    for row, push in zip(rows, pushes, strict=True):
        stored = await node.database.run(reader.task, row.id)
        assert stored is not None
        assert stored.row == row
        assert await node.database.run(reader.pushes, row.number) == [push]


async def test_bytes_and_large_numbers_come_back(node: ClusterNode) -> None:
    row = structs.replace(new_row(), status_ms=2**62, created_ms=2**62)
    note = Note(1, "request", b'\0\xff"\\{}')
    assert await node.kinds(created(row, notes=(note,), dedupe_key=DedupeKey(b'"\\\0', NOW + 1))) == ["committed"]
    stored = await node.database.run(reader.task, row.id)
    assert stored is not None
    assert stored.row == row
    assert await node.database.run(reader.notes, row.number) == [note]
    assert await node.database.run(reader.duplicate_of, b'"\\\0', NOW) == row.id


@pytest.mark.parametrize("row", [{"id": "a\0b"}, {"id": "\ud800"}, {"status_ms": 2**63}])
async def test_what_cannot_be_stored_is_refused_in_its_own_way(node: ClusterNode, row: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        await node.commit(created(structs.replace(new_row(), **row)))


async def test_nothing_is_found_by_what_cannot_be_stored(node: ClusterNode) -> None:
    await node.create("c")
    assert await node.database.run(reader.task, "a\0b") is None
    assert (await node.database.run(reader.page, TaskQuery(SCOPE, "a\0b"))).tasks == ()
    assert len((await node.database.run(reader.page, TaskQuery(SCOPE, "c"))).tasks) == 1
