"""Calls over gRPC that are given up, malformed, too large or hostile: each is answered, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
from collections import Counter
from typing import Any

import grpc
import pytest
from grpc._cython.cygrpc import ExecuteBatchError  # pyright: ignore[reportMissingModuleSource]
from wire.grpc_caller import MODERN, OLD, calling, encode, message, serving

from dragoman import Agent, Context
from dragoman.errors import InvalidParams, ServerError
from dragoman.server.listen.grpc_port import SERVERS

SECONDS = 10
LONG = "é世% \n\x01" * 2000


class Work:
    """An agent, what it does, and what its server holds."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.go_on = asyncio.Event()
        self.agent = agent = Agent("work", description="Works")

        @agent.skill
        def echo(text: str) -> str:
            """Say it again."""
            return text

        @agent.skill
        async def wait(ctx: Context) -> Any:
            """Work until it may end."""
            self.runs[ctx.text] += 1
            yield "begun "
            await self.go_on.wait()
            yield "done"

        @agent.skill
        def fail(text: str) -> str:
            """Fail with a text that no trailer can take."""
            if text == "params":
                raise InvalidParams(LONG, field=LONG)
            raise ServerError(LONG, **{f"key{number}{'x' * 200}": LONG for number in range(50)})

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - what it waits for is done by others
                await asyncio.sleep(0.001)

    async def check_nothing_left(self, app: Any, tasks: int) -> None:
        """Wait until the server holds nothing. Calls that were given up may still be on their way."""

        def left() -> dict[str, Any]:
            service = app._hosted[0].service
            quota = service._quota
            held = {
                "runs": service.running,
                "live": service._tasks.live,
                "asyncio tasks": max(0, len(asyncio.all_tasks()) - tasks),
                "listeners": service._bus.listeners,
                "locks": service._locks._locks,
                "streams": (quota._streams_open, service._follower.open_count),
                "quota": (quota._runs, quota._leases, quota.tasks.counts),
                "memory": app._shared.memory.used,
            }
            return {name: value for name, value in held.items() if (any(value) if isinstance(value, tuple) else value)}

        with contextlib.suppress(TimeoutError):
            await self.until(lambda: not left())
        assert left() == {}


@pytest.fixture
def work() -> Work:
    return Work()


# Calls that are given up


async def give_up(caller: Any, request: dict[str, Any], way: int, dice: random.Random) -> None:
    """Send a message in one of several ways, and give up after a while that differs."""
    pause = dice.random() * 0.004
    if way == 0:
        call = caller.begin("SendMessage", request)
    elif way == 1:
        await caller.call("SendMessage", request, timeout=pause)
        return
    elif way == 2:
        call = caller.stream("SendStreamingMessage", request)
        if dice.random() < 0.5:
            await call.read()
    else:
        call = caller.channel.stream_unary(f"/{MODERN}/SendMessage")()
    await asyncio.sleep(pause)
    call.cancel()


