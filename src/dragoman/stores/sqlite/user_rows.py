"""Users in SQL. Each function is part of a transaction that the caller has begun."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from dragoman.model.account import Account, Grant, KeyNote, Listed
from dragoman.model.error import ConfigError
from dragoman.model.user import User

# How long what was read may count without looking again, should the news of a change be lost.
FRESH_MS = 5000
# `failures` and `locked_until_ms` are of earlier versions: nobody is locked any more.
_COLUMNS = "users.user, users.name, users.password, users.epoch"


class _Row(NamedTuple):
    user: int
    name: str
    password: str
    epoch: int


def account(connection: sqlite3.Connection, name: str, now: int) -> Account | None:
    """A user who was not revoked, with the permissions that hold now."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM users WHERE name = ? AND NOT revoked", (name,)).fetchone()  # noqa: S608
    return None if row is None else _account(connection, _Row(*row), now, None)


def account_of_key(connection: sqlite3.Connection, digest: bytes, now: int) -> Account | None:
    """The user a key was given to, while the key holds."""
    row = connection.execute(
        f"SELECT api_keys.until_ms, {_COLUMNS} FROM api_keys JOIN users USING (user) "  # noqa: S608
        "WHERE digest = ? AND NOT revoked AND (until_ms IS NULL OR until_ms > ?)",
        (digest, now),
    ).fetchone()
    return None if row is None else _account(connection, _Row(*row[1:]), now, row[0])


def _account(connection: sqlite3.Connection, row: _Row, now: int, until: int | None) -> Account:
    grants = connection.execute(
        "SELECT permission, until_ms FROM grants WHERE user = ? AND (until_ms IS NULL OR until_ms > ?)",
        (row.user, now),
    ).fetchall()
    ends = [end for end in (until, *(end for _, end in grants)) if end is not None]
    return Account(
        user=User(row.name, row.name, frozenset(permission for permission, _ in grants)),
        password=row.password,
        epoch=row.epoch,
        fresh_until=min(now + FRESH_MS, *ends) if ends else now + FRESH_MS,
    )


def listed(connection: sqlite3.Connection, now: int) -> list[Listed]:
    """Every user who was not revoked, by name, with what holds now."""
    found: list[Listed] = []
    rows = connection.execute(
        "SELECT user, name, created_ms, password <> '' FROM users WHERE NOT revoked ORDER BY name"
    ).fetchall()
    for user, name, created, has_password in rows:
        grants = connection.execute(
            "SELECT permission, until_ms FROM grants WHERE user = ? AND (until_ms IS NULL OR until_ms > ?) "
            "ORDER BY permission",
            (user, now),
        )
        keys = connection.execute(
            "SELECT hint, created_ms, until_ms FROM api_keys WHERE user = ? AND (until_ms IS NULL OR until_ms > ?) "
            "ORDER BY created_ms, hint",
            (user, now),
        )
        found.append(
            Listed(
                name,
                created,
                bool(has_password),
                tuple(Grant(*grant) for grant in grants.fetchall()),
                tuple(KeyNote(*key) for key in keys.fetchall()),
            )
        )
    return found


def add(connection: sqlite3.Connection, name: str, password: str, permissions: tuple[str, ...], now: int) -> None:
    """Make a user, or let one who was revoked in again. Raises ConfigError when there is one."""
    known = connection.execute("SELECT user, revoked FROM users WHERE name = ?", (name,)).fetchone()
    if known is None:
        connection.execute("INSERT INTO users (name, password, created_ms) VALUES (?, ?, ?)", (name, password, now))
    elif known[1]:
        connection.execute("UPDATE users SET revoked = 0, password = ? WHERE user = ?", (password, known[0]))
    else:
        raise ConfigError(f"there is a user {name!r} already: `dragoman users password {name}` sets another password")
    for permission in permissions:
        grant(connection, name, permission, None)


def set_password(connection: sqlite3.Connection, name: str, password: str) -> None:
    """Another password: cookies that were given out do not count any more. Raises ConfigError."""
    connection.execute(
        "UPDATE users SET password = ?, epoch = epoch + 1 WHERE user = ?", (password, _number(connection, name))
    )


def grant(connection: sqlite3.Connection, name: str, permission: str, until: int | None) -> None:
    """A permission from now on; it replaces the same one. Raises ConfigError."""
    connection.execute(
        "INSERT INTO grants (user, permission, until_ms) VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms",
        (_number(connection, name), permission, until),
    )


def add_key(connection: sqlite3.Connection, name: str, digest: bytes, hint: str, until: int | None, now: int) -> None:
    """A key for a user; those that have run out go. Raises ConfigError."""
    user = _number(connection, name)
    connection.execute("DELETE FROM api_keys WHERE user = ? AND until_ms <= ?", (user, now))
    connection.execute("INSERT INTO api_keys VALUES (?, ?, ?, ?, ?)", (digest, user, hint, now, until))


def revoke(connection: sqlite3.Connection, name: str) -> None:
    """Let a user in no more. The row stays, so that nobody else gets the name and with it the tasks."""
    user = _number(connection, name)
    connection.execute("DELETE FROM grants WHERE user = ?", (user,))
    connection.execute("DELETE FROM api_keys WHERE user = ?", (user,))
    connection.execute("UPDATE users SET revoked = 1, password = '', epoch = epoch + 1 WHERE user = ?", (user,))


def revoke_permission(connection: sqlite3.Connection, name: str, permission: str) -> None:
    """Take a permission back. Raises ConfigError when the user does not have it."""
    done = connection.execute(
        "DELETE FROM grants WHERE user = ? AND permission = ?", (_number(connection, name), permission)
    )
    if not done.rowcount:
        raise ConfigError(f"{name} does not have that permission: `dragoman users list` shows which")


def revoke_key(connection: sqlite3.Connection, name: str, hint: str) -> None:
    """Take a key back. Raises ConfigError when the user has none with these last characters, or several."""
    user = _number(connection, name)
    found = connection.execute("SELECT digest FROM api_keys WHERE user = ? AND hint = ?", (user, hint)).fetchall()
    if len(found) != 1:
        many = "several keys that end" if found else "no key that ends"
        raise ConfigError(f"{name} has {many} in {hint!r}: `dragoman users list` shows which there are")
    connection.execute("DELETE FROM api_keys WHERE digest = ?", found[0])


def _number(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT user FROM users WHERE name = ? AND NOT revoked", (name,)).fetchone()
    if row is None:
        raise ConfigError(f"there is no user {name!r}: `dragoman users add {name}` makes one")
    return int(row[0])
