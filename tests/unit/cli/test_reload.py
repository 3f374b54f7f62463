"""`serve --reload`: changed files restart the agents, and nobody is refused or forgotten meanwhile."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.terminal import Terminal

from dragoman import Client, sync
from dragoman.cli.main import group
from dragoman.cli.serve.options import FRAMEWORKS, ServeArguments
from dragoman.cli.serve.watched import WatchedFiles, watched_files
from dragoman.errors import ConfigError
from dragoman.server.config.loader import load_settings

from .conftest import Run

HELLO = """
from dragoman import Agent, Context

agent = Agent("hello", description="Greets")


@agent.skill
async def greet(ctx: Context, name: str) -> str:
    return f"{await ctx.ask('How?')}, {name}!"
"""
# It is imported once somebody has opened the pipe.
SLOW_HELLO = f"open('gate').close()\n{HELLO.replace('!', '?')}"
COUNT = """
import asyncio
from dragoman import Agent

agent = Agent("count", description="Counts")


@agent.skill(restart=True)
async def count():
    yield "one "
    await asyncio.Event().wait()
"""


def save(file: Path, text: str) -> None:
    """Save as editors do: nobody sees half of it."""
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").replace(file)


def address_of(server: Terminal) -> str:
    server.until("http://127.0.0.1:")
    found = re.match(r"\d+", server.until("\n"))
    assert found is not None
    return f"http://127.0.0.1:{found[0]}"


def test_errors_are_shown_and_corrected_tasks_are_kept_and_callers_wait_instead_of_being_refused(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    app, gate = tmp_path / "app.py", tmp_path / "gate"
    app.write_text("agent = (")
    os.mkfifo(gate)
    server = terminal("serve", "app.py", "--reload", "--port", "0")
    assert "app.py:1: SyntaxError: '(' was never closed" in server.until("waiting for a change")
    save(app, HELLO)
    server.until("changed: app.py; restarting")
    url = address_of(server)
    port = int(url.rpartition(":")[2])
    with sync.Client(url) as client:
        asked = client.send("Ada")
        assert asked.question == "How?"
        save(app, SLOW_HELLO)
        server.until("changed: app.py; restarting")
        with closing(socket.create_connection(("127.0.0.1", port))) as caller:
            caller.sendall(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            # The new process goes on importing once somebody opens the other end.
            gate.open("w").close()
            assert caller.recv(64).startswith(b"HTTP/1.1 200")
        server.until("ready")
        assert client.send("Hi", task=asked).text == "Hi, Ada?"
    # The child ends without its parent: nobody has the port, and nobody the store.
    server.process.send_signal(signal.SIGKILL)
    assert "serving" not in server.ended()[1], "what was printed once is not printed again"
    with closing(socket.create_server(("127.0.0.1", port))):
        pass


async def test_a_stream_goes_on_over_a_restart_and_ctrl_c_ends_both_processes(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    app = tmp_path / "app.py"
    app.write_text(COUNT)
    (tmp_path / "dragoman.toml").write_text('[serve]\nreload = true\ndrain = 0\n[agents.count]\ntarget = "app.py"\n')
    server = terminal("serve", "--port", "0")
    url = await asyncio.to_thread(address_of, server)
    texts: list[str] = []
    async with asyncio.timeout(30), Client(url) as client:
        async for event in client.stream(tool="count"):
            if event.text and not any(texts):
                save(app, COUNT.replace("await asyncio.Event().wait()", 'yield "two"'))
            texts.append(event.text)
    assert texts.count("one ") == texts.count("two") == 1
    os.killpg(server.process.pid, signal.SIGINT)
    code, seen = await asyncio.to_thread(server.ended)
    assert code == 130
    assert seen.count("changed: app.py; restarting") == 1
    assert "Traceback" not in seen


def test_an_address_in_use_ends_it_at_once_because_no_change_would_help(tmp_path: Path, run: Run) -> None:
    (tmp_path / "app.py").write_text(HELLO)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        done = run("serve", "app.py", "--reload", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "is in use: use --port" in done.stderr
    assert "waiting" not in done.stderr


def test_a_wrong_flag_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(group, ["serve", "app.py", "--reload", "--port", "x"])
    assert isinstance(done.exception, ConfigError)
    assert "--port" in str(done.exception)


def test_reload_needs_a_file_to_watch_and_dev_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(group, ["serve", "--command", "wc -w", "--reload"])
    assert str(done.exception) == "--reload: there is no Python file and no settings file to watch here"
    done = CliRunner().invoke(group, ["serve", "--command", "no-such-program-here", "--dev", "--port", "0"])
    assert "no-such-program-here" in str(done.exception)


# -- settings --------------------------------------------------------------------------------------------------------


def settings(tmp_path: Path, keywords: dict[str, object] | None = None, **flags: object):
    return load_settings(keywords or {}, environ={}, config=None, cwd=tmp_path, flags=None if keywords else flags)


def test_dev_reloads_on_the_command_line_and_not_in_python(tmp_path: Path) -> None:
    assert settings(tmp_path, dev=True).reload
    assert not settings(tmp_path, dev=True, reload=False).reload
    assert not settings(tmp_path, {"dev": True}).reload


def test_a_restart_waits_a_few_seconds_for_running_tasks_unless_drain_is_set(tmp_path: Path) -> None:
    assert settings(tmp_path, reload=True).drain == 3
    assert settings(tmp_path, reload=True, drain=20).drain == 20
    assert settings(tmp_path).drain == 30


def test_reload_in_python_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot reload itself.*dragoman serve FILE --reload"):
        settings(tmp_path, {"reload": True})
    assert not settings(tmp_path, {"reload": False}).reload


# -- what is watched -------------------------------------------------------------------------------------------------


def arguments(*targets: str, **flags: object) -> ServeArguments:
    return ServeArguments(targets, (), None, flags, FRAMEWORKS)


def test_the_folders_of_files_and_modules_are_watched_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (here / "agents").mkdir(parents=True)
    (elsewhere / "travel").mkdir(parents=True)
    (elsewhere / "travel" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(elsewhere)
    assert watched_files(arguments("agents/trip.py:agent"), here).folders == {here}
    assert watched_files(arguments("travel.agents:trip"), here).folders == {elsewhere / "travel"}
    assert watched_files(arguments(adk=("../elsewhere/app.py",)), here).folders == {elsewhere}
    assert watched_files(arguments("not_there_yet"), here).folders == {here}


def test_the_settings_file_its_targets_and_the_scripts_of_commands_are_watched(tmp_path: Path) -> None:
    for name in ("server.py", "worker.js"):
        (tmp_path / name).touch()
    (tmp_path / "dragoman.toml").write_text(
        '[agents.a]\ntarget = "app.py"\n[agents.b]\nmcp = "python server.py"\n[agents.c]\ncommand = ["node", "x.js"]\n'
    )
    files = watched_files(arguments(), tmp_path)
    assert files == WatchedFiles(frozenset({tmp_path}), frozenset({tmp_path / "dragoman.toml", tmp_path / "server.py"}))
    by_flag = watched_files(arguments(mcp=("node worker.js --fast",)), tmp_path)
    assert by_flag == WatchedFiles(frozenset(), frozenset({tmp_path / "dragoman.toml", tmp_path / "worker.js"}))
    (tmp_path / "dragoman.toml").write_text("[[[")
    assert watched_files(arguments(), tmp_path).files == {tmp_path / "dragoman.toml"}


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("app.py", True),
        ("deep/er/app.py", True),
        ("dragoman.toml", True),
        ("notes.txt", False),
        (".dragoman/tasks.db-wal", False),
        (".dragoman/tasks.db.sessions/1/made_by_a_program.py", False),
        ("my.db.sessions/1/made_by_a_program.py", False),
        (".venv/lib/site.py", False),
        ("__pycache__/app.cpython-312.pyc", False),
        ("other.toml", False),
    ],
)
def test_only_python_files_of_the_folders_and_the_settings_file_count(tmp_path: Path, path: str, counts: bool) -> None:
    files = WatchedFiles(frozenset({tmp_path}), frozenset({tmp_path / "dragoman.toml"}))
    assert bool(files.changed([str(tmp_path / path)])) is counts