@pytest.mark.parametrize("calls", [120, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(120)])])
async def test_calls_that_are_given_up_leave_nothing_and_their_repeats_find_what_they_began(
    work: Work, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    work.go_on.set()
    dice = random.Random(calls)
    large = {"metadata": {"large": "x" * 20_000, "skillId": "wait"}}
    requests = [message(f"m{number}", "wait", message=large if number % 2 else {}) for number in range(calls)]
    async with serving(work.agent, limits={"caller_streams": 100, "caller_tasks": 100}) as app, calling(app) as caller:
        assert (await caller.call("SendMessage", message())).status == "OK"
        tasks = len(asyncio.all_tasks())
        for number, request in enumerate(requests):
            await give_up(caller, request, number % 4, dice)
        await work.check_nothing_left(app, tasks)
        begun = +work.runs
        assert begun
        for request in requests[:60]:
            assert (await caller.call("SendMessage", request)).value["task"]["status"][
                "state"
            ] == "TASK_STATE_COMPLETED"
        await work.check_nothing_left(app, tasks)
    assert set(work.runs.values()) == {1}
    assert caplog.records == []


async def test_a_caller_who_leaves_while_the_response_is_sent_is_no_error_in_the_log(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("grpc._cython.cygrpc")
    async with serving(work.agent):
        for error in (ExecuteBatchError("Failed"), RuntimeError("a bug")):
            try:
                raise error
            except Exception:  # as grpcio does it
                logger.exception("raised in core by servicer method")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [RuntimeError]


async def test_a_message_whose_caller_hangs_up_is_worked_on_and_counts(work: Work) -> None:
    async with serving(work.agent, limits={"caller_tasks": 1}) as app, calling(app) as caller:
        tasks = len(asyncio.all_tasks())
        call = caller.begin("SendMessage", message("first", "wait"))
        await work.until(lambda: work.runs["first"])
        call.cancel()
        refused = await caller.call("SendMessage", message("second", "wait"))
        assert (refused.status, refused.details[0]["metadata"]["limit"]) == ("RESOURCE_EXHAUSTED", "caller_tasks")
        assert refused.all("retry-after") == ["1"]
        (task,) = (await caller.call("ListTasks", {})).value["tasks"]
        assert task["status"]["state"] == "TASK_STATE_WORKING"
        work.go_on.set()
        await work.until(lambda: not app._hosted[0].service.running)
        got = await caller.call("GetTask", {"id": task["id"]})
        assert got.value["status"]["state"] == "TASK_STATE_COMPLETED"
        await work.check_nothing_left(app, tasks + 1)


async def test_a_caller_whose_deadline_passes_gets_no_answer_and_its_task_goes_on(work: Work) -> None:
    async with serving(work.agent) as app, calling(app) as caller:
        request = message("late", "wait")
        while not work.runs["late"]:  # on a busy machine a deadline may pass before the server has the message
            assert (await caller.call("SendMessage", request, timeout=0.05)).status == "DEADLINE_EXCEEDED"
        work.go_on.set()
        again = await caller.call("SendMessage", request)
        assert again.value["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert again.all("idempotent-replayed") == ["true"]
        assert work.runs == {"late": 1}


async def test_a_call_whose_message_never_comes_ends_in_time(work: Work) -> None:
    async with serving(work.agent, limits={"request_timeout": 0.2}) as app, calling(app) as caller:
        for path in ("SendMessage", "SendStreamingMessage"):
            call = caller.channel.stream_stream(f"/{MODERN}/{path}")()
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call.read()
            assert refusal.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert refusal.value.details() == "the request did not arrive within 0.2 seconds"
        assert (await caller.call("SendMessage", message())).status == "OK"


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(120)])])
async def test_many_streams_on_one_connection_and_many_connections(work: Work, count: int) -> None:
    limits = {"caller_tasks": 2000, "tasks": 2000}
    async with serving(work.agent, limits=limits) as app, calling(app) as caller:
        tasks = len(asyncio.all_tasks())
        streams = [caller.stream("SendStreamingMessage", message(f"{number}", "wait")) for number in range(count)]
        for stream in streams:
            await stream.read()
        for number in range(8):
            async with calling(app) as other:
                streams.append(other.stream("SendStreamingMessage", message(f"other {number}", "wait")))
                await streams[-1].read()
                assert (await other.call("SendMessage", message())).status == "OK"
        work.go_on.set()
        for stream in streams[:count]:
            while await stream.read() is not grpc.aio.EOF:
                pass
        await work.check_nothing_left(app, tasks)


# What is refused


@pytest.mark.parametrize(
    ("service", "method", "hint"),
    [
        (MODERN, "SendMesage", f"there is no method '{MODERN}/SendMesage': did you mean '{MODERN}/SendMessage'?"),
        (OLD, "ListTasks", f"there is no method '{OLD}/ListTasks': did you mean '{MODERN}/ListTasks'?"),
        (OLD, "Chat", f"there is no method '{OLD}/Chat'"),
        ("foo.Bar", "Baz", "there is no method 'foo.Bar/Baz'"),
    ],
)
async def test_the_error_of_an_unknown_method_suggests_a_known_one(
    work: Work, service: str, method: str, hint: str
) -> None:
    async with serving(work.agent) as app, calling(app) as caller:
        outcome = await caller.call(method, service=service)
        assert (outcome.status, outcome.reason) == ("UNIMPLEMENTED", "METHOD_NOT_FOUND")
        assert outcome.text.endswith(hint)


