"""Store URLs: what they mean, and what they never give away."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from dragoman.model.error import ConfigError
from dragoman.server.agent.frameworks import require
from dragoman.server.config.installation import install_line
from dragoman.server.config.store_url import parse_store, without_password


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
        ("mysql://localhost/tasks", "`memory:`, `sqlite:///relative.db` or `sqlite:////absolute.db`"),
        ("", "`memory:`, `sqlite:///relative.db` or `sqlite:////absolute.db`"),
    ],
)
def test_any_other_url_is_told_with_the_forms_there_are(url: str, says: str):
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
def test_postgresql_with_its_extra_is_not_in_this_version():
    with pytest.raises(ConfigError, match="PostgreSQL is not in this version: use sqlite:///"):
        parse_store("postgresql://me:hunter2@db/tasks")


def test_a_module_that_is_there_is_imported():
    assert require("json", "whatever").loads("1") == 1


def test_a_module_that_is_missing_says_which_extra_has_it():
    with pytest.raises(ConfigError, match="^" + re.escape(f"needs the extra `mcp`: {install_line('mcp')}") + "$"):
        require("no_such_module_at_all", "mcp")
