"""A connection that is lost: for how long it is tried again, and what is logged meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.clocks import EagerClock
from support.stub_server import AgentStub, Close, reply, result, task

from dragoman import Agent, Client, State
from dragoman.client.connect import SHARED_CARDS, connect
from dragoman.client.follow import ResumableStream
from dragoman.client.message import build_message, build_send_request
from dragoman.client.options import ClientOptions, MessageOptions
from dragoman.client.streams.backoff import Outage
from dragoman.client.streams.stream import EventStream
from dragoman.errors import CannotConnect, ConfigError, ServerError, TimedOut
from dragoman.model.operation import GetTaskRequest, Operation
from dragoman.testing import Clock

SRC = Path(__file__).resolve().parents[3] / "src"
REQUEST = build_send_request(build_message(MessageOptions("hello")), wait=True)
REFUSED = CannotConnect("refused", arrived=False)


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    SHARED_CARDS.clear()


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "dragoman.client")
    return caplog


def lines(logged: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in logged.records]


# -- the pauses ------------------------------------------------------------------------------------------------------


async def test_the_pauses_grow_to_some_seconds_and_end_after_the_time_given() -> None:
    clock = EagerClock()
    outage = Outage(60, clock)
    with pytest.raises(CannotConnect) as caught:
        while True:
            await outage.pause(REFUSED)
    assert caught.value is REFUSED
    assert sum(clock.slept) == pytest.approx(60, abs=0.01)
    assert clock.slept[0] <= 0.2
    assert all(later < 5.01 and later > earlier / 2 for earlier, later in pairwise(clock.slept[:-1]))
    assert 12 < len(clock.slept) < 40


async def test_a_sign_of_life_begins_the_time_anew(logged: pytest.LogCaptureFixture) -> None:
    clock = EagerClock()
    outage = Outage(60, clock)
    for _ in range(3):
        while sum(clock.slept) < 50:
            await outage.pause(REFUSED)
        outage.reset()
        clock.slept.clear()
    lost = ("WARNING", "connection lost; retrying for 60 s …")
    assert lines(logged) == [lost, ("INFO", "reconnected")] * 3


async def test_what_is_over_at_the_first_attempt_is_not_worth_a_word(logged: pytest.LogCaptureFixture) -> None:
    outage = Outage(60, EagerClock())
    await outage.pause(REFUSED)
    outage.reset()
    assert lines(logged) == []


@pytest.mark.parametrize(
    ("problem", "covered"),
    [
        (REFUSED, True),
        (CannotConnect("cut", reason="CONNECTION_LOST"), True),
        (CannotConnect("proxy", reason="UNAVAILABLE", status=502), True),
        (CannotConnect("no network", reason="NO_SUCH_HOST", arrived=False), True),
        (TimedOut("no route", arrived=False), True),
        (TimedOut("silent"), False),
        (CannotConnect("no trust", reason="TLS", arrived=False), False),
        (CannotConnect("a mail server", reason="NOT_HTTP"), False),
    ],
)
def test_what_a_restart_may_cause_is_waited_for(problem: CannotConnect, covered: bool) -> None:
    assert Outage(60, EagerClock()).covers(problem) is covered


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="reconnect is seconds"):
        Client("http://127.0.0.1:1", reconnect=seconds)


# -- sending ---------------------------------------------------------------------------------------------------------


async def sent(stub: Any, clock: Clock, *, back_after: float, **options: Any) -> Any:
    """Send a message to an agent that goes away with it, and comes back after so many seconds."""
    connection = connect(ClientOptions(stub.url, **options), clock)
    await connection.card()
    sending = asyncio.ensure_future(connection.perform(Operation.SEND, REQUEST))
    began, away = clock.now(), True
    try:
        async with asyncio.timeout(20):
            while not sending.done():
                if stub.posts and away and clock.now() - began < back_after * 1000:
                    stub.close_port()
                elif away and stub.posts:
                    away = False
                    await stub.open_port()
                if clock.pending:
                    clock.move(0.1)
                await asyncio.sleep(0)
        return await sending
    finally:
        await connection.close()


class Restarting(AgentStub):
    """An agent that closes its port with the first message, and answers the others."""

    def __init__(self) -> None:
        super().__init__(lambda got: Close if len(self.posts) == 1 else result(got, task()))

    def close_port(self) -> None:
        self._server.close()

    async def open_port(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)


async def test_a_send_whose_agent_restarts_for_30_seconds_gets_its_answer(logged: pytest.LogCaptureFixture) -> None:
    async with Restarting() as stub:
        answer = await sent(stub, Clock(), back_after=30)
        assert answer.id == "t1"
        assert len({got.message_id for got in stub.posts}) == 1
        assert len(stub.posts) == 2
    assert [level for level, _ in lines(logged)] == ["WARNING", "INFO"]


@pytest.mark.parametrize("options", [{"retries": 0}, {"reconnect": 0}])
async def test_a_send_that_is_not_to_be_repeated_is_given_up(options: Any) -> None:
    async with Restarting() as stub:
        with pytest.raises(CannotConnect):
            await sent(stub, Clock(), back_after=30, **options)
        assert len(stub.posts) == 1


@pytest.mark.parametrize("protocol", ["1.0", "0.3", "0.1"])
async def test_a_message_whose_answer_was_lost_is_run_once_and_its_task_returned(protocol: str) -> None:
    agent, runs, losses = Agent("test"), list[str](), [CannotConnect("cut", reason="CONNECTION_LOST")]

    @agent.skill
    async def work(text: str) -> str:  # pyright: ignore[reportUnusedFunction]
        runs.append(text)
        return "done"

    async def lose_first(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        if request.method == "POST" and losses:
            await response.read(10_000)
            raise losses.pop()
        return response

    async with Client(agent.app(store="memory:"), protocol=protocol, interceptors=[lose_first]) as client:
        answer = await client.send("x")
    assert (answer.state, answer.text, runs, losses) == (State.COMPLETED, "done", ["x"], [])


async def test_a_message_that_its_agent_no_longer_recognizes_is_not_sent_again() -> None:
    async with Restarting() as stub:
        with pytest.raises(CannotConnect):
            await sent(stub, Clock(), back_after=700, reconnect=3600)
        assert len(stub.posts) == 1


async def test_a_message_whose_answer_was_lost_late_is_not_sent_again() -> None:
    clock = Clock()

    def lose_late(got: Any) -> Any:
        clock.move(660)
        return Close

    async with AgentStub(lose_late) as stub:
        connection = connect(ClientOptions(stub.url), clock)
        await connection.card()
        with pytest.raises(CannotConnect):
            await connection.perform(Operation.SEND, REQUEST)
        assert len(stub.posts) == 1
        await connection.close()


def stopping(got: Any, **metadata: str) -> Any:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVER_ERROR", "metadata": metadata}
    error = {"code": -32000, "message": "the server is stopping", "data": [info]}
    return reply({"jsonrpc": "2.0", "id": got.json["id"], "error": error})


def methods(stub: Any) -> list[str]:
    return [got.json["method"] for got in stub.posts]


class Stopping(Restarting):
    """An agent that stops in an orderly way, and says so of the first message."""

    def __init__(self, **metadata: str) -> None:
        super().__init__()
        self.rest = lambda got: stopping(got, **metadata) if len(self.posts) == 1 else result(got, task())


async def test_a_send_that_was_cut_off_by_a_restart_gets_its_task_and_is_not_repeated() -> None:
    async with Stopping(taskId="t1", interrupted="true") as stub:
        assert (await sent(stub, Clock(), back_after=30)).id == "t1"
        assert methods(stub) == ["SendMessage", "GetTask"]
    async with Stopping(taskId="t1", interrupted="true") as stub:
        with pytest.raises(ServerError):
            await sent(stub, Clock(), back_after=30, reconnect=0)
        assert methods(stub) == ["SendMessage"]


async def test_a_send_that_a_stopping_server_refuses_is_sent_when_it_is_back() -> None:
    async with Stopping(retryAfter="1") as stub:
        assert (await sent(stub, Clock(), back_after=30)).id == "t1"
        assert methods(stub) == ["SendMessage", "SendMessage"]


async def test_a_send_that_failed_in_the_agent_is_not_repeated() -> None:
    async with Stopping(taskId="t1", retryAfter="1") as stub:
        with pytest.raises(ServerError):
            await sent(stub, Clock(), back_after=30)
        assert methods(stub) == ["SendMessage"]


async def test_reading_a_task_gives_up_after_its_retries_and_within_a_stream_after_its_time() -> None:
    for outage_of, expected in ((lambda _: None, 5), (lambda clock: Outage(60, clock), 60)):
        clock = EagerClock()
        async with AgentStub(lambda got: result(got, task())) as stub:
            connection = connect(ClientOptions(stub.url), clock)
            await connection.card()
        with pytest.raises(CannotConnect):
            await connection.perform(Operation.GET, GetTaskRequest("t1"), outage_of(clock))
        assert expected / 2 <= sum(clock.slept) + 2 <= expected + 2.1
        await connection.close()


async def poll(stub: Any, clock: Clock, **options: Any) -> list[State]:
    """Poll a task whose agent goes away after the first event, and is back after 30 seconds; returns its states."""
    stub.more = {"capabilities": {"streaming": False}}
    stub.rest = lambda got: result(got, task("TASK_STATE_WORKING"))
    connection = connect(ClientOptions(stub.url, **options), clock)
    await connection.card()
    states: list[State] = []

    async def read() -> None:
        async for event in ResumableStream(connection, 5, poll_pause=5).watch("t1"):
            states.append(event.state)  # noqa: PERF401 - each is looked at as it comes

    polling, left_at = asyncio.ensure_future(read()), None
    try:
        async with asyncio.timeout(20):
            while not polling.done():
                if states and left_at is None:
                    left_at = clock.now()
                    stub.close_port()
                    stub.drop()
                elif left_at is not None and stub.rest is not ended and clock.now() - left_at > 30_000:
                    stub.rest = ended
                    await stub.open_port()
                if clock.pending:
                    clock.move(0.5)
                await asyncio.sleep(0)
        await polling
        return states
    finally:
        polling.cancel()
        await connection.close()


def ended(got: Any) -> bytes:
    return result(got, task())


async def test_polling_waits_for_an_agent_that_is_away(logged: pytest.LogCaptureFixture) -> None:
    async with Restarting() as stub:
        assert await poll(stub, Clock()) == [State.WORKING, State.COMPLETED]
    assert [level for level, _ in lines(logged)] == ["WARNING", "INFO"]


async def test_polling_that_is_not_to_reconnect_ends_with_the_first_error() -> None:
    async with Restarting() as stub:
        clock = Clock()
        began = clock.now()
        with pytest.raises(CannotConnect):
            await poll(stub, clock, reconnect=0)
        assert clock.now() - began < 20_000


async def test_waiting_for_a_task_outlasts_a_restart() -> None:
    async with Restarting() as stub:
        clock = Clock()
        async with Client(stub.url) as client:
            connection = client._connection = connect(ClientOptions(stub.url), clock)
            await connection.card()
            stub.close_port()
            stub.drop()
            waiting = asyncio.ensure_future(client.wait("t1"))
            began, away = clock.now(), True
            async with asyncio.timeout(20):
                while not waiting.done():
                    if away and clock.now() - began > 30_000:
                        away, stub.rest = False, lambda got: result(got, task())
                        await stub.open_port()
                    if clock.pending:
                        clock.move(0.5)
                    await asyncio.sleep(0)
            assert (await waiting).id == "t1"


# -- a server that is stopped and started again ----------------------------------------------------------------------


AGENT = """
import asyncio
from pathlib import Path
from dragoman import Agent

