"""What is tried again, when, and under which id."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import pytest
from support.stub_server import After, AgentStub, Close, Request, Reset, head, html, reply, result, task

from dragoman import Client
from dragoman.client.connect import SHARED_CARDS, connect
from dragoman.client.options import ClientOptions
from dragoman.client.streams.backoff import Backoff
from dragoman.errors import CannotConnect, InternalError, Overloaded, ServerError
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, Operation, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.testing import Clock

MESSAGE = SendMessageRequest(Message("m1", Role.USER, (Part(text="hello"),)))


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


def rpc_error(code: int, status: int = 200, **more: Any) -> bytes:
    return reply({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": "no", **more}}, status)


class Scene:
    """An agent that answers with these, then with a task; called on a clock of the test's own."""

    def __init__(self, *answers: Any, transport: str = "jsonrpc", retries: int = 5) -> None:
        self.clock = Clock()
        self.answers = list(answers)
        self.stub = AgentStub(self._answer, transport)
        self.retries = retries
        self.times: list[float] = []
        self.began = self.clock.now()

    def _answer(self, got: Any) -> Any:
        self.times.append((self.clock.now() - self.began) / 1000)
        return self.answers.pop(0) if self.answers else result(got, task())

    async def __aenter__(self) -> Scene:
        await self.stub.__aenter__()
        self.connection = connect(ClientOptions(self.stub.url, retries=self.retries), self.clock)
        await self.connection.card()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.connection.close()
        await self.stub.__aexit__(*error)

    async def send(self, request: Any = MESSAGE, operation: Operation = Operation.SEND) -> Any:
        """Send a message, and let time pass whenever somebody waits for it."""
        running = asyncio.ensure_future(self.connection.perform(operation, request))
        async with asyncio.timeout(20):
            while not running.done():
                if self.clock.pending:
                    self.clock.move(0.05)
                await asyncio.sleep(0)
        return await running


