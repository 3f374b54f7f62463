"""`serve --workers`: what it needs, what it refuses, and how soon a worker is started again."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from dragoman import Agent
from dragoman.cli.main import group
from dragoman.cli.serve.slot import RestartBackoff
from dragoman.errors import ConfigError
from dragoman.server.config.loader import load_settings
from dragoman.server.config.memory_limit import memory_for
from dragoman.server.config.settings import Limits, Settings, WorkerSettings
from dragoman.telemetry.logs import configure

from .conftest import Run

POSTGRES = "postgresql://me@db/tasks"


def load(tmp_path: Path, **flags: object) -> Settings:
    return load_settings({}, environ={}, config=None, cwd=tmp_path, flags=flags)


def test_the_workers_of_a_store_for_one_process_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, workers="2")
    assert str(caught.value) == (
        "--workers: several workers need a store that they can share, and one process owns the file "
        ".dragoman/tasks.db: use --store postgresql://user@host/database, or leave it out; "
        "`dragoman migrate .dragoman/tasks.db URL` moves the tasks there"
    )
    with pytest.raises(ConfigError, match="tasks in memory belong to one process: use --store") as caught:
        load(tmp_path, workers="2", store="memory:")
    assert "migrate" not in str(caught.value)
    assert load(tmp_path, workers="1").workers == 1
    assert load(tmp_path, workers="2", store=POSTGRES).workers == 2


def test_a_server_that_reloads_has_one_worker_and_says_so(tmp_path: Path) -> None:
    warnings: list[str] = []
    (tmp_path / "dragoman.toml").write_text("[serve]\nworkers = 4\n")
    settings = load_settings({}, environ={}, config=None, cwd=tmp_path, flags={"dev": True}, warn=warnings.append)
    assert (settings.reload, settings.workers) == (True, 1)
    assert warnings == ["dragoman.toml [serve] workers: with --reload there is one worker"]


def test_settings_that_need_a_shared_store_wait_for_the_store_that_the_program_names(tmp_path: Path) -> None:
    flags = {"workers": "2", "node": "one"}
    before = load_settings({}, environ={}, config=None, cwd=tmp_path, flags=flags, partial=True)
    assert (before.workers, before.node) == (2, "one")
    after = load_settings({"store": POSTGRES}, environ={}, config=None, cwd=tmp_path, flags=flags)
    assert (after.workers, after.node) == (2, "one")


def test_workers_in_a_python_program_are_an_error_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"omit it, and start the agent with `dragoman serve FILE --workers 3`"):
        Agent("hello").serve(workers=3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAGOMAN_WORKERS", "2")
    monkeypatch.setenv("DRAGOMAN_STORE", POSTGRES)
    with pytest.raises(ConfigError, match=r"set it to 1, or start the agents with `dragoman serve FILE --workers 2`"):
        Agent("hello").serve()


def test_on_another_system_than_linux_it_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dragoman.server.listen.port.sys.platform", "darwin")
    done = CliRunner().invoke(group, ["serve", "app.py", "--workers", "2", "--store", POSTGRES])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith("several workers need Linux")
    assert "use --workers 1, or start several servers, each on a port of its own" in str(done.exception)


def test_a_syntax_error_is_printed_once_for_all_workers(tmp_path: Path, run: Run) -> None:
    (tmp_path / "app.py").write_text("agent = (")
    done = run("serve", "app.py", "--workers", "3", "--store", POSTGRES)
    assert done.returncode == 2
    assert done.stderr.count("SyntaxError: '(' was never closed") == 1
    assert "worker" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="several workers need Linux")
def test_a_taken_port_of_metrics_is_one_error_and_leaves_nothing_behind(tmp_path: Path, run: Run) -> None:
    (tmp_path / "app.py").write_text("from dragoman import Agent\nagent = Agent('hello')")
    (tmp_path / "temporary").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--workers", "3", "--store", POSTGRES, "--port", "0", "--no-push", "--metrics", str(port))
        done = run("serve", "app.py", *flags, TMPDIR=str(tmp_path / "temporary"))
    assert done.returncode == 2
    assert done.stderr.count(f"port {port} is in use: use --metrics ") == 1
    assert list((tmp_path / "temporary").glob("dragoman-metrics-*")) == []


def test_each_worker_has_its_own_name_and_folder_and_its_part_of_the_memory() -> None:
    settings = Settings(store=POSTGRES, node="web", workers=2)
    fields = msgspec.structs.asdict(settings)
    one, two = (WorkerSettings(**fields, worker=number, node_id=number) for number in (1, 2))
    assert (one.node_name, two.node_name) == ("web/1", "web/2")
    assert one.sessions == Path.cwd() / ".dragoman/tasks.1.sessions"
    assert two.sessions == Path.cwd() / ".dragoman/tasks.2.sessions"
    (alone, _), (part, caller) = (memory_for(Limits(body=1), Path("/nowhere"), workers) for workers in (1, 4))
    assert part == alone // 4
    assert caller == part // 2


def test_a_worker_is_started_again_at_once_then_ever_later_until_it_has_served_well() -> None:
    backoff = RestartBackoff()
    assert [backoff.after(0) for _ in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert [backoff.after(served) for served in (60, 9, 0, 10)] == [0, 1, 2, 0]


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored_logging")
def test_each_line_of_the_log_says_which_worker_it_is_of(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("text", "json"):
        configure(kind, "info", worker=2)
        logging.getLogger("dragoman.task").info("done\nand done")
    text, line = capsys.readouterr().err.splitlines()
    assert text.endswith("INFO    dragoman.task: [2] done\\nand done")
    assert json.loads(line)["worker"] == 2
