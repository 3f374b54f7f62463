"""Moves the store of a SQLite file into PostgreSQL: everything, resumable, and compared at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, Protocol, TypeVar

from dragoman.engine.session_id import session_id
from dragoman.keys.errors import BadSeal
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError, DragomanError
from dragoman.server.config.store_url import session_folder
from dragoman.server.http.lazy import key_file
from dragoman.stores.migration import CopiedRows, Difference, MigrationPosition, StoreCounts
from dragoman.stores.postgres.sql.migration.tables import TargetTables
from dragoman.stores.postgres.sql.migration.target import PostgresTarget
from dragoman.stores.postgres.sql.partition import MS_PER_DAY
from dragoman.stores.sqlite.admin.backup import back_up
from dragoman.stores.sqlite.admin.export import SqliteExport
from dragoman.webhooks.config import PURPOSE

if TYPE_CHECKING:
    from dragoman.stores.administration import BackupResult

P = ParamSpec("P")
T = TypeVar("T")


class MigrationResult(NamedTuple):
    """What a migration has moved, and what to know about it.

    `source` and `target` are counted on both sides; both are None when it was complete before. `replaced` is how many
    texts had a NUL, and `foreign_tables` are those of the file that were left behind. `sessions` is the number of
    session folders, and `has_other_keys` is True when the servers get other keys than before.
    """

    source: StoreCounts | None
    target: StoreCounts | None
    replaced: int = 0
    foreign_tables: tuple[str, ...] = ()
    sessions: int = 0
    has_other_keys: bool = False


class MigrationObserver(Protocol):
    """Called while a migration is under way."""

    def on_page(self, remaining: int, pages: int) -> None:
        """So many pages of all remain to be copied into the backup."""
        ...

    def on_backup(self, file: Path, result: BackupResult) -> None:
        """The backup of the file is complete."""
        ...

    def on_again(self, moved_ms: int) -> None:
        """The file was moved before, at this time: perhaps into another database."""
        ...

    def on_resume(self, position: MigrationPosition) -> None:
        """It goes on after an earlier one that was interrupted."""
        ...

    def on_progress(self, activity: str, table: str, done: int, total: int) -> None:
        """So many rows of all have been copied, or compared."""
        ...


class WebhookKeys:
    """Seals the secrets of webhooks with the keys of the new servers, which the old ones had sealed with theirs."""

    def __init__(self, new: KeyRing | None, old: KeyRing | None) -> None:
        self._new = new
        self._old = old

    @property
    def differ(self) -> bool:
        """True when the old servers had a key file, and the new ones do not have all its keys."""
        if self._old is None:
            return False
        old, new = (set(ring.subkeys("fingerprint", 8)) if ring else set[bytes]() for ring in (self._old, self._new))
        return not old <= new

    def open(self, sealed: bytes) -> bytes | None:
        """The secrets; None when none of the keys fits."""
        for ring in (self._new, self._old):
            if ring is not None:
                with suppress(BadSeal):
                    return ring.unseal(PURPOSE, sealed)
        return None

    def reseal(self, sealed: bytes) -> bytes:
        """Seal secrets with the new keys; those that cannot be opened stay as they are."""
        secrets = None if self._new is None else self.open(sealed)
        return sealed if secrets is None or self._new is None else self._new.seal(PURPOSE, secrets)


class StoreMigration:
    """One migration of the SQLite file `path` into the database of a URL.

    `secret` is the setting of the new servers, and `node` the name of the one that gets the session folders. With
    `backup` the file is copied first, and with `verify` all rows are compared at the end.
    """

    def __init__(
        self,
        path: Path,
        url: str,
        *,
        secret: str | None,
        node: str | None,
        backup: bool = True,
        verify: bool = True,
        observer: MigrationObserver,
    ) -> None:
        self._path = path
        self._url = url
        self._secret = secret
        self._node = node
        self._backup = backup
        self._verify = verify
        self._observer = observer
        self._source = SqliteExport(path)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dragoman-export")

    def run(self) -> MigrationResult:
        """Move everything, or go on where an earlier run was interrupted. Blocks.

        Raises:
            ConfigError: the file or the database cannot be used for this; nothing was changed then.
            DragomanError: something failed on the way, or is not equal at the end. Running it again goes on.
        """
        source = self._source
        with source.opened():
            try:
                return self._run()
            finally:
                source.interrupt()
                self._pool.shutdown()

    def _run(self) -> MigrationResult:
        source = self._source
        if source.is_outdated:
            self._make_backup()
        source.begin()
        keys, sessions = self._check_keys(), self._check_sessions()
        tables = TargetTables(source.plugin_tables, keys.reseal)
        position = asyncio.run(self._find_position(tables))
        counts = None
        if not position.complete:
            if source.moved_ms is not None:
                self._observer.on_again(source.moved_ms)
            # Not within an event loop, so that Ctrl-C ends it.
            if not position.begun:
                self._make_backup()
            counts = asyncio.run(self._move(tables, keys, sessions))
        if source.moved_ms is None:
            source.close_as_moved()
        before, after = counts or (None, None)
        return MigrationResult(before, after, tables.replaced, source.foreign_tables, len(sessions), keys.differ)

    async def _find_position(self, tables: TargetTables) -> MigrationPosition:
        async with PostgresTarget.opened(self._url, tables) as target:
            moved = None if self._source.moved_ms is None else str(self._path.absolute())
            return await target.find_position(self._source.fingerprint, self._source.tables[0], moved)

    async def _move(
        self, tables: TargetTables, keys: WebhookKeys, sessions: frozenset[str]
    ) -> tuple[StoreCounts, StoreCounts]:
        """Copy, count and compare. Returns the counts of both sides."""
        source = self._source
        async with PostgresTarget.opened(self._url, tables) as target:
            position = await target.find_position(source.fingerprint, source.tables[0])
            await target.begin(source.fingerprint, str(self._path.absolute()), position)
            if position.begun:
                self._observer.on_resume(position)
            counts = await self._in_thread(source.counts)
            await target.prepare(source.plugin_tables, await self._in_thread(source.days, MS_PER_DAY))
            progress = _Progress(self._observer, counts, position, 1 + self._verify)
            async with aclosing(self._read(position)) as batches:
                async for copied in batches:
                    await target.write(copied, source.fingerprint)
                    progress.add("copying", copied)
            homes = await self._in_thread(self._homes, sessions)
            await target.complete(f"{self._path.name} (moved)", self._node, homes)
            moved = await target.counts(source.plugin_tables)
            _check_equal(counts, moved)
            if self._verify:
                async with aclosing(self._read(MigrationPosition(source.tables[0], 0))) as batches:
                    async for copied in batches:
                        await _compare(target, copied, keys)
                        progress.add("comparing", copied)
            await target.finish(source.fingerprint)
            return counts, moved

    def _homes(self, sessions: frozenset[str]) -> list[tuple[int, str]]:
        """The conversations with a session folder, each with the number of its scope."""
        return [
            (scope, context_id)
            for scope, names, context_id in (self._source.contexts() if sessions else ())
            if session_id(names, context_id) in sessions
        ]

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    async def _read(self, position: MigrationPosition) -> AsyncGenerator[CopiedRows]:
        """Read everything from a position on, in a thread: the next rows while those before are written."""
        reader, loop = self._source.read_from(position), asyncio.get_running_loop()
        reading = loop.run_in_executor(self._pool, next, reader, None)
        while (copied := await reading) is not None:
            reading = loop.run_in_executor(self._pool, next, reader, None)
            yield copied

    def _make_backup(self) -> None:
        """Copy the file beside itself, once."""
        if self._backup:
            self._backup = False
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            file = self._path.with_name(f"{self._path.name}.{stamp}.backup")
            for number in count(2):  # whoever is quick makes two within a second
                if not file.exists():
                    break
                file = self._path.with_name(f"{self._path.name}.{stamp}-{number}.backup")
            self._observer.on_backup(file, back_up(self._path, file, progress=self._observer.on_page))

    def _check_keys(self) -> WebhookKeys:
        """Raise ConfigError unless the new servers will be able to read the secrets of all webhooks."""
        file = key_file(self._path)
        keys = WebhookKeys(
            KeyRing.from_text(self._secret) if self._secret else None,
            KeyRing.from_file(file) if file.exists() else None,
        )
        same = f"DRAGOMAN_SECRET=$(paste -sd, {file})"
        unreadable = 0
        for sealed in self._source.sealed():
            if not self._secret:
                advice = f", or to the one of the old server: {same}" if file.exists() else ""
                raise ConfigError(
                    f"{self._path} has webhooks with secrets, which the new servers have to read: set DRAGOMAN_SECRET "
                    f"to what they will have{advice}"
                )
            unreadable += keys.open(sealed) is None
        if unreadable:
            raise ConfigError(
                f"the secrets of {unreadable} webhooks in {self._path} are sealed with a key that is neither in {file} "
                "nor in DRAGOMAN_SECRET: add the old server's secret behind the new one, as in new,old"
            )
        return keys

    def _check_sessions(self) -> frozenset[str]:
        """Return the names of session folders. Raises ConfigError when there are some, and no node that gets them."""
        folder = session_folder(f"sqlite:///{self._path.absolute()}")
        assert folder is not None
        names = (
            frozenset(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else frozenset[str]()
        )
        if names and self._node is None:
            raise ConfigError(
                f"{folder} has the folders of {len(names)} sessions with programs, which one node has to have: name it "
                "with --node NAME; or move that folder away, to end these sessions"
            )
        return names


class _Progress:
    """Counts rows for the observer."""

    def __init__(
        self, observer: MigrationObserver, counts: StoreCounts, position: MigrationPosition, rounds: int
    ) -> None:
        self._observer = observer
        self._total = counts.total * rounds
        names = list(counts.rows)
        before = names[: names.index(position.table)]
        self._done = sum(counts.rows[name] for name in before) + position.rows

    def add(self, activity: str, copied: CopiedRows) -> None:
        self._done += len(copied.rows)
        self._observer.on_progress(activity, copied.table, self._done, self._total)


async def _compare(target: PostgresTarget, copied: CopiedRows, keys: WebhookKeys) -> None:
    """Raise DragomanError unless the database has these rows."""
    difference = await target.compare(copied)
    if difference is None and copied.table == "pushes":
        stored = await target.stored_secrets(copied.rows)
        for row, sealed in zip(copied.rows, stored, strict=True):
            secrets = row[6]
            if sealed is None or (keys.open(secrets) or secrets) != (keys.open(sealed) or sealed):
                difference = Difference("pushes", 1, f"{row[1]}, {row[3]}")
    if difference is not None:
        raise DragomanError(
            f"{difference.rows} rows of {difference.table} are not equal in the database, such as {difference.key}: "
            "the database stays marked as incomplete; please report this, and migrate into another empty one"
        )


def _check_equal(source: StoreCounts, target: StoreCounts) -> None:
    """Raise DragomanError unless both sides have the same number of everything."""
    names = [
        f"{name}: {count} in the file and {target.rows.get(name, 0)} in the database"
        for name, count in source.rows.items()
        if target.rows.get(name, 0) != count
    ]
    names += [
        f"{state.name.lower()} tasks: {count} in the file and {target.states.get(state, 0)} in the database"
        for state, count in source.states.items()
        if target.states.get(state, 0) != count
    ]
    if names or sum(source.states.values()) != sum(target.states.values()):
        raise DragomanError(
            f"the counts differ: {'; '.join(names)}: the database stays marked as incomplete; "
            "please report this, and migrate into another empty one"
        )
