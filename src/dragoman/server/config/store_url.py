"""Parses store URLs. No error text ever contains what could be a password."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dragoman.model.error import ConfigError
from dragoman.model.part import safe_filename
from dragoman.net.postgres import SCHEMES, is_postgres_url, parse_address
from dragoman.net.postgres import without_password as without_secrets
from dragoman.server.agent.frameworks import require

FORMS = "`memory:`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`"
# What others call it in a URL, a driver included.
_POSTGRES_NAMES = ("pg", "psql", "pgsql", "postgre", "postgresql+asyncpg", "postgresql+psycopg", "jdbc")


def parse_store(url: str, *, setting: str = "store") -> Path | None:
    """Return the SQLite file of a store URL, or None for `memory:`. `setting` is its name in errors.

    Raises:
        ConfigError: the URL has none of the supported forms, or is that of PostgreSQL: ask `is_postgres_url` first.
    """
    if url == "memory:":
        return None
    if is_postgres_url(url):
        raise ConfigError(f"{setting} postgresql://…: only servers can use PostgreSQL: use sqlite:///FILE here")
    path = url.removeprefix("sqlite:///")
    problem = _problem(url, path)
    if problem is not None:
        raise ConfigError(f"{setting} {without_password(url)}: {problem}")
    return Path(path).expanduser()


def check_postgres(url: str, *, setting: str = "store") -> None:
    """Check the URL of a PostgreSQL database.

    Raises:
        ConfigError: it cannot be used, or the extra `postgres` is not installed.
    """
    try:
        require("asyncpg", "postgres")
        parse_address(url)
    except ConfigError as error:
        raise ConfigError(f"{setting} postgresql://…: {error}") from None


def session_folder(url: str, worker: int | None = None) -> Path | None:
    """Return where the server of a store keeps the session folders of programs; None for temporary ones.

    That is a folder beside a SQLite file. With PostgreSQL it is on the server's own machine, below `.dragoman` in the
    folder in which the server was started, and has the name of the database, and the number of the worker, if the
    server has several.
    """
    if is_postgres_url(url):
        name = safe_filename(unquote(urlsplit(parse_address(url).text).path.strip("/"))) or "postgres"
        number = "" if worker is None else f".{worker}"
        return Path(".dragoman", f"{name}{number}.sessions").absolute()
    path = parse_store(url)
    return None if path is None else path.absolute().with_name(f"{path.name}.sessions")


def without_password(url: str) -> str:
    """Return a URL for an error: whole where it cannot contain a password, else its scheme only."""
    if is_postgres_url(url):
        return without_secrets(url)
    scheme, separator, _ = url.partition("://")
    if not re.search(r"[@=?]", url) and (not separator or scheme in ("sqlite", "memory")):
        return url
    return f"{scheme}://…" if separator and scheme.isalnum() else "…"


def _problem(url: str, path: str) -> str | None:
    """Say what is wrong with a URL, or return None. `path` is the URL without `sqlite:///`."""
    if path == url:
        return f"must be {FORMS}{_suggestion(url)}"
    if path == ":memory:":
        return "a store in memory is written `memory:`"
    if re.search(r"\?\w+=", path):
        return "a SQLite store takes no ?options"
    if not path or path.endswith("/"):
        return f"names no file: must be {FORMS}"
    return None


def _suggestion(url: str) -> str:
    if url.strip(":/") == "memory":
        return "; did you mean `memory:`?"
    scheme, colon, rest = url.partition(":")
    if colon and (scheme.lower() in _POSTGRES_NAMES or get_close_matches(scheme.lower(), SCHEMES, n=1, cutoff=0.7)):
        return "; did you mean `postgresql://…`?"  # the rest may contain a password
    near = get_close_matches(scheme.lower(), ("sqlite", "memory"), n=1) if colon else []
    if near and near[0] != scheme and re.fullmatch(r"[\w./~-]*", rest):
        return f"; did you mean `{'memory:' if near[0] == 'memory' else f'sqlite:{rest}'}`?"
    path = re.sub(r"^(sqlite|file):/{0,2}", "", url)
    if re.fullmatch(r"[\w./~-]+", path):
        return f"; did you mean `sqlite:///{path}`?"
    return ""
