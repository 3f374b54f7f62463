"""Which file a server keeps its tasks in when nothing says so: by the name of its agent."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Client, Server, State
from dragoman.server.config.loader import load_settings
from dragoman.server.config.store_file import DEFAULT_STORE, default_store
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import served


def agent_called(name: str) -> Agent:
    agent = Agent(name)

    @agent.skill
    def echo(text: str) -> str:
        return text

    return agent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to serve from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRAGOMAN_STORE", raising=False)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / ".dragoman").glob("*.db")}


async def serve(name: str) -> None:
    """Serve an agent from its file and stop, without a task."""
    store = SqliteStore(Path(default_store([name], Path.cwd()).removeprefix("sqlite:///")), agents=[name])
    await store.open()
    await store.close()


async def test_two_agents_of_one_folder_are_served_at_the_same_time_each_from_its_own_file(folder: Path) -> None:
    first, second = agent_called("first"), agent_called("second")
    with served(first.app()) as one, served(second.app()) as two:
        for url in (one, two):
            async with Client(url) as client:
                assert (await client.send("hello")).state is State.COMPLETED
        assert files(folder) == {"tasks.db", "second.db"}
    # And in whatever order they are started again, each finds its tasks.
    with served(second.app()) as two, served(first.app()) as one:
        for url in (one, two):
            async with Client(url) as client:
                assert len([task async for task in client.list_tasks()]) == 1
    assert files(folder) == {"tasks.db", "second.db"}


async def test_the_first_agent_has_the_common_file_though_it_has_no_tasks(folder: Path) -> None:
    await serve("first")
    assert default_store(["first"], folder) == DEFAULT_STORE
    assert default_store(["second"], folder) == "sqlite:///.dragoman/second.db"
    assert default_store(["second"], folder / "elsewhere") == DEFAULT_STORE


async def test_the_file_of_a_running_server_is_read(folder: Path) -> None:
    store = SqliteStore(folder / ".dragoman" / "tasks.db", agents=["first"])
    await store.open()
    assert default_store(["first"], folder) == DEFAULT_STORE
    assert default_store(["second"], folder) == "sqlite:///.dragoman/second.db"
    await store.close()


async def test_several_agents_together_have_the_common_file_and_so_has_each_of_them_later(folder: Path) -> None:
    await serve("first")
    assert default_store(["second", "third"], folder) == DEFAULT_STORE
    with served(Server(agent_called("second"), agent_called("third")).app()):
        pass
    assert files(folder) == {"tasks.db"}
    assert default_store(["third"], folder) == DEFAULT_STORE
    assert default_store(["fourth"], folder) == "sqlite:///.dragoman/fourth.db"


async def test_an_agent_keeps_its_own_file_when_the_common_one_is_gone(folder: Path) -> None:
    await serve("first")
    await serve("second")
    (folder / ".dragoman" / "tasks.db").unlink()
    assert default_store(["second"], folder) == "sqlite:///.dragoman/second.db"
    assert default_store(["third"], folder) == DEFAULT_STORE


async def test_a_file_of_the_first_version_says_whose_it_is(folder: Path) -> None:
    (folder / ".dragoman").mkdir()
    with closing(sqlite3.connect(folder / ".dragoman" / "tasks.db")) as old:
        old.execute("CREATE TABLE scopes (scope INTEGER PRIMARY KEY, agent TEXT, tenant TEXT, owner TEXT)")
        old.execute("INSERT INTO scopes VALUES (1, 'first', '', '')")
        old.commit()
    assert default_store(["first"], folder) == DEFAULT_STORE
    assert default_store(["second"], folder) == "sqlite:///.dragoman/second.db"


@pytest.mark.parametrize("content", [b"", b"no database"])
def test_a_file_that_says_nothing_is_the_common_one_so_that_its_error_is_seen(folder: Path, content: bytes) -> None:
    (folder / ".dragoman").mkdir()
    (folder / ".dragoman" / "tasks.db").write_bytes(content)
    assert default_store(["first"], folder) == DEFAULT_STORE


@pytest.mark.parametrize("name", ["second", "Trip planner", "über"])
async def test_another_agent_has_a_file_of_its_name(folder: Path, name: str) -> None:
    await serve("first")
    await serve(name)
    assert files(folder) == {"tasks.db", f"{name}.db"}


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("tasks", "tasks"),
        ("Tasks", "Tasks"),
        ("a.b", "a_b"),
        ("..\\x", "x"),
        ("nul", "_nul"),
        (".hidden", "hidden"),
        ("!!!", "___"),
        ("x" * 300, "x" * 50),
        ("ü" * 300, "ü" * 25),
    ],
)
async def test_a_name_that_no_file_can_have_gets_a_digest(folder: Path, name: str, stem: str) -> None:
    await serve("first")
    await serve(name)
    (file,) = files(folder) - {"tasks.db"}
    assert re.fullmatch(rf"{stem}\.[0-9a-f]{{8}}\.db", file)
    await serve(name)
    assert files(folder) == {"tasks.db", file}


async def test_a_store_that_is_set_is_used_whatever_it_holds(folder: Path) -> None:
    await serve("first")

    def load(environ: dict[str, str], **keywords: Any) -> str:
        return load_settings(keywords, environ=environ, config=None, cwd=folder, agents=["second"]).store

    assert load({}) == "sqlite:///.dragoman/second.db"
    assert load({}, store=DEFAULT_STORE) == DEFAULT_STORE
    assert load({"DRAGOMAN_STORE": DEFAULT_STORE}) == DEFAULT_STORE
    (folder / "dragoman.toml").write_text(f'[serve]\nstore = "{DEFAULT_STORE}"\n')
    assert load({}).endswith("/.dragoman/tasks.db")
