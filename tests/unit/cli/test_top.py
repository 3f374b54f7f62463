"""`dragoman top` as it is typed: on a terminal of any size, into a pipe, and where it is pointed at something else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from support.http_server import Answer, HttpServer, Request
from support.terminal import Terminal

from dragoman import Agent, Client, __version__
from dragoman.cli.top.scrape import PageParser, Scrape
from dragoman.cli.top.snapshot import History, Snapshot, take_snapshot
from dragoman.cli.top.view import View, ViewState, sparkline
from dragoman.telemetry.metrics.registry import DURATIONS
from dragoman.testing import served

from .conftest import PATIENCE, Typed

AGENT = "gen_ai_agent_name"
EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b31m\u202e\r\n\t\\"


class Metrics:
    """A page of metrics, by prometheus_client, with the names that Dragoman's have."""

    def __init__(self, started: float = 1000.0) -> None:
        self.registry = CollectorRegistry()
        Info("dragoman", "x", registry=self.registry).info({"version": "9.8.7"})
        Gauge("process_start_time_seconds", "x", registry=self.registry).set(started)
        self.operations = self._histogram(
            "a2a_server_operation_duration_seconds", AGENT, "a2a_method_name", "a2a_protocol_version", "error_type"
        )
        self.tasks = self._histogram("a2a_server_task_duration_seconds", AGENT, "dragoman_skill", "a2a_task_state")
        self.at_work = Gauge("a2a_server_task_in_progress", "x", (AGENT,), registry=self.registry)
        self.stalls = Counter("dragoman_loop_stalls", "x", (AGENT, "dragoman_skill"), registry=self.registry)

    def _histogram(self, name: str, *labels: str) -> Histogram:
        return Histogram(name, "x", labels, registry=self.registry, buckets=DURATIONS)

    def call(self, method: str, count: int, seconds: float = 0.003, error: str = "") -> None:
        for _ in range(count):
            self.operations.labels("desk", method, "1.0", error).observe(seconds)

    def page(self) -> bytes:
        return generate_latest(self.registry)


@contextmanager
def pages(body: bytes | Callable[[], bytes], status: int = 200) -> Generator[int]:
    """The port of a server of pages: this body, or what it returns at the moment."""

    def answer(_: Request) -> Answer:
        return Answer(status, body() if callable(body) else body, {"Content-Type": "text/plain", "Connection": "close"})

    with HttpServer(answer) as server:
        yield server.port


