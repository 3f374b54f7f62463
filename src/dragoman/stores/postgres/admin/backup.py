"""Backup of a store in PostgreSQL into one file, with `pg_dump`, also while servers are writing."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from dragoman.model.error import ConfigError, DragomanError
from dragoman.net.postgres import PostgresConnection
from dragoman.stores.administration import BackupResult
from dragoman.stores.backup_file import check_target, write_backup
from dragoman.stores.postgres.admin.session import run
from dragoman.stores.postgres.sql.schema import LISTED

# Archives in the custom format are compressed, and restored in any order and in parallel. Owners and privileges are
# those of the database that it is restored into.
_FLAGS = ("--format=custom", "--no-owner", "--no-privileges", "--no-password")
# The parameters of a URL that PostgreSQL's programs know. A URL may have others too: settings of sessions.
_PARAMETERS = re.compile(
    "host|hostaddr|port|dbname|user|passfile|connect_timeout|target_session_attrs|ssl(mode|cert|key|rootcert|crl|crldir)"
    "|ssl_(min|max)_protocol_version|channel_binding|gssencmode|krbsrvname|require_auth|application_name|options|service"
)
_INSTALL = (
    "install the client programs of PostgreSQL {} or newer, such as `apt install postgresql-client` or "
    "`brew install libpq`"
)


def back_up(url: str, target: Path, *, force: bool = False) -> BackupResult:
    """Write a snapshot of the database to `target`, in the format of `pg_restore`.

    Raises:
        ConfigError: the database is no store, the target cannot be written, or pg_dump is not installed.
        DragomanError: pg_dump failed. Nothing is left of the copy then.
    """
    check_target(target, "backup.dump", force=force)
    result = write_backup(target, lambda part: run(url, lambda connection: _dump(connection, url, part)), force=force)
    return result._replace(restore=restore_lines(url, target))


def restore_lines(url: str, target: Path) -> tuple[str, ...]:
    """Return how to continue from a backup, in a new database beside the old one."""
    plain, password = split_password(url)
    parts = urlsplit(plain)
    owner = unquote(parts.username or "…")
    secret = "" if password is None else ", with the password in PGPASSWORD"
    new = f"{parts.scheme}://{parts.netloc}/restored{'?' if parts.query else ''}{parts.query}"
    return (
        f"to restore it, create a database, as a role that may, and fill it{secret}:",
        f"  CREATE DATABASE restored OWNER {owner} ENCODING 'UTF8' TEMPLATE template0",
        f"  pg_restore --no-owner --single-transaction --dbname={shlex.quote(new)} {shlex.quote(str(target))}",
        "then start the servers on that database, with the same secret",
    )


def split_password(url: str) -> tuple[str, str | None]:
    """Return a database URL as `pg_dump` takes it, and its password, which must never be on a command line."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    name, colon, password = login.partition(":")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([pair for pair in pairs if _PARAMETERS.fullmatch(pair[0])], safe="/:,")
    found = unquote(password) if colon else dict(pairs).get("password")
    return f"{parts.scheme}://{name}{at}{hosts}{parts.path}{'?' if query else ''}{query}", found


async def _dump(connection: PostgresConnection, url: str, part: Path) -> int:
    programs = {name: shutil.which(name) for name in ("pg_dump", "pg_restore")}
    for name, path in programs.items():
        if path is None:
            version: str = await connection.fetchval("SHOW server_version")
            raise ConfigError(f"{name} is not on the PATH: {_INSTALL.format(version.partition('.')[0])}")
    plain, password = split_password(url)
    environ = os.environ | ({} if password is None else {"PGPASSWORD": password})
    # One snapshot for the number of tasks and for pg_dump, which begins a transaction of its own.
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        tasks: int = await connection.fetchval(f"SELECT count(*) FROM tasks WHERE {LISTED}")
        snapshot: str = await connection.fetchval("SELECT pg_export_snapshot()")
        schema: str = await connection.fetchval("SELECT current_schema()")
        # A schema other than the usual one is Dragoman's own; the rest of the database is not.
        own = [] if schema == "public" else [f'--schema="{schema}"']
        file = [f"--snapshot={snapshot}", f"--file={part}", f"--dbname={plain}"]
        command = [programs["pg_dump"], *_FLAGS, *own, *file]
        await asyncio.to_thread(_run_program, command, environ)
    listing = await asyncio.to_thread(_run_program, [programs["pg_restore"], "--list", str(part)], environ)
    if not re.search(r" TABLE DATA .+ tasks ", listing):
        raise DragomanError("the backup failed: pg_dump has written no tasks table; nothing was kept")
    return tasks


def _run_program(command: list[Any], environ: dict[str, str]) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        if older := re.search(r"server version: (\d+)", done.stderr):
            raise ConfigError(f"{command[0]} is older than the server: {_INSTALL.format(older[1])}")
        problem = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise DragomanError(f"the backup failed, nothing was kept: {problem}")
    return done.stdout
