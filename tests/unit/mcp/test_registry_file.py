"""The registry in a file: known again, beside a server's tasks, and never in the way."""

from __future__ import annotations

import logging
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as Host

from dragoman import Agent, Client, Context
from dragoman.mcp import registry_file
from dragoman.mcp.registry import Registry
from dragoman.mcp.registry_file import NEVER_ANSWERED, RegistryFile
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.model.error import ConfigError
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task, TaskStatus
from dragoman.server.config.remotes import Remote
from dragoman.stores.sqlite.file import FileLock
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock, served

BOTH = ["status_update", "artifact_update"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


def task(task_id: str, state: State = State.WORKING, text: str = "so far") -> Task:
    return Task(task_id, "c", TaskStatus(state), (Artifact("a", (Part(text=text), Part(raw=b"\x00\xff"))),))


def opened(path: Path, clock: Clock | None = None) -> Registry:
    return Registry(clock or Clock(), RegistryFile(path))


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


# -- known again -------------------------------------------------------------------------------------------------------


def test_a_registry_opened_again_knows_agents_tasks_and_webhooks(path: Path) -> None:
    clock = Clock()
    before = opened(path, clock)
    agent = before.register_agent("http://127.0.0.1:1", "one", {"name": "one", "skills": [{"id": "é"}]}, "bearer")
    records = [before.start_task(agent.agent_id) for _ in range(3)]
    for number, record in enumerate(records):
        clock.move(1)
        before.update_task(record, task(f"remote {number}"))
    clock.move(1)
    before.update_task(records[0], task("remote 0", State.COMPLETED))
    hook = before.put_webhook(agent.agent_id, "http://localhost/in", BOTH)
    before.close()

    after = opened(path, clock)
    assert after.agents == before.agents
    assert after.tasks() == before.tasks()
    assert [after.public_id(each) for each in after.tasks()] == ["remote 0", "remote 2", "remote 1"]
    for record in records:
        assert after.task(record.id) == after.task(record.remote_id or "") == record
    assert after.webhooks_of(agent.agent_id) == [hook]
    assert after.put_webhook(agent.agent_id, "http://localhost/in", []).config_id == hook.config_id
    assert after.register_agent("http://127.0.0.1:1", "one", {}).agent_id == agent.agent_id
    after.close()


def test_what_was_changed_and_forgotten_is_so_again(path: Path) -> None:
    before = opened(path)
    hook = before.put_webhook("agent_1", "http://localhost/in", BOTH)
    before.put_webhook("agent_1", "http://localhost/in", ["status_update"])
    gone = before.update_task(before.start_task("agent_1"), task("gone"))
    lost = before.update_task(before.start_task("agent_1"), task("lost"))
    before.set_problem(lost, "Request failed: timeout")
    file = before._store  # pyright: ignore[reportPrivateUsage]
    assert file is not None
    file.delete(gone)
    before.close()
    after = opened(path)
    assert after.webhooks[hook.config_id].events == ["status_update"]
    assert [(each.remote_id, each.problem) for each in after.tasks()] == [("lost", "Request failed: timeout")]
    after.close()


def test_a_message_that_was_never_answered_is_no_task_at_work(path: Path) -> None:
    before = opened(path)
    record = before.start_task("agent_1")
    before.close()
    after = opened(path)
    found = after.task(record.id)
    assert found is not None
    assert found.problem == NEVER_ANSWERED
    after.close()


async def test_a_host_goes_on_with_a_task_of_the_process_before(path: Path) -> None:
    agent = Agent("planner", description="Plans")

    @agent.skill
    async def plan(ctx: Context) -> str:
        """Plan."""
        return f"{await ctx.ask('How many?')} days"

    async def call(host: Host, tool: str, **arguments: Any) -> Any:
        result = await host.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content

    with served(agent) as url:
        async with McpServer(McpOptions(), store=RegistryFile(path)) as mine, Host(mine.server) as host:
            agent_id = (await call(host, "resolve_agent_card", base_url=url))["agent_id"]
            asked = await call(host, "send_message", agent_id=agent_id, text="go")
        async with McpServer(McpOptions(), store=RegistryFile(path)) as mine, Host(mine.server) as host:
            (known,) = (await call(host, "list_remote_agents"))["agents"]
            assert known["agent_id"] == agent_id
            (task,) = (await call(host, "list_tasks"))["tasks"]
            assert (task["id"], task["status"]["state"]) == (asked["id"], "input_required")
            done = await call(host, "send_message", agent_id=agent_id, text="3", task_id=task["id"])
            assert done["text"] == "3 days"


async def test_no_credentials_are_in_the_file(path: Path) -> None:
    with served(Agent("known", description="Known")) as url:
        options = McpOptions(remotes={"k": Remote(name="k", url=url)}, tokens={"k": "S3CR3T"})
        async with McpServer(options, store=RegistryFile(path)) as mine, Host(mine.server) as host:
            result = await host.call_tool("resolve_agent_card", {"base_url": "k"})
            assert (result.structured_content or {})["auth_mode"] == "bearer"
    written = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"mcp_agents" in written
    assert b"S3CR3T" not in written


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such permissions")
def test_the_file_is_made_with_its_folder_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "registry.db"
    RegistryFile(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_may_have_it_and_the_next_knows_what_both_kept(path: Path) -> None:
    one, two = opened(path), opened(path)
    one.register_agent("http://127.0.0.1:1", "one", {})
    two.register_agent("http://127.0.0.1:2", "two", {})
    one.close()
    two.close()
    third = opened(path)
    assert {each.name for each in third.agents.values()} == {"one", "two"}
    third.close()


def test_several_may_make_it_at_once(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from dragoman.mcp.registry import Registry; "
        "from dragoman.mcp.registry_file import RegistryFile; from dragoman.testing import Clock; "
        "r = Registry(Clock(), RegistryFile(Path(sys.argv[1]))); "
        "r.register_agent('http://127.0.0.1:' + sys.argv[2], 'a', {}); r.close()"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, str(path), str(each)]) for each in range(1, 4)]
    assert [each.wait(60) for each in started] == [0, 0, 0]
    registry = opened(path)
    assert len(registry.agents) == 3
    registry.close()


