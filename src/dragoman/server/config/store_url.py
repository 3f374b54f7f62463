"""Where tasks are kept, read from a store URL. No error text ever holds what could be a password."""

from __future__ import annotations

import re
from pathlib import Path

from dragoman.model.error import ConfigError
from dragoman.server.agent.frameworks import require

FORMS = "`memory:`, `sqlite:///relative.db` or `sqlite:////absolute.db`"


def parse_store(url: str, *, setting: str = "store") -> Path | None:
    """The SQLite file a store URL means, or None for `memory:`. `named` is what errors call the setting.

    Raises:
        ConfigError: the URL has none of the forms, or names a database this version cannot use.
    """
    if url == "memory:":
        return None
    scheme, separator, _ = url.partition("://")
    if separator and scheme in ("postgres", "postgresql"):
        raise ConfigError(f"{setting} postgresql://…: {_why_not_postgresql()}")
    path = url.removeprefix("sqlite:///")
    problem = _problem(url, path)
    if problem is not None:
        raise ConfigError(f"{setting} {without_password(url)}: {problem}")
    return Path(path).expanduser()


def without_password(url: str) -> str:
    """The URL as an error may show it: whole where no password can stand in it, else its scheme only."""
    scheme, separator, _ = url.partition("://")
    if not re.search(r"[@=?]", url) and (not separator or scheme in ("sqlite", "memory")):
        return url
    return f"{scheme}://…" if separator and scheme.isalnum() else "…"


def _problem(url: str, path: str) -> str | None:
    """What is wrong with it, or None. `path` is the URL without `sqlite:///`."""
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
    path = re.sub(r"^(sqlite|file):/{0,2}", "", url)
    if re.fullmatch(r"[\w./~-]+", path):
        return f"; did you mean `sqlite:///{path}`?"
    return ""


def _why_not_postgresql() -> str:
    try:
        require("asyncpg", "postgres")
    except ConfigError as error:
        return str(error)
    return "PostgreSQL is not in this version: use sqlite:///.dragoman/tasks.db"