def refusal(code: int, status: str, reason: str) -> bytes:
    """An error of A2A over REST."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}
    return reply({"error": {"code": code, "status": status, "message": "no", "details": [info]}}, code)


# A gateway that says when to come back has not passed the message on.
BUSY = reply(b"<html>", 503, "text/html", Retry_After="0")
RESET = b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"

AGAIN = [
    BUSY,
    reply({"message": "no"}, 503, Retry_After="0"),
    html(429),
    reply({"message": "no"}, 429),
    rpc_error(-32000, 503),
    rpc_error(-32000, 429),
    rpc_error(-32000, data=[{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RESOURCE_EXHAUSTED"}]),
    Close,
    Reset,
    After(b"HTTP/1.1 100 Continue\r\n\r\n", Close),
]


@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
@pytest.mark.parametrize("answer", AGAIN)
async def test_what_may_pass_is_tried_again_under_the_same_message_id(answer: Any, transport: str) -> None:
    if transport == "rest" and isinstance(answer, bytes) and b'"jsonrpc"' in answer:
        answer = refusal(503, "UNAVAILABLE", "SERVER_ERROR")  # that error is one of JSON-RPC alone
    async with Scene(answer, answer, answer, transport=transport) as scene:
        assert (await scene.send()).id == "t1"
        assert [got.message_id for got in scene.stub.posts] == ["m1"] * 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (html(504), CannotConnect),
        (html(502), CannotConnect),
        (reply({"message": "no"}, 502), CannotConnect),
        # A gateway, whose agent may have been at work when the connection to it broke.
        (html(503), CannotConnect),
        (reply(RESET, 503, "text/plain"), CannotConnect),
        (reply({"message": "no"}, 503), CannotConnect),
        (reply({"error": {"status": "UNAVAILABLE", "message": "no"}}, 503), CannotConnect),
        # An answer that breaks off is one.
        (After(b"HTTP/1.1 200 OK\r\nConte", Close), CannotConnect),
        (After(head(200, Content_Length="500"), Reset), CannotConnect),
        (After(head(200, Content_Length="500") + b'{"jsonrpc":', Close), CannotConnect),
        (rpc_error(-32603), InternalError),
        # A generic error of a server that has done the work: asking again would do it again.
        (rpc_error(-32000), ServerError),
        (reply({"detail": "boom"}, 500), InternalError),
        (After(b"SSH-2.0-x\r\n\r\n", Close), CannotConnect),
    ],
)
@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
async def test_a_message_that_may_be_at_work_is_not_sent_again(
    answer: Any, kind: type[Exception], transport: str
) -> None:
    if transport == "rest" and isinstance(answer, bytes) and b'"jsonrpc"' in answer:
        answer, kind = refusal(500, "INTERNAL", "INTERNAL_ERROR"), InternalError  # that one is of JSON-RPC alone
    async with Scene(answer, transport=transport) as scene:
        with pytest.raises(kind):
            await scene.send()
        assert len(scene.stub.posts) == 1


@pytest.mark.parametrize("answer", [html(504), html(503), After(head(200, Content_Length="500"), Close)])
async def test_a_question_is_asked_again_after_a_gateway_gave_up(answer: Any) -> None:
    async with Scene(answer) as scene:
        assert (await scene.send(GetTaskRequest("t1"), Operation.GET)).id == "t1"


async def test_the_first_try_again_is_at_once_and_the_waits_grow() -> None:
    async with Scene(*[Close] * 5) as scene:
        await scene.send()
        waits = [after - before for before, after in pairwise(scene.times)]
    assert len(waits) == 5
    assert waits[0] < 0.1
    for wait, most in zip(waits[1:], (0.2, 0.4, 0.8, 1.6), strict=True):
        assert most / 2 <= wait <= most + 0.2  # the clock of this test moves in steps


async def test_after_so_many_failures_in_a_row_the_error_is_raised() -> None:
    async with Scene(*[BUSY] * 4, retries=3) as scene:
        with pytest.raises(CannotConnect, match="not available") as caught:
            await scene.send()
        assert caught.value.reason == "UNAVAILABLE"
        assert len(scene.stub.posts) == 4
        # The next call counts anew.
        scene.answers = [BUSY] * 3
        assert (await scene.send()).id == "t1"


@pytest.mark.parametrize("answer", AGAIN)
async def test_without_retries_nothing_is_tried_again(answer: Any) -> None:
    async with Scene(answer, retries=0) as scene:
        with pytest.raises((CannotConnect, ServerError)):
            await scene.send()
        assert len(scene.stub.posts) == 1


@pytest.mark.parametrize(
    ("retry_after", "least", "most"), [("5", 5, 5.2), ("0", 0, 0.2), ("3600", 60, 60.2), ("soon", 0, 0.2)]
)
@pytest.mark.parametrize("status", [503, 429])
async def test_a_server_that_says_when_is_asked_then_within_reason(
    status: int, retry_after: str, least: float, most: float
) -> None:
    async with Scene(reply({"message": "no"}, status, Retry_After=retry_after)) as scene:
        await scene.send()
        assert least <= scene.times[1] - scene.times[0] <= most


async def test_a_server_may_say_when_as_a_date() -> None:
    scene = Scene()
    scene.answers = [html(503).replace(b"\r\n\r\n", b"\r\nRetry-After: %b\r\n\r\n" % _date(scene.clock, 20), 1)]
    async with scene:
        await scene.send()
        assert 19 <= scene.times[1] <= 20.2


def _date(clock: Clock, seconds: float) -> bytes:
    return formatdate(clock.now() / 1000 + seconds, usegmt=True).encode()


async def test_waiting_of_one_call_is_not_the_wait_of_another() -> None:
    async with Scene(reply({}, 429, Retry_After="50"), BUSY) as scene:
        first = asyncio.ensure_future(scene.connection.perform(Operation.SEND, MESSAGE))
        async with asyncio.timeout(10):
            while not scene.clock.pending:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert (await scene.connection.perform(Operation.SEND, MESSAGE)).id == "t1"
            assert not first.done()
            scene.clock.move(50)
            assert (await first).id == "t1"


@pytest.mark.parametrize("operation", ["send", "stream", "card"])
async def test_who_was_never_there_is_not_waited_for(operation: str) -> None:
    clock = Clock()
    connection = connect(ClientOptions("http://127.0.0.1:1"), clock)
    async with asyncio.timeout(10):
        with pytest.raises(CannotConnect):
            if operation == "send":
                await connection.perform(Operation.SEND, MESSAGE)
            elif operation == "card":
                await connection.card()
            else:
                async for _ in connection.open_stream(Operation.STREAM, MESSAGE, None):
                    pass
    assert clock.pending == 0
    await connection.close()


async def test_a_server_that_closes_idle_connections_is_no_trouble() -> None:
    async with AgentStub(lambda got: result(got, task())) as stub, Client(stub.url) as client:
        for _ in range(3):
            assert (await client.send("hello")).id == "t1"
            stub.drop()
        assert len(stub.posts) == 3


async def test_a_server_that_closes_a_connection_while_it_is_being_used_again_is_asked_once_more() -> None:
    # It did not announce that it closes: to the caller it looks alive.
    async with Scene(After(result(_rpc(), task()), Close), Close) as scene:
        assert (await scene.send()).id == "t1"
        assert (await scene.send()).id == "t1"


def _rpc() -> Any:
    return Request("POST", "/", {}, b'{"id":"1","method":"SendMessage"}')


async def test_a_caller_who_gives_up_while_waiting_is_let_go() -> None:
    async with Scene(*[BUSY] * 9) as scene:
        running = asyncio.ensure_future(scene.connection.perform(Operation.SEND, MESSAGE))
        async with asyncio.timeout(10):
            while not scene.clock.pending:  # noqa: ASYNC110
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert scene.clock.pending == 0


async def test_success_starts_the_count_again() -> None:
    clock = Clock()
    backoff = Backoff(2, clock)
    for _ in range(3):
        await backoff.pause(Overloaded())
        backoff.reset()
    await backoff.pause(Overloaded())
    waiting = asyncio.ensure_future(backoff.pause(Overloaded()))
    await clock.advance(1)
    await waiting
    with pytest.raises(Overloaded):
        await backoff.pause(Overloaded())


async def test_waits_are_blurred() -> None:
    clock = Clock()
    ends: set[int] = set()

    async def one() -> None:
        backoff = Backoff(5, clock)
        await backoff.pause(Overloaded())
        await backoff.pause(Overloaded())
        ends.add(clock.now())

    calls = [asyncio.ensure_future(one()) for _ in range(50)]
    await clock.advance(1)
    await asyncio.gather(*calls)
    assert len(ends) > 10