class TopTerminal(Terminal):
    """A terminal with an emulator for its screen."""

    def __init__(self, folder: Path, *args: str, columns: int = 80, rows: int = 24, **environ: str) -> None:
        super().__init__(("top", *args), folder, piped=False, **environ)
        self.screen = pyte.Screen(columns, rows)
        self.raw = ""
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        super().resize(columns, rows)
        self.screen.resize(rows, columns)
        if self.raw:
            self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, *texts: str, without: str = "\0") -> list[str]:
        """Wait until a whole page has been drawn that has these texts, and not that one."""
        deadline = time.monotonic() + PATIENCE
        stream = pyte.Stream(self.screen)
        while True:
            display = "\n".join(self.screen.display)
            is_whole = self.raw.endswith("\x1b[?2026l")
            if is_whole and all(text in display for text in texts) and without not in display:
                return list(self.screen.display)
            assert time.monotonic() < deadline, display
            if self.can_read(deadline) and not self.read(deadline):
                raise AssertionError(f"it has ended: {self.raw[-2000:]}")
            self.raw += self.seen
            stream.feed(self.seen)
            self.seen = ""


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Callable[..., TopTerminal]]:
    opened: list[TopTerminal] = []

    def start(*args: str, **options: Any) -> TopTerminal:
        opened.append(TopTerminal(tmp_path, *args, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def busy(metrics: Metrics) -> Iterator[str]:
    """The address of a server that has more to show each time it is asked."""

    def page() -> bytes:
        metrics.call("SendMessage", 30)
        metrics.call("GetTask", 3, 0.0007)
        metrics.call("GetTask", 1, error="TASK_NOT_FOUND")
        metrics.tasks.labels("desk", "book", "TASK_STATE_COMPLETED").observe(0.02)
        metrics.at_work.labels("desk").set(7)
        return metrics.page()

    with pages(page) as port:
        yield f":{port}"


# -- one snapshot ----------------------------------------------------------------------------------------------------


def test_a_pipe_gets_one_plain_snapshot(typed: Typed, busy: str, metrics: Metrics) -> None:
    metrics.stalls.labels("desk", "book").inc(3)
    done = typed("top", busy, "--interval", "0.2")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(f"dragoman top · 127.0.0.1{busy} · 9.8.7 · up ")
    assert "7 at work" in lines[1]
    (send,) = [line.split() for line in lines if line.startswith("SendMessage")]
    assert 50 < float(send[1]) <= 150
    # 3 ms is between the bounds 2.5 and 5.
    assert send[2:9] == ["0", "3.8", "ms", "4.9", "ms", "5.0", "ms"]
    (get,) = [line.split() for line in lines if line.startswith("GetTask")]
    assert 1 < float(get[2]) <= 5
    assert lines.index(next(line for line in lines if line.startswith("GetTask"))) == 5, "the fewer calls come last"
    assert any(line.startswith("desk / book ") for line in lines)
    assert any("3 stalls: desk / book 3" in line for line in lines)
    assert "\x1b" not in done.out


def test_once_on_a_terminal_leaves_the_snapshot_there(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--once", "--interval", "0.1", "--sort", "name")
    code, seen = terminal.ended()
    assert code == 0
    assert "\x1b[?1049h" not in seen
    assert seen.index("GetTask") < seen.index("SendMessage")


# -- live ------------------------------------------------------------------------------------------------------------


def test_it_fills_the_terminal_and_follows_its_size(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--interval", "0.1")
    lines = terminal.wait_for("SendMessage", "q quit", "WEBHOOKS")
    assert lines[-1].startswith("q quit")
    assert not any("LAST MINUTE" in line for line in lines)
    terminal.resize(120, 40)
    lines = terminal.wait_for("LAST MINUTE", "STREAMS   ")
    lines = terminal.wait_for("LAST MINUTE")
    assert len(lines) == 40
    terminal.resize(40, 8)
    # What was drawn before is gone.
    lines = terminal.wait_for("SendMessage", without="WEBHOOKS")
    assert len(lines) == 8
    terminal.type("q")
    assert terminal.ended()[0] == 0


def test_keys_pause_sort_explain_and_quit(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--interval", "0.1")
    lines = terminal.wait_for("5.0 ms", "sort: rate")
    assert lines[4].startswith("SendMessage")
    terminal.type("s")
    assert terminal.wait_for("sort: errors")[4].startswith("GetTask")
    terminal.type("\x1b[A")  # an arrow does nothing
    terminal.type("?")
    terminal.wait_for("pause, and go on")
    terminal.type(" ")
    terminal.wait_for("SendMessage", without="pause, and go on")
    terminal.type("p")
    terminal.wait_for("PAUSED", "go on")
    terminal.type("p")
    terminal.wait_for("sort: errors", without="PAUSED")
    terminal.type("q")
    code, rest = terminal.ended()
    assert code == 0
    assert rest.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)])
def test_a_signal_restores_the_terminal(
    top: Callable[..., TopTerminal], busy: str, number: signal.Signals, code: int
) -> None:
    terminal = top(busy, "--interval", "0.1")
    terminal.wait_for("SendMessage")
    assert terminal.mode != terminal.initial_mode
    terminal.process.send_signal(number)
    ended, rest = terminal.ended()
    assert ended == code
    assert rest.rstrip("\n").endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")
    assert terminal.mode == terminal.initial_mode


def test_it_gives_the_terminal_back_while_it_is_stopped(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--interval", "0.1")
    terminal.wait_for("SendMessage")
    terminal.process.send_signal(signal.SIGTSTP)
    # The group has no shell above it, so that Linux does not stop it; it goes on at once.
    terminal.until("\x1b[?1049l")
    terminal.until("\x1b[?1049h")
    terminal.type("q")
    assert terminal.ended()[0] == 0
    assert terminal.mode == terminal.initial_mode


def test_a_closed_window_ends_it(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--interval", "0.1")
    terminal.wait_for("SendMessage")
    terminal.hang_up()
    terminal.process.wait(PATIENCE)


def test_without_colors_there_are_none(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--interval", "0.1", NO_COLOR="1")
    terminal.wait_for("SendMessage")
    assert "\x1b[3" not in terminal.raw


SERVER = """
import time
from dragoman import Agent, Client, __version__

agent = Agent("desk")

@agent.skill
async def echo(text: str) -> str:
    "Say it again."
    return text

@agent.skill
async def block() -> str:
    "Block the event loop."
    time.sleep(0.5)
    return "done"
"""


async def test_a_real_server_is_shown_with_what_it_does_and_the_skill_that_blocks_it(
    terminal: Callable[..., Terminal], top: Callable[..., TopTerminal], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(SERVER)
    options = ("--port", "0", "--store", "sqlite:///tasks.db")
    server = terminal("serve", "app.py", *options, "--metrics", "0", NO_COLOR="1")
    server.until("http://")
    url = f"http://{server.until(chr(10))}"
    server.until("metrics http://")
    address = server.until("/metrics")
    shown = top(address, "--interval", "0.1")
    shown.wait_for("TASKS")
    async with Client(url) as client:
        for _ in range(20):
            await client.call("echo", text="hello")
        await client.call("block")
    lines = shown.wait_for("SendMessage", "  echo", "  block", "1 stall: desk / block 1")
    assert lines[0].startswith(f"dragoman top · {address} · {__version__} · up ")
    assert "CPU " in lines[0] and "MB" in lines[0]
    server.process.kill()
    server.process.wait()
    shown.wait_for("connection lost, trying again")
    terminal("serve", "app.py", *options, "--metrics", address, NO_COLOR="1").until("/metrics")
    lines = shown.wait_for("restarted", without="connection lost")
    assert not any(" -0" in line or " -1" in line for line in lines)
    shown.type("q")
    assert shown.ended()[0] == 0


# -- foreign names ---------------------------------------------------------------------------------------------------


def test_names_of_agents_and_skills_never_command_the_terminal(top: Callable[..., TopTerminal]) -> None:
    metrics = Metrics()
    metrics.operations.labels("desk", f"Method{EVIL}", "1.0", EVIL).observe(0.1)
    metrics.tasks.labels(f"agent{EVIL}", f"skill{EVIL}", f"state{EVIL}").observe(0.1)
    metrics.tasks.labels(f"agent{EVIL}", f"other{EVIL}", "TASK_STATE_FAILED").observe(0.1)
    metrics.stalls.labels(f"a{EVIL}", f"s{EVIL}").inc()
    with pages(metrics.page) as port:
        terminal = top(str(port), "--interval", "0.1", columns=200, rows=40)
        terminal.wait_for("Method\\x1b]52", "skill\\x1b]52", "1 stall: a\\x1b]52")
        assert "\x1b]" not in terminal.raw
        assert not {"\x07", "\x9b", "\u202e", "\t"} & set(terminal.raw)


# -- what is not the metrics of a server -----------------------------------------------------------------------------


def test_where_nothing_listens_it_says_how_to_turn_metrics_on(typed: Typed) -> None:
    with pages(b"") as port:
        pass
    done = typed("top", f"localhost:{port}")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"dragoman: nothing listens at http://localhost:{port}/metrics: turn the metrics of the server on: "
        "dragoman serve … --metrics 9464\n"
    )


def test_the_address_of_an_agent_is_recognized(typed: Typed) -> None:
    agent = Agent("desk")
    with served(agent) as url:
        done = typed("top", url)
    assert done.code == 3
    assert "is the address of an agent, and its metrics have one of their own" in done.err
    assert "--metrics 9464" in done.err


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (
            b"# TYPE go_goroutines gauge\ngo_goroutines 7\n",
            200,
            "but not those of Dragoman: the first is go_goroutines",
        ),
        (b"<html>hello</html>", 200, "has no metrics (HTTP 200)"),
        (b"not here", 404, "has no metrics (HTTP 404)"),
        (b'{"detail": "x"}', 404, "has no metrics (HTTP 404)"),
        (b"# TYPE dragoman_x counter\ndragoman_x_total{ oops\x1b\n", 200, "has a line that is no metric: dragoman_x"),
    ],
)
def test_a_page_of_something_else_is_recognized(typed: Typed, body: bytes, status: int, says: str) -> None:
    with pages(body, status) as port:
        done = typed("top", str(port))
    assert done.code == 3
    assert says in done.err
    assert "\x1b" not in done.err


def test_a_host_without_a_port_is_a_usage_error(typed: Typed) -> None:
    done = typed("top", "localhost")
    assert done.code == 2
    assert "as in 127.0.0.1:9464" in done.err


# -- the layout ------------------------------------------------------------------------------------------------------


def full() -> Snapshot:
    metrics = Metrics()
    history = History(1)
    for at in range(3):
        for number in range(12):
            metrics.call(f"Method{number}", number)
            for skill in ("one", "two", "wide 日本語 👩\u200d🚀"):
                metrics.tasks.labels(f"agent{number}", skill, "TASK_STATE_COMPLETED").observe(number)
        metrics.stalls.labels("agent1", "one").inc()
        history.add(Scrape(at, PageParser().parse(metrics.page().decode())))
    return take_snapshot(history, now=1100.0)


FULL = full()


@given(st.integers(1, 200), st.integers(1, 60), st.booleans(), st.booleans())
def test_it_fits_a_terminal_of_any_size(width: int, height: int, shows_help: bool, is_lost: bool) -> None:
    state = ViewState("127.0.0.1:9464", shows_help=shows_help, lost="gone" if is_lost else "")
    lines = View().lines(FULL, state, width, height)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


def test_the_least_important_goes_first() -> None:
    def shown(width: int, height: int) -> str:
        return "\n".join(line.plain for line in View().lines(FULL, ViewState("x"), width, height))

    small, usual, large = shown(60, 12), shown(80, 24), shown(160, 60)
    for text in ("TASKS", "METHOD (", "P99", "AGENT / SKILL ("):
        assert text in small
    for text in ("LOOP", "STREAMS", "JOURNAL", "LIMITS", "WEBHOOKS", "P95", "q quit"):
        assert text not in small or text == "q quit"
        assert text in usual
    assert "LAST MINUTE" not in usual
    for text in ("LAST MINUTE", "AT WORK", "Method1 ", "  two"):
        assert text in large
    assert "METHOD (" not in large


@given(st.lists(st.floats(0, 1e9), max_size=90), st.integers(0, 70))
def test_a_sparkline_fits_and_ends_now(rates: list[float], width: int) -> None:
    drawn = sparkline(rates, width)
    assert len(drawn) <= width
    if rates and width and len(rates) <= width:
        assert len(drawn) == len(rates)


def test_a_terminal_without_unicode_gets_none(top: Callable[..., TopTerminal], busy: str) -> None:
    terminal = top(busy, "--interval", "0.1", columns=120, PYTHONIOENCODING="ascii")
    terminal.wait_for("SendMessage", " | 9.8.7 | ")
    assert os.fsencode(terminal.raw).isascii()
