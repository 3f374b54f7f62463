"""Administration of a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dragoman.model.error import DragomanError
from dragoman.net.postgres import parse_address
from dragoman.stores.administration import BackupResult, HealthFinding, NodeReport
from dragoman.stores.postgres.admin.session import run, run_unchecked

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.stores.postgres.admin.users import PostgresUsers


_SIZE = "SELECT pg_database_size(current_database())"


class PostgresAdministration:
    """Administers the store in the database of a URL, from any machine that reaches it."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def location(self) -> str:
        address = parse_address(self._url)
        name = unquote(urlsplit(address.text).path.strip("/")) or "of the default name"
        hosts = (f"{host[0]}:{host[1]}" for host in address.hosts if host is not None)
        return f"the database {name} at {' or '.join(hosts) or 'the default host'}"

    @property
    def key_file(self) -> Path | None:
        return None

    @contextmanager
    def users(self, *, create: bool = True) -> Generator[PostgresUsers]:
        from dragoman.stores.postgres.admin.users import PostgresUsers

        users = PostgresUsers(self._url)
        if create:
            users.prepare()
        yield users

    def webhooks(self) -> list[tuple[Push, TaskRow]]:
        from dragoman.stores.postgres.admin.webhooks import list_webhooks

        return run(self._url, list_webhooks)

    def retry_webhooks(self, task_id: str | None, push_id: str | None) -> int:
        from dragoman.stores.postgres.sql.claims import wake_pushes

        return run(self._url, lambda connection: wake_pushes(connection, task_id, push_id))

    def back_up(
        self, target: Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> BackupResult:
        """Write a copy with `pg_dump`, which reports no progress."""
        from dragoman.stores.postgres.admin.backup import back_up

        return back_up(self._url, target, force=force)

    def size(self) -> int:
        """How many bytes the database takes, other tables in it included."""
        return run_unchecked(self._url, lambda connection: connection.fetchval(_SIZE))

    def nodes(self, *, dead: bool = False) -> NodeReport:
        """The nodes. Also while they are updated: it reads only what every version has."""
        from dragoman.stores.postgres.admin.nodes import report_nodes

        return run(self._url, lambda connection: report_nodes(connection, dead=dead), oldest=1)

    def examine(self, *, full: bool = False) -> list[HealthFinding]:
        """Check the server and the tables. For damage, PostgreSQL has a program of its own, which `full` names."""
        from dragoman.stores.postgres.admin.health import examine

        try:
            address = parse_address(self._url)
            findings = run_unchecked(
                self._url, lambda connection: examine(connection, address.text, len(address.hosts))
            )
        except DragomanError as error:
            return [HealthFinding("FAIL", "database", str(error))]
        if full:
            do = "run `pg_amcheck` of PostgreSQL, with the extension amcheck"
            findings.append(HealthFinding("warn", "integrity", "not read for damage", do))
        return findings
