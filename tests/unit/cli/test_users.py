"""`dragoman users`: administration that prints what is asked for and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.terminal import Terminal

from dragoman.auth.inbound.cookie import CookieScheme
from dragoman.auth.inbound.passwords import Argon2, key_digest
from dragoman.cli.store.users import command
from dragoman.clock import SystemClock
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.transports.http import Request


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str, typed: str | None = None) -> Result:
    result = CliRunner().invoke(command, [*args, "--store", "sqlite:///t.db"], input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def users() -> SqliteUsers:
    return SqliteUsers(Path("t.db"))


def test_a_user_is_added_listed_granted_and_revoked(place: Path) -> None:
    permissions = ("--permission", "80001", "--permission", "b")
    assert run("add", "alice", "--password", "correct horse", *permissions).exit_code == 0
    run("grant", "alice", "admin", "--for", "1h")
    run("add", "bob", "--no-password")
    listed = run("list").stdout
    assert "80001, admin until 2" in listed
    assert "bob    -" in listed
    run("revoke", "alice", "80001")
    (alice, bob) = json.loads(run("list", "--json").stdout)
    assert [grant["key"] for grant in alice["permissions"]] == ["admin", "b"]
    assert (alice["password"], bob["password"]) == (True, False)
    run("revoke", "alice")
    assert [user["name"] for user in json.loads(run("list", "--json").stdout)] == ["bob"]


def test_passwords_are_kept_as_hashes(place: Path) -> None:
    run("add", "alice", "--password-stdin", typed="correct horse\nmore\n")
    account = users().account("alice")
    assert account is not None
    assert Argon2().verify(account.password, "correct horse")
    assert b"correct horse" not in Path("t.db").read_bytes()
    assert run("password", "alice", "--password-stdin", typed="another word\r\n").exit_code == 0
    account = users().account("alice")
    assert account is not None
    assert Argon2().verify(account.password, "another word")
    assert account.epoch == 1


def test_a_key_is_printed_alone_and_only_its_digest_is_kept(place: Path) -> None:
    run("add", "alice", "--no-password")
    result = run("key", "alice", "--for", "30d")
    key = result.stdout.strip()
    assert result.stdout == f"{key}\n"
    assert key.startswith("dk_")
    assert len(key) == 46
    for name in ("t.db", "t.db-wal"):
        assert not Path(name).exists() or key.encode() not in Path(name).read_bytes()
    assert f"dk_…{key[-4:]} until " in run("list").stdout
    assert run("revoke", "alice", f"dk_…{key[-4:]}").exit_code == 0
    assert "dk_" not in run("list").stdout
    key = run("key", "alice").stdout.strip()
    run("revoke", "alice", key)
    assert users().list_users()[0].keys == ()
    assert key_digest(key) != key_digest(key + "x")


@pytest.mark.requirement("S0-5")
@pytest.mark.parametrize("secret", [None, "a secret of my own that is long"])
async def test_a_cookie_is_printed_alone_and_lets_in(
    place: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    if secret is not None:
        monkeypatch.setenv("DRAGOMAN_SECRET", secret)
    await in_thread("add", "alice", "--no-password")
    value = (await in_thread("cookie", "alice")).stdout
    assert value.count("\n") == 1
    ring = KeyRing.from_text(secret) if secret else KeyRing.from_file("t.db.key")
    store = users()
    await store.open()
    scope = {"method": "GET", "path": "/", "headers": [(b"cookie", b"user=" + value.strip().encode())]}
    scheme = CookieScheme(store, ring, SystemClock())
    user = await scheme.identify(Request(scope, Any, []))  # type: ignore[arg-type]
    await store.close()
    assert user is not None
    assert user.id == "alice"


async def in_thread(*args: str) -> Result:
    """The command starts a loop of its own when it makes the store."""
    return await asyncio.to_thread(run, *args)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["grant", "eve", "x"], "no user 'eve'"),
        (["revoke", "eve"], "no user 'eve'"),
        (["key", "eve"], "no user 'eve'"),
        (["cookie", "eve"], "no user 'eve'"),
        (["password", "eve", "--password", "long enough"], "no user 'eve'"),
        (["add", "alice", "--password", "long enough"], "already"),
        (["add", "a:b", "--no-password"], "cannot be a name"),
        (["add", "bob", "--password", "short"], "8 to 1024"),
    ],
)
def test_a_change_that_is_impossible_is_an_error(place: Path, args: list[str], expected: str) -> None:
    run("add", "alice", "--no-password")
    with pytest.raises(ConfigError, match=expected):
        run(*args)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["add", "bob"], "--password-stdin"),
        (["add", "bob", "--password", "x", "--password-stdin"], "cannot be combined"),
        (["add", "bob", "--password", "x", "--no-password"], "cannot be combined with"),
        (["grant", "bob", "x", "--for", "soon"], "must be a time like"),
        (["key", "bob", "--for", "0h"], "must be a time like"),
    ],
)
def test_wrong_usage_exits_with_2(place: Path, args: list[str], expected: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_users_in_memory_cannot_be_changed_from_here(place: Path) -> None:
    result = CliRunner().invoke(command, ["list", "--store", "memory:"])
    assert isinstance(result.exception, ConfigError)
    assert "memory" in str(result.exception)


def test_a_password_is_asked_for_twice_and_not_shown(place: Path) -> None:
    code = "from dragoman.cli.store.users import command; command(['add', 'alice', '--store', 'sqlite:///t.db'])"
    terminal = Terminal((), place, program=[sys.executable, "-c", code], TERM="dumb")
    with closing(terminal):
        shown = ""
        for _ in range(2):
            shown += terminal.until(": ")
            terminal.type("correct horse\n")
        exit_code, rest = terminal.ended()
    assert exit_code == 0
    assert "correct horse" not in shown + rest
    assert "Password" in shown
    account = users().account("alice")
    assert account is not None
    assert Argon2().verify(account.password, "correct horse")


def test_administration_is_in_the_audit_log_without_secrets(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.audit")
    run("add", "alice", "--password", "correct horse")
    run("grant", "alice", "80001")
    key = run("key", "alice").stdout.strip()
    cookie = run("cookie", "alice").stdout.strip()
    run("revoke", "alice")
    events = [(record.__dict__["event"], record.__dict__["user"]) for record in caplog.records]
    names = ["user-added", "granted", "key-made", "cookie-made", "revoked"]
    assert events == [(name, "alice") for name in names]
    assert all(record.__dict__["by"] for record in caplog.records)
    assert caplog.records[1].__dict__["permission"] == "80001"
    for secret in ("correct horse", key, cookie):
        assert secret not in caplog.text
