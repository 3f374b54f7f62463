"""Users beside a running server: what is changed elsewhere counts with the next question."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.error import ConfigError, ServerError
from dragoman.model.state import State
from dragoman.model.user import Account, User, is_name
from dragoman.stores.postgres.admin.users import PostgresUsers
from dragoman.stores.sqlite import file as writing
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.stores.sqlite.file import FileLock, short_write
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.stores.users import AccountCache, Users
from dragoman.testing import Clock
from dragoman.testing.store_writes import create, row_of

SRC = Path(__file__).resolve().parents[3] / "src"
DIGEST = b"d" * 32


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["file", "memory", "postgres"])
async def users(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Users]:
    if request.param == "postgres":
        made: Users = PostgresUsers(request.getfixturevalue("postgres_url"), clock)
    else:
        made = SqliteUsers(tmp_path / "t.db" if request.param == "file" else None, clock)
    await asyncio.to_thread(made.prepare)
    await made.open()
    yield made
    await made.close()


async def found(users: Users, name: str = "alice") -> Account:
    account = await users.by_name(name)
    assert account is not None
    return account


async def test_a_user_has_the_permissions_that_hold_now(users: Users, clock: Clock) -> None:
    users.add("alice", "hash", ("count", "list"))
    users.grant("alice", "admin", 60)
    assert (await found(users)).user.permissions == {"count", "list", "admin"}
    clock.move(59)
    assert (await found(users)).user.permissions == {"count", "list", "admin"}
    clock.move(1)
    assert (await found(users)).user.permissions == {"count", "list"}
    users.revoke_permission("alice", "list")
    assert (await found(users)).user.permissions == {"count"}
    users.grant("alice", "admin", 60)
    users.grant("alice", "admin")
    clock.move(3600)
    assert (await found(users)).user.permissions == {"count", "admin"}


async def test_a_key_belongs_to_its_user_until_it_runs_out_or_is_revoked(users: Users, clock: Clock) -> None:
    users.add("alice")
    users.add_key("alice", DIGEST, "abcd", 60)
    account = await users.by_key(DIGEST)
    assert account is not None
    assert account.user.id == "alice"
    clock.move(60)
    assert await users.by_key(DIGEST) is None
    users.add_key("alice", b"e" * 32, "efgh")
    assert await users.by_key(b"e" * 32) is not None
    assert [key.hint for key in users.list_users()[0].keys] == ["efgh"]
    users.revoke_key("alice", "efgh")
    assert await users.by_key(b"e" * 32) is None


async def test_a_revoked_user_is_gone_and_the_name_stays_taken(users: Users) -> None:
    users.add("alice", "hash", ("count",))
    users.add_key("alice", DIGEST, "abcd")
    before = (await found(users)).epoch
    users.revoke("alice")
    assert await users.by_name("alice") is None
    assert await users.by_key(DIGEST) is None
    assert users.list_users() == []
    with pytest.raises(ConfigError, match="no user 'alice'"):
        users.grant("alice", "count")

    users.add("alice", "another")

    account = await found(users)
    assert account.epoch > before
    assert account.user.permissions == frozenset()
    assert await users.by_key(DIGEST) is None


async def test_a_password_begins_another_epoch_and_a_permission_does_not(users: Users) -> None:
    users.add("alice", "hash")
    users.grant("alice", "count")
    assert (await found(users)).epoch == 0
    users.set_password("alice", "another")
    account = await found(users)
    assert (account.epoch, account.password) == (1, "another")


async def test_what_cannot_be_a_name_is_refused(users: Users) -> None:
    for name in ("", "a b", "a:b", "a|b", "-a", "a\n", "x" * 101, "a/b", "'"):
        with pytest.raises(ConfigError, match="cannot be a name"):
            users.add(name)
        assert not is_name(name)
    assert users.list_users() == []


async def test_mistakes_are_errors_with_the_reason(users: Users) -> None:
    users.add("alice@example.com")
    with pytest.raises(ConfigError, match="already"):
        users.add("alice@example.com")
    with pytest.raises(ConfigError, match="1 to 200"):
        users.grant("alice@example.com", "")
    with pytest.raises(ConfigError, match="1 to 200"):
        users.add("bob", "", ("a\nb",))
    with pytest.raises(ConfigError, match="does not have"):
        users.revoke_permission("alice@example.com", "count")
    with pytest.raises(ConfigError, match="no key that ends"):
        users.revoke_key("alice@example.com", "abcd")
    assert [user.name for user in users.list_users()] == ["alice@example.com"]


async def test_users_are_listed_by_name_their_permissions_too_and_keys_by_age(users: Users, clock: Clock) -> None:
    for name in ("bob", "Zoe", "alice"):
        users.add(name, "", ("b", "A"))
    for digest, hint in ((b"3", "b"), (b"2", "A")):
        users.add_key("bob", digest, hint)
    clock.move(1)
    users.add_key("bob", b"1", "A")
    listed = users.list_users()
    assert [user.name for user in listed] == ["Zoe", "alice", "bob"]
    assert [grant.permission for grant in listed[2].grants] == ["A", "b"]
    assert [(key.hint, key.created - listed[2].created) for key in listed[2].keys] == [("A", 0), ("b", 0), ("A", 1000)]
    with pytest.raises(ConfigError, match="several keys that end in 'A'"):
        users.revoke_key("bob", "A")


async def test_a_known_user_is_not_read_again_until_something_changes(users: Users) -> None:
    users.add("alice")
    await found(users)  # the first time, a node connects, and keeps nothing from before
    first = await found(users)
    assert await found(users) is first
    users.grant("alice", "count")
    assert await found(users) is not first


async def test_what_was_read_before_a_change_is_not_kept_after_it() -> None:
    cache, account = AccountCache(), Account(User("alice"), "", 0, fresh_until=1)

    async def read(*, is_changed: bool) -> Account:
        if is_changed:
            cache.clear()
        return account

    assert await cache.load("alice", read(is_changed=True)) is account
    assert cache.get("alice", 0) is None
    await cache.load("alice", read(is_changed=False))
    assert cache.get("alice", 0) is account


async def test_a_closed_store_of_users_is_an_error(users: Users) -> None:
    await users.close()
    with pytest.raises(ServerError):
        await users.by_name("alice")


# -- beside a server -------------------------------------------------------------------------------------------------


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, SqliteUsers]]:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    users = SqliteUsers(tmp_path / "t.db")
    await users.open()
    yield store, users
    await users.close()
    await store.close()


def elsewhere(path: Path, line: str) -> None:
    """Do something in another process."""
    imports = "from pathlib import Path; from dragoman.stores.sqlite.admin.users import SqliteUsers"
    code = f"{imports}; users = SqliteUsers(Path({str(path)!r})); {line}"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=30)


async def test_what_another_process_changes_counts_at_once(tmp_path: Path, both: Any) -> None:
    _, users = both
    path = tmp_path / "t.db"
    await asyncio.to_thread(elsewhere, path, "users.add('alice', 'hash', ('count',))")
    assert (await found(users)).user.permissions == {"count"}
    await asyncio.to_thread(elsewhere, path, "users.grant('alice', 'admin')")
    assert (await found(users)).user.permissions == {"count", "admin"}
    await asyncio.to_thread(elsewhere, path, "users.revoke('alice')")
    assert await users.by_name("alice") is None


async def test_a_change_counts_with_the_next_look_up_however_fast_the_disk_is(tmp_path: Path, both: Any) -> None:
    _, users = both
    other = SqliteUsers(tmp_path / "t.db")
    other.add("alice")
    for _ in range(30):
        other.grant("alice", "admin")
        assert (await found(users)).user.permissions == {"admin"}
        other.revoke_permission("alice", "admin")
        assert (await found(users)).user.permissions == frozenset()


async def test_users_and_tasks_are_written_at_the_same_time(both: Any) -> None:
    store, users = both

    def many() -> None:
        for number in range(20):
            users.add(f"user{number}")

    thread = asyncio.create_task(asyncio.to_thread(many))
    for number in range(200):
        await create(store, row_of(store, f"task{number}", state=State.WORKING))
    await thread
    assert len(users.list_users()) == 20
    assert await store.task("task199") is not None


async def test_a_write_waits_for_a_checkpoint_and_none_runs_meanwhile(tmp_path: Path, both: Any) -> None:
    _, users = both
    checkpoint = FileLock(tmp_path / "t.db.ckpt")
    assert checkpoint.try_acquire()
    done = threading.Event()

    def add() -> None:
        users.add("alice")
        done.set()

    writing_task = asyncio.create_task(asyncio.to_thread(add))
    assert await users.by_name("alice") is None
    assert not done.is_set()
    checkpoint.release()
    await writing_task
    assert await users.by_name("alice") is not None
    with short_write(tmp_path / "t.db"):
        assert not checkpoint.try_acquire()


async def test_a_store_that_stays_busy_is_an_error(tmp_path: Path, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, users = both
    monkeypatch.setattr(writing, "LOCK_TIMEOUT", 0.0)
    checkpoint = FileLock(tmp_path / "t.db.ckpt")
    assert checkpoint.try_acquire()
    with pytest.raises(ServerError, match="busy"):
        users.add("alice")
    checkpoint.release()


async def test_a_write_that_fails_leaves_nothing(tmp_path: Path, both: Any) -> None:
    _, users = both
    with pytest.raises(ZeroDivisionError), short_write(tmp_path / "t.db") as connection:
        connection.execute("INSERT INTO users (name, password, created_ms) VALUES ('x', '', 0)")
        raise ZeroDivisionError
    assert users.list_users() == []


def test_users_come_before_the_first_server(tmp_path: Path) -> None:
    path = tmp_path / "new" / "t.db"
    users = SqliteUsers(path)
    users.prepare()
    users.prepare()
    assert users.list_users() == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_missing_is_not_made_by_a_write(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError), short_write(tmp_path / "t.db"):
        pass
    assert not (tmp_path / "t.db").exists()


def test_a_strange_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("no database at all, but long enough to be looked at" * 20)
    with pytest.raises(ConfigError, match="not a store"):
        SqliteUsers(tmp_path / "t.db").prepare()
