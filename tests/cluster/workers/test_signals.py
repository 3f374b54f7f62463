"""What signals do to a server with several workers, and what it does when it cannot start or stop."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.workers.supervised import children
from support.ports import free_port
from support.processes import until_ended
from support.terminal import Terminal

from dragoman import sync
from dragoman.server.listen.port import SharedPort

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
HELLO = """
import asyncio, os, signal, time
from dragoman import Agent

agent = Agent("hello", description="Greets")


@agent.skill(default=True)
def greet(text: str) -> str:
    return "Hello!"


@agent.skill
async def sleep() -> str:
    await asyncio.sleep(60)
    return "done"


@agent.skill
async def block() -> str:
    time.sleep(60)
    return "done"


@agent.skill
async def freeze() -> str:
    os.kill(os.getpid(), signal.SIGSTOP)
    return "done"
"""
# As a shell does it: whoever closes the terminal hangs up.
CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "dragoman.cli.main", *sys.argv[1:]])
"""
IN_TERMINAL = (sys.executable, "-c", CONTROLLED)
Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path, postgres_url: str) -> Iterator[Start]:
    """Start a server with two workers on a terminal, and wait until it is ready."""
    opened: list[Terminal] = []
    (tmp_path / "app.py").write_text(HELLO)

    def start(*flags: str, ready: bool = True) -> Terminal:
        arguments = ("serve", "app.py", "--workers", "2", "--no-push", "--store", postgres_url, *flags)
        opened.append(terminal := Terminal(arguments, tmp_path, program=IN_TERMINAL, NO_COLOR="1"))
        if ready:
            terminal.until("try  ")
        return terminal

    yield start
    for each in opened:
        pids = children(each.process.pid)
        each.close()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def begin(port: int, tool: str) -> None:
    with sync.Client(f"http://127.0.0.1:{port}") as client:
        client.send(tool=tool, wait=False)


def test_ctrl_c_ends_all_and_a_second_one_at_once(start: Start) -> None:
    server = start("--port", "0")
    pids = children(server.process.pid)
    os.killpg(server.process.pid, signal.SIGINT)  # a terminal sends it to all
    code, seen = server.ended()
    assert (code, "Traceback" in seen) == (130, False)
    for pid in pids:
        until_ended(pid)

    port = free_port()
    server = start("--port", str(port))
    begin(port, "sleep")
    os.killpg(server.process.pid, signal.SIGINT)
    server.until("press Ctrl-C again to stop at once")
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.ended()[0] == 130


def test_an_interrupt_of_the_supervisor_alone_ends_all(start: Start) -> None:
    server = start("--port", "0")
    server.process.send_signal(signal.SIGINT)
    code, seen = server.ended()
    assert (code, "killed" in seen) == (130, False)


def test_sigterm_lets_tasks_end_within_drain_and_is_a_success(start: Start) -> None:
    port = free_port()
    server = start("--port", str(port), "--drain", "1")
    begin(port, "sleep")
    server.process.send_signal(signal.SIGTERM)
    code, seen = server.ended()
    assert (code, "Traceback" in seen) == (0, False)
    assert "1 task was still running after 1 s" in seen


def test_a_worker_that_does_not_stop_is_killed(start: Start) -> None:
    port = free_port()
    server = start("--port", str(port), "--drain", "0", "--limits-streams", "10")
    begin(port, "freeze")
    server.process.send_signal(signal.SIGTERM)
    code, seen = server.ended()
    assert code == 0
    assert "does not stop: it is killed" in seen


def test_workers_whose_event_loop_is_blocked_close_the_port_when_their_supervisor_is_killed(start: Start) -> None:
    port = free_port()
    server = start("--port", str(port), "--drain", "0")
    pids = children(server.process.pid)
    begin(port, "block")
    server.process.kill()
    SharedPort("127.0.0.1", port).close()
    for pid in pids:
        until_ended(pid)


def test_a_closed_terminal_ends_all(start: Start) -> None:
    server = start("--port", "0")
    pids = children(server.process.pid)
    server.hang_up()
    assert server.process.wait(60) == 0
    for pid in pids:
        until_ended(pid)


def test_new_code_that_does_not_work_leaves_the_old_workers_alone(start: Start, tmp_path: Path) -> None:
    port = free_port()
    server = start("--port", str(port))
    pids = children(server.process.pid)
    (tmp_path / "app.py").write_text("agent = (")
    server.process.send_signal(signal.SIGHUP)
    server.until("SyntaxError: '(' was never closed")
    server.until("worker 1 ended with exit code 2 before it was ready: the workers are not restarted")
    assert children(server.process.pid) == pids
    (tmp_path / "app.py").write_text(HELLO.replace("Hello!", "Good day!"))
    server.process.send_signal(signal.SIGHUP)
    server.until("all workers are restarted")
    assert not set(children(server.process.pid)) & set(pids)
    with sync.Client(f"http://127.0.0.1:{port}") as client:
        assert {client.send("x").text for _ in range(8)} == {"Good day!"}


def test_a_second_server_is_refused_the_port_with_or_without_workers(start: Start) -> None:
    port = free_port()
    start("--port", str(port))
    for workers in ("1", "2"):
        second = start("--port", str(port), "--workers", workers, ready=False)
        code, seen = second.ended()
        assert code == 2
        assert f"port {port} is in use: use --port" in seen
        assert f"--workers {workers} --port" in seen
