"""A port with several servers of grpcio."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from dragoman.server.listen.grpc_port import GrpcPort

HOST = "127.0.0.1"
# More connections than there are servers on the port.
CALLERS = 40


class Meeting(grpc.GenericRpcHandler):
    """Answers when as many calls are there as are expected, or when they are let go."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._calls = 0
        self.begun = asyncio.Event()
        self.complete = asyncio.Event()

    def service(self, handler_call_details: Any) -> Any:
        async def meet(request: bytes, _: Any) -> bytes:
            self._calls += 1
            self.begun.set()
            if self._calls == self._expected:
                self.complete.set()
            await self.complete.wait()
            return request

        return grpc.unary_unary_rpc_method_handler(meet)


def _port(handler: grpc.GenericRpcHandler, number: int = 0) -> GrpcPort:
    return GrpcPort(HOST, number, None, [handler], [], shared=False)


async def _call(number: int, message: bytes) -> bytes:
    # Channels with the same options would share a connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"{HOST}:{number}", options=options) as channel:
        return await channel.unary_unary("/meeting/Meet")(message)


async def test_callers_on_any_connection_are_answered_and_can_meet() -> None:
    port = _port(Meeting(CALLERS))
    await port.start()
    messages = [b"%d" % number for number in range(CALLERS)]
    assert await asyncio.gather(*(_call(port.number, message) for message in messages)) == messages
    await port.stop(0)


async def test_calls_that_are_there_end_before_the_servers_do_and_new_ones_find_nobody() -> None:
    meeting = Meeting(2)
    port = _port(meeting)
    await port.start()
    first = asyncio.ensure_future(_call(port.number, b"first"))
    await meeting.begun.wait()
    stopping = asyncio.ensure_future(port.stop(30))
    await asyncio.sleep(0)
    meeting.complete.set()
    assert await first == b"first"
    await stopping
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _call(port.number, b"second")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_port_that_is_free_again_can_be_had() -> None:
    first = _port(Meeting(1))
    await first.start()
    await first.stop(0)
    second = _port(Meeting(1), first.number)
    await second.start()
    assert await _call(second.number, b"hello") == b"hello"
    await second.stop(0)
