"""The table `a2a_tasks`, as another program finds it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman.compat.tool_server.rows import A2A_TASKS, A2ATask
from dragoman.engine.ports.store import Scope
from dragoman.model.error import ServerError
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing.store_writes import create, row_of

GOLDEN = Path(__file__).parents[2] / "contract" / "golden" / "store-v7.db"
COLUMNS = [
    ("id", "INTEGER", 0, 1),
    ("updated_at", "INTEGER", 0, 0),
    ("user_id", "INTEGER", 1, 0),
    ("state", "TEXT", 0, 0),
    ("history", "TEXT", 0, 0),
    ("artifacts", "TEXT", 0, 0),
]


def store_at(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    store.add_table(A2A_TASKS)
    return store


def read(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


# As files have it whose tables were all made by the store itself.
MADE_BY_THE_STORE = """
CREATE TABLE a2a_tasks (
    id INTEGER PRIMARY KEY, updated_at INTEGER, user_id INTEGER NOT NULL, state TEXT, history TEXT, artifacts TEXT
);
CREATE INDEX a2a_tasks_of_user ON a2a_tasks (user_id);
"""


@pytest.fixture(params=["new", "brought up", "first without it", "had it before"])
async def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that a server has opened: one of its own, one of the oldest, or one that others have used."""
    path = tmp_path / "t.db"
    if request.param == "brought up":
        shutil.copy(GOLDEN, path)
    elif request.param != "new":
        plain = SqliteStore(path)
        await plain.open()
        await plain.close()
    if request.param == "had it before":
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(MADE_BY_THE_STORE)
    store = store_at(path)
    await store.open()
    await store.close()
    return path


@pytest.mark.requirement("S0-48", "S0-49", "S0-50", "S0-51", "S0-53", "S0-54", "S0-55")
def test_the_table_has_six_columns_of_these_types(path: Path) -> None:
    found = read(path, 'SELECT name, type, "notnull", pk FROM pragma_table_info("a2a_tasks")')
    assert found == COLUMNS


@pytest.mark.requirement("S0-52")
def test_the_user_of_a_row_has_an_index(path: Path) -> None:
    indexes = [name for (name,) in read(path, 'SELECT name FROM pragma_index_list("a2a_tasks")')]
    assert [read(path, f'SELECT name FROM pragma_index_info("{name}")') for name in indexes] == [[("user_id",)]]
    plan = read(path, "EXPLAIN QUERY PLAN SELECT * FROM a2a_tasks WHERE user_id = 1")
    assert indexes[0] in plan[0][-1]


@pytest.mark.requirement("S0-51")
def test_a_row_without_a_user_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="user_id"):
        connection.execute("INSERT INTO a2a_tasks VALUES (1, 1, NULL, 'working', '[]', '[]')")


async def test_what_is_written_is_text_and_the_users_of_the_file_have_their_own_key(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = store_at(path)
    await store.open()
    users = SqliteUsers(path)
    for name in ("ada", "bob", "42"):
        users.add(name)
    for number, owner in enumerate(("bob", "eve", "42", ""), 1):
        row = row_of(store, str(number), scope=Scope("agent", "", owner))
        await create(store, row, rows=(A2ATask(number, 5, 99, "working", "[1]", "[]").row,))
    await store.close()
    found = read(path, "SELECT id, user_id, typeof(state), typeof(history), typeof(artifacts) FROM a2a_tasks")
    texts = ("text", "text", "text")
    assert found == [(1, 2, *texts), (2, 99, *texts), (3, 3, *texts), (4, 99, *texts)]


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    store = store_at(tmp_path / "t.db")
    await store.open()
    await store.close()
    row = A2ATask(1, 5, 0, "canceled", "[]", "[]").row
    with pytest.raises(ServerError, match="the store"):
        await store.replace_row(row, 4)
    with pytest.raises(ServerError, match="the store is closed"):
        await store.read_row(A2A_TASKS, 1)
