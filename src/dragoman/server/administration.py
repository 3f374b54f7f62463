"""Opens what administers the store of a URL: its users, webhooks, backups and health checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.net.postgres import is_postgres_url
from dragoman.server.config.store_url import parse_store

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.stores.administration import Administration
    from dragoman.stores.users import Users


def open_administration(url: str) -> Administration | None:
    """Return the administration of a store; None for `memory:`, which only its server can reach. Raises ConfigError."""
    # Imported late: most commands need one of the two, and asyncpg is not always installed.
    if is_postgres_url(url):
        from dragoman.stores.postgres.admin.administration import PostgresAdministration

        return PostgresAdministration(url)
    if (path := parse_store(url)) is None:
        return None
    from dragoman.stores.sqlite.admin.administration import SqliteAdministration

    return SqliteAdministration(path)


def open_users(url: str, clock: Clock) -> Users:
    """Return the users of a store, for its server. They are not opened yet. Raises ConfigError."""
    if is_postgres_url(url):
        from dragoman.stores.postgres.admin.users import PostgresUsers

        return PostgresUsers(url, clock)
    from dragoman.stores.sqlite.admin.users import SqliteUsers

    return SqliteUsers(parse_store(url), clock)