def test_another_program_s_file_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(ConfigError, match="another program's database"):
        RegistryFile(foreign)
    text = tmp_path / "text.db"
    text.write_text("not a database, " * 100)
    with pytest.raises(ConfigError, match="not a store"):
        RegistryFile(text)
    assert tables(foreign) == {"theirs"}


def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        RegistryFile(tmp_path / "file" / "registry.db")


def test_a_row_that_cannot_be_read_is_left_out_and_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = opened(path)
    registry.register_agent("http://127.0.0.1:1", "one", {})
    registry.update_task(registry.start_task("agent_1"), task("good"))
    registry.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO mcp_agents VALUES ('agent_bad', x'7b')")
        connection.execute("INSERT INTO mcp_tasks VALUES ('bad', 'agent_1', NULL, 1, '', x'7b')")
    registry = opened(path)
    assert [each.name for each in registry.agents.values()] == ["one"]
    assert [each.remote_id for each in registry.tasks()] == ["good"]
    registry.close()
    assert "agent_bad" in caplog.text
    assert "task bad" in caplog.text


# -- beside a server ---------------------------------------------------------------------------------------------------


async def test_it_shares_a_server_s_store_while_both_write(path: Path) -> None:
    agent = Agent("echo", description="Echoes")

    @agent.skill
    async def echo(text: str) -> str:
        """Echo."""
        return text

    with served(agent, store=f"sqlite:///{path}") as url:
        registry = opened(path)
        async with Client(url) as client:
            for number in range(30):
                registry.update_task(registry.start_task("agent_1"), task(str(number)))
                assert (await client.send(str(number))).text == str(number)
        registry.close()
    again = opened(path)
    assert len(again.tasks()) == 30
    again.close()
    assert {"tasks", "events", "mcp_agents", "mcp_tasks", "mcp_webhooks"} <= tables(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM tasks").fetchone() == (30,)


async def test_a_server_takes_a_file_that_a_registry_made(path: Path) -> None:
    registry = opened(path)
    registry.register_agent("http://127.0.0.1:1", "one", {})
    store = SqliteStore(path)
    await store.open()
    registry.register_agent("http://127.0.0.1:2", "two", {})
    registry.close()
    await store.close()
    registry = opened(path)
    assert len(registry.agents) == 2
    registry.close()


def held(path: Path) -> FileLock:
    lock = FileLock(path.with_name(path.name + ".ckpt"))
    assert lock.try_acquire()
    return lock


def test_a_busy_file_stops_nobody_and_is_written_later(path: Path) -> None:
    registry = opened(path)
    lock = held(path)
    for number in range(1000):  # each would wait for seconds, if it waited at all
        registry.update_task(registry.start_task("agent_1"), task(str(number)))
    assert RegistryFile(path).load()[1] == []
    lock.release()
    registry.close()
    assert len(RegistryFile(path).load()[1]) == 1000


def test_what_cannot_be_written_is_tried_again_and_its_last_word_counts(
    path: Path,
) -> None:
    registry = opened(path)
    away = path.rename(path.with_name("away"))
    with logged("cannot be written now") as failed:
        record = registry.update_task(registry.start_task("agent_1"), task("remote"))
        assert failed.wait(20)
    registry.update_task(record, task("remote", State.COMPLETED))
    away.rename(path)
    registry.close()
    (found,) = RegistryFile(path).load()[1]
    assert found.task is not None
    assert found.task.state is State.COMPLETED


def test_what_another_has_seen_later_is_not_overwritten(path: Path) -> None:
    clock = Clock()
    one = opened(path, clock)
    record = one.update_task(one.start_task("agent_1"), task("remote"))
    one.close()
    stale, fresh = opened(path, clock), opened(path, clock)
    clock.move(1)
    later = fresh.task(record.id)
    assert later is not None
    fresh.update_task(later, task("remote", State.COMPLETED, "the result"))
    fresh.close()
    earlier = stale.task(record.id)
    assert earlier is not None
    stale.set_problem(earlier, "Request failed: timeout")
    stale.close()
    (found,) = RegistryFile(path).load()[1]
    assert found.task is not None
    assert (found.task.state, found.task.text, found.problem) == (State.COMPLETED, "the result", "")


def test_one_record_that_cannot_be_written_does_not_keep_the_others_from_it(path: Path) -> None:
    registry = opened(path)
    with logged("cannot be written, and is left out") as failed:
        registry.update_task(registry.start_task("agent_1"), task("half \ud83d"))
        assert failed.wait(20)
    registry.update_task(registry.start_task("agent_1"), task("whole"))
    registry.close()
    assert [each.remote_id for each in RegistryFile(path).load()[1] if each.remote_id] == ["whole"]


def test_the_writer_outlives_what_nobody_has_thought_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = registry_file.short_write

    def broken(path: Path) -> Any:
        monkeypatch.setattr(registry_file, "short_write", whole)
        raise RuntimeError("nobody has thought of it")

    registry = opened(path)
    monkeypatch.setattr(registry_file, "short_write", broken)
    with logged("cannot be written now") as failed:
        registry.update_task(registry.start_task("agent_1"), task("remote"))
        assert failed.wait(20)
    registry.close()
    assert [each.remote_id for each in RegistryFile(path).load()[1]] == ["remote"]


class logged:
    """An event that is set when the log says something."""

    def __init__(self, text: str) -> None:
        self._event = threading.Event()
        self._logger = logging.getLogger("dragoman.mcp")
        self._handler = _Calls(lambda message: self._event.set() if text in message else None)

    def __enter__(self) -> threading.Event:
        self._logger.addHandler(self._handler)
        return self._event

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._handler)


class _Calls(logging.Handler):
    def __init__(self, call: Callable[[str], object]) -> None:
        super().__init__()
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        self._call(record.getMessage())
