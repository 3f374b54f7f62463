"""`dragoman migrate`: moves the store of a SQLite file into PostgreSQL."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli.options import config_option
from dragoman.cli.printing import CLEAR, out, print_table, say, state_name, utc, warn
from dragoman.cli.store.on_store import record_change, start_audit
from dragoman.cli.talk.progress import format_elapsed
from dragoman.model.error import ConfigError
from dragoman.net.postgres import is_postgres_url
from dragoman.server.config.loader import load_settings
from dragoman.server.config.settings import Settings
from dragoman.server.config.store_url import check_postgres, parse_store, session_folder, without_password

if TYPE_CHECKING:
    from dragoman.server.migration import MigrationResult
    from dragoman.stores.administration import BackupResult
    from dragoman.stores.migration import MigrationPosition, StoreCounts

# What the tables are called where they are counted.
_NAMES = {
    "contexts": "conversations with a state",
    "repeats": "dedupe keys",
    "pushes": "webhooks",
    "grants": "permissions",
    "api_keys": "API keys",
}
_HIDDEN = ("scopes", "draft_snapshots")
_FRAME_SECONDS = 0.1


@click.command("migrate", short_help="Move a SQLite store into PostgreSQL.")
@click.argument("file", type=click.Path())
@click.argument("url", required=False)
@config_option
@click.option("--node", metavar="NAME", help="Node that gets the sessions of programs, if there are any.")
@click.option("--no-backup", is_flag=True, help="Do not back up FILE first.")
@click.option("--no-verify", is_flag=True, help="Do not compare all records at the end; they are counted only.")
def command(
    file: str, url: str | None, config: Path | None, node: str | None, no_backup: bool, no_verify: bool
) -> None:
    """Move everything in the SQLite store FILE into the empty PostgreSQL database at URL.

    Stop the server of FILE first. FILE is a path or a `sqlite:///` URL. If URL is left out, the setting `store` names
    the database. The servers on the database need the same `secret` as this command.

    A backup of FILE is made beside it. Then tasks, users, webhooks and all else are copied, counted, and compared
    record by record. If that is interrupted, run the same command again: it continues where it stopped, and until it is
    complete no server starts on the database. At the end FILE is marked, so that no server uses it by mistake; to go
    back to it, use the backup.
    """
    if is_postgres_url(file):
        raise ConfigError("the file comes first: dragoman migrate FILE URL")
    settings = load_settings(
        {}, environ=os.environ, config=config, cwd=Path.cwd(), flags={"store": url, "node": node}, warn=warn
    )
    if not is_postgres_url(settings.store):
        raise ConfigError(f"{without_password(settings.store)} is not a PostgreSQL database: name it as postgresql://…")
    check_postgres(settings.store)
    path = parse_store(file if file.startswith("sqlite:") else f"sqlite:///{file}", setting="FILE")
    assert path is not None
    from dragoman.server.migration import StoreMigration

    display = _Display()
    migration = StoreMigration(
        path,
        settings.store,
        secret=settings.secret,
        node=settings.node,
        backup=not no_backup,
        verify=not no_verify,
        observer=display,
    )
    try:
        result = migration.run()
    except KeyboardInterrupt:
        display.clear()
        say("stopped; to go on, run the same command again: it continues where it stopped")
        raise
    finally:
        display.clear()
    if result.target is not None:
        start_audit(settings)
        record_change("store-moved", file=str(path.absolute()), store=without_password(settings.store))
    _print_result(result, path, settings, verified=not no_verify)


def _print_result(result: MigrationResult, path: Path, settings: Settings, *, verified: bool) -> None:
    url = without_password(settings.store)
    if result.source is None or result.target is None:
        say(f"{path} was moved to {url} before: there is nothing to do")
        return
    print_table([("", "file", "database"), *_count_rows(result.source, result.target)])
    say(f"moved to {url}: {'every record was compared' if verified else 'the counts are equal'}")
    if result.replaced:
        texts = "1 text" if result.replaced == 1 else f"{result.replaced} texts"
        warn(f"{texts} had a NUL character, which PostgreSQL cannot store: it is U+FFFD now")
    if result.foreign_tables:
        warn(f"not moved, because they are not Dragoman's: the tables {', '.join(result.foreign_tables)}")
    if result.has_other_keys:
        warn(
            f"DRAGOMAN_SECRET is not what {path.name}.key has: login cookies are not valid any more, and the keys of "
            "signed cards and webhooks change"
        )
    if result.sessions:
        folder, target = session_folder(f"sqlite:///{path.absolute()}"), session_folder(settings.store)
        assert folder is not None and target is not None
        say(
            f"move {folder} to .dragoman/{target.name} in the folder where the node {settings.node} is started: "
            "it has the files of sessions"
        )
    say(f"{path} is marked as moved, and no server uses it any more")


def _count_rows(source: StoreCounts, target: StoreCounts) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name, count in source.rows.items():
        if name in _HIDDEN:
            continue
        rows.append((_NAMES.get(name, name), str(count), str(target.rows[name])))
        if name == "tasks":
            rows += [
                (f"  {state_name(state)}", str(tasks), str(target.states[state]))
                for state, tasks in source.states.items()
            ]
    return rows


class _Display:
    """Prints what a migration does, and on a terminal how far it is."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._began = 0.0
        self._first = 0
        self._drawn = 0.0

    def on_page(self, remaining: int, pages: int) -> None:
        """Draw how far the backup is."""
        self._draw(f"making a backup  {100 * (pages - remaining) // max(pages, 1)} %")

    def on_backup(self, file: Path, result: BackupResult) -> None:
        """Say where the backup is."""
        self.clear()
        say(f"backup: {file}, {result.size} bytes")

    def on_again(self, moved_ms: int) -> None:
        """Warn that there may be another database with the same tasks."""
        warn(f"this file was moved before, at {utc(moved_ms)}")

    def on_resume(self, position: MigrationPosition) -> None:
        """Say that it goes on."""
        say(f"continuing after {position.rows} {_NAMES.get(position.table, position.table)}")

    def on_progress(self, activity: str, table: str, done: int, total: int) -> None:
        """Draw how far it is, how fast, and how long it will take."""
        now = time.monotonic()
        if not self._began:
            self._began, self._first = now, done
        rate = (done - self._first) / max(now - self._began, 0.1)
        left = f", {format_elapsed((total - done) / rate)} left" if rate else ""
        name = _NAMES.get(table, table.replace("_", " "))
        self._draw(f"{activity} {name}  {100 * done // max(total, 1)} %  {rate:,.0f} rows/s{left}")

    def _draw(self, line: str) -> None:
        """Draw the line, some times per second."""
        now = time.monotonic()
        if self._is_terminal and now > self._drawn + _FRAME_SECONDS:
            self._drawn = now
            out(CLEAR, line, nl=False, err=True)

    def clear(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._drawn = 0.0
            out(CLEAR, nl=False, err=True)