agent = Agent("counter")

@agent.skill(restart=True)
async def count(to: str):
    yield "one "
    yield "two "
    if not Path("again").exists():
        await asyncio.Event().wait()
    yield Path("again").read_text()
"""


class ServerProcess:
    """`dragoman serve` in a folder, killed and started again at one port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as taken, socket.socket() as also_taken:
            taken.bind(("127.0.0.1", 0))
            also_taken.bind(("127.0.0.1", 0))
            self.port, self.grpc_port = taken.getsockname()[1], also_taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(SRC)}
        words = [sys.executable, "-m", "dragoman.cli.main", "serve", "counter.py", "--port", str(self.port)]
        words += ["--grpc", str(self.grpc_port)]
        process = self._process = await asyncio.create_subprocess_exec(
            *words, cwd=self.folder, env=environ, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        while b"serving" not in (line := await process.stderr.readline()):
            assert line, "it has ended"

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[ServerProcess]:
    (tmp_path / "counter.py").write_text(AGENT, encoding="utf-8")
    server = ServerProcess(tmp_path)
    await server.start()
    yield server
    await server.kill()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("transport", ["jsonrpc", "grpc"])
async def test_a_server_that_is_away_for_30_seconds_loses_no_reader(
    server: ServerProcess, logged: pytest.LogCaptureFixture, transport: str
) -> None:
    clock = Clock()
    connection = connect(ClientOptions(server.url, transport=transport), clock)

    async def open_stream() -> ResumableStream:
        return ResumableStream(connection, 5)

    stream = EventStream(open_stream, lambda opened: opened.send(REQUEST))
    pieces, arrived = list[str](), asyncio.Event()

    async def read() -> None:
        async for piece in stream.text():
            pieces.append(piece)
            if "two" in piece:
                arrived.set()

    reading = asyncio.create_task(read())
    await arrived.wait()
    (server.folder / "again").write_text("three", encoding="utf-8")
    await server.kill()
    began = clock.now()
    while clock.now() - began < 30_000 and not reading.done():
        if clock.pending:
            clock.move(0.5)
        await asyncio.sleep(0)
    assert not reading.done()
    await server.start()
    while not reading.done():
        if clock.pending:
            clock.move(0.1)
        await asyncio.sleep(0)
    await reading
    assert stream.task.state is State.COMPLETED
    # The skill ran again with the same output, which is not printed twice.
    assert "".join(pieces) == "one two three" == stream.task.text
    assert lines(logged) == [
        ("WARNING", "connection lost; retrying for 60 s …"),
        ("INFO", "reconnected"),
    ]
    await connection.close()
