"""Store URLs: what they mean, and what they never give away."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from dragoman.installation import install_line
from dragoman.model.error import ConfigError
from dragoman.server.agent.frameworks import require
from dragoman.server.config.store_url import parse_store, session_folder, without_password


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("memory:", None),
        ("sqlite:///tasks.db", Path("tasks.db")),
        ("sqlite:///.dragoman/tasks.db", Path(".dragoman/tasks.db")),
        ("sqlite:////var/lib/tasks.db", Path("/var/lib/tasks.db")),
        ("sqlite:///my tasks.db", Path("my tasks.db")),
        ("sqlite:///~/tasks.db", Path.home() / "tasks.db"),
    ],
)
def test_a_store_url_means_a_file_or_memory(url: str, path: Path | None):
    assert parse_store(url) == path


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tasks.db", "did you mean `sqlite:///tasks.db`?"),
        ("sqlite://tasks.db", "did you mean `sqlite:///tasks.db`?"),
        ("sqlite:tasks.db", "did you mean `sqlite:///tasks.db`?"),
        ("memory", "did you mean `memory:`?"),
        ("memory://", "did you mean `memory:`?"),
        (":memory:", "did you mean `memory:`?"),
        ("sqlite:///:memory:", "is written `memory:`"),
        ("sqlite:///", "names no file"),
        ("sqlite:////var/lib/", "names no file"),
        ("sqlite:///tasks.db?mode=ro", "takes no ?options"),
        (
            "mysql://localhost/tasks",
            "`memory:`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`",
        ),
        ("", "`memory:`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`"),
    ],
)
def test_any_other_url_is_refused_with_the_valid_forms(url: str, says: str):
    with pytest.raises(ConfigError) as caught:
        parse_store(url)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/tasks",
        "postgres://db/tasks?password=hunter2",
        "mysql://me:hunter2@db/tasks",
        "mysql://db/hunter2",
        "me:hunter2@db",
        "host=db password=hunter2",
        "sqlite://me:hunter2@db",
        "sqlite:///tasks.db?key=hunter2",
    ],
)
def test_no_error_shows_a_password(url: str):
    with pytest.raises(ConfigError) as caught:
        parse_store(url)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in without_password(url)


def test_the_error_calls_the_setting_as_the_caller_does():
    with pytest.raises(ConfigError, match=r"^--store mysql://…: must be"):
        parse_store("mysql://db/tasks", setting="--store")


@pytest.mark.skipif(find_spec("asyncpg") is not None, reason="asyncpg is installed")
def test_postgresql_without_its_extra_says_how_to_get_it():
    with pytest.raises(ConfigError) as caught:
        parse_store("postgresql://me:hunter2@db/tasks")
    assert str(caught.value) == f"store postgresql://…: needs the extra `postgres`: {install_line('postgres')}"


@pytest.mark.skipif(find_spec("asyncpg") is None, reason="asyncpg is not installed")
def test_where_a_file_is_needed_postgresql_is_refused():
    with pytest.raises(ConfigError, match=r"--store postgresql://…: only servers can use PostgreSQL: use sqlite:///"):
        parse_store("postgresql://me:hunter2@db/tasks", setting="--store")


@pytest.mark.parametrize(
    "scheme",
    ["postgressql", "postgre", "PostgreSQL", "pg", "psql", "postgresql+asyncpg", "jdbc:postgresql"],
)
def test_other_names_of_postgresql_are_refused_with_the_right_one(scheme: str):
    with pytest.raises(ConfigError) as caught:
        parse_store(f"{scheme}://me:hunter2@db/tasks")
    assert "did you mean `postgresql://…`?" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("memory:", None),
        ("sqlite:////var/lib/tasks.db", Path("/var/lib/tasks.db.sessions")),
        ("postgresql://me:hunter2@db/tasks", Path.cwd() / ".dragoman/tasks.sessions"),
        ("postgresql://me@one,two:5433/my%20tasks?sslmode=require", Path.cwd() / ".dragoman/my tasks.sessions"),
        ("postgresql:///", Path.cwd() / ".dragoman/postgres.sessions"),
    ],
)
def test_sessions_have_a_place_also_without_a_file(url: str, folder: Path | None):
    assert session_folder(url) == folder


def test_a_module_that_is_there_is_imported():
    assert require("json", "whatever").loads("1") == 1


def test_a_module_that_is_missing_says_which_extra_has_it():
    with pytest.raises(ConfigError, match="^" + re.escape(f"needs the extra `mcp`: {install_line('mcp')}") + "$"):
        require("no_such_module_at_all", "mcp")