async def test_an_error_arrives_however_long_it_is(work: Work) -> None:
    async with serving(work.agent) as app, calling(app) as caller:
        missing = await caller.call("GetTask", {"id": "x" * 50_000})
        assert (missing.status, missing.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
        assert (await caller.call("SubscribeToTask", {"id": "x" * 50_000})).reason == "TASK_NOT_FOUND"
        for text, status in (("params", "INVALID_ARGUMENT"), ("server", "UNAVAILABLE")):
            failed = await caller.call("SendMessage", message(text, "fail"))
            assert failed.status == status, failed
            assert failed.text.startswith("é世% \n\x01é世%")
            assert failed.text.endswith("…")
            assert failed.details
            assert sum(len(key) + len(value) * 4 / 3 for key, value in failed.metadata) < 6000
        unknown = await caller.call("x" * 20_000)
        assert unknown.status == "UNIMPLEMENTED"


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_that_is_too_large_is_refused_also_when_it_only_is_once_unpacked(
    work: Work, compression: Any
) -> None:
    async with serving(work.agent, limits={"body": 100_000}) as app, calling(app) as caller:
        refused = await caller.call("SendMessage", b"\0" * 30_000_000, compression=compression)
        assert refused.status == "RESOURCE_EXHAUSTED"
        assert "larger than max" in refused.text
        taken = await caller.call("SendMessage", message("x" * 50_000, "echo"), compression=compression)
        assert taken.value["task"]["artifacts"][0]["parts"] == [{"text": "x" * 50_000}]


async def test_hostile_messages_and_metadata(work: Work) -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    async with serving(work.agent, limits={"headers": 20_000, "values": 50_000}) as app, calling(app) as caller:
        for data in (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x07", b"\x0a" * 100_000, b"\x0b" * 10_000):
            assert (await caller.call("SendMessage", data)).status == "INVALID_ARGUMENT"
        assert (await caller.call("SendMessage", message(metadata=deep))).status == "INVALID_ARGUMENT"
        for odd in ("nan", "inf"):
            not_finite = encode(f"/{MODERN}/SendMessage", message(metadata={"n": 1.5})).replace(
                struct.pack("<d", 1.5), struct.pack("<d", float(odd))
            )
            assert (await caller.call("SendMessage", not_finite)).status == "INVALID_ARGUMENT"
        flat = message(metadata={"list": [0] * 60_000})
        assert (await caller.call("SendMessage", flat)).status in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
        large = await caller.call("SendMessage", message(), metadata=[("x-large", "x" * 50_000)])
        assert large.status == "RESOURCE_EXHAUSTED"
        odd = [("x-bin", b"\0\xff\x80"), ("x-twice", "a"), ("x-twice", "b"), ("authorization-bin", b"\xff")]
        assert (await caller.call("SendMessage", message(), metadata=odd)).status == "OK"
        assert app._shared.memory.used == 0


async def test_a_connection_that_is_not_grpc_is_closed_and_disturbs_no_other(work: Work) -> None:
    async with serving(work.agent, limits={"request_timeout": 0.3}) as app, calling(app) as caller:
        host, _, port = app.grpc_address.rpartition(":")
        dice = random.Random(1)
        hello = bytes.fromhex("16030100c8010000c40303") + dice.randbytes(192)
        for data in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            hello,
            dice.randbytes(5000),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            async with asyncio.timeout(SECONDS):
                await _until_closed(reader)
            writer.close()
        assert (await caller.call("SendMessage", message())).status == "OK"


async def _until_closed(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, "OK"),
        ({"content-type": "application/json"}, "any"),
        ({":method": "GET"}, "refused"),
        ({":path": "/%ff\x7f/é"}, "refused"),
        ({"grpc-encoding": "nonsense"}, "any"),
        ({"grpc-timeout": "nonsense"}, "any"),
        ({"te": ""}, "refused"),  # no page of a browser can send it
        ({"x-name": "h\xe9"}, "any"),
    ],
)
async def test_heads_that_no_client_sends(work: Work, changed: dict[str, str], status: str) -> None:
    async with serving(work.agent) as app, calling(app) as caller:
        got = await _raw_call(app.grpc_address, changed, b"")
        assert status == "any" or (b"message is required" in got) == (status == "OK"), got
        assert (await caller.call("SendMessage", message())).status == "OK"


async def test_a_path_that_is_no_text_ends_no_other_call(work: Work) -> None:
    async with serving(work.agent) as app, calling(app) as caller:
        stream = caller.stream("SendStreamingMessage", message("stay", "wait"))
        await stream.read()
        for _ in range(3 * SERVERS):
            await _raw_call(app.grpc_address, {":path": "/\xe9"}, b"")
        async with calling(app) as other:
            assert (await other.call("SendMessage", message())).status == "OK"
        assert (await caller.call("SendMessage", message())).status == "OK"
        work.go_on.set()
        events = b""
        while (event := await stream.read()) is not grpc.aio.EOF:
            events += event
        assert b"done" in events


async def _raw_call(address: str, changed: dict[str, str], data: bytes) -> bytes:
    """Make a call by hand, and give all frames of its stream until it ends."""
    head = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{MODERN}/SendMessage",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        **changed,
    }
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in head.items() if value)
    body = struct.pack(">BI", 0, len(data)) + data
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frames = _frame(4, 0, 0, b"") + _frame(1, 4, 1, block) + _frame(0, 1, 1, body)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames)
    got = b""
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                length, kind, flags, stream = struct.unpack(">IBBI", b"\0" + await reader.readexactly(9))
                payload = await reader.readexactly(length)
                got += payload if stream == 1 else b""
                if (stream == 1 and (flags & 1 or kind == 3)) or kind == 7:
                    return got
    except (asyncio.IncompleteReadError, ConnectionError):
        return got
    finally:
        writer.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(text: str) -> bytes:
    """A string literal of HPACK, without Huffman coding."""
    data = text.encode("latin-1")
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest = len(data) - 127
    assert rest < 128
    return bytes([127, rest]) + data
