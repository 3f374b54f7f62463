"""A caller over gRPC who reads a stream when the test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import grpc.aio

from dragoman.dialects.table import GRPC, ROWS
from dragoman.model.operation import Operation
from dragoman.transports.grpc.method import METHODS

ROW = ROWS["1.0", GRPC]
# The windows of HTTP/2 stay as they are at first: else a connection whose reader was fast would let more be sent ahead.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


class StreamReader:
    """One stream, event by event, as JSON values."""

    def __init__(self, call: Any, method: Any) -> None:
        self._call = call
        self._method = method

    async def read(self) -> dict[str, Any] | None:
        """The next event, or None after the last."""
        message = await self._call.read()
        return None if message is grpc.aio.EOF else self._method.codec.decode(self._method.response, message)

    async def texts(self) -> AsyncIterator[str]:
        """The texts of the chunks that are still to come."""
        while (event := await self.read()) is not None:
            if "artifactUpdate" in event:
                yield event["artifactUpdate"]["artifact"]["parts"][0].get("text", "")

    def leave(self) -> None:
        """Cancel the call."""
        self._call.cancel()


class GrpcReader:
    """Calls skills of an agent on one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def stream(self, tool: str, **arguments: object) -> StreamReader:
        """Begin a stream, of which nothing is read yet."""
        path, method = _method(Operation.STREAM)
        return StreamReader(self._channel.unary_stream(path)(_message(method, tool, arguments)), method)

    def subscribe(self, task_id: str, timeout: float | None = None) -> StreamReader:
        """Follow a task; `timeout` is the deadline of the call, in seconds."""
        path, method = _method(Operation.SUBSCRIBE)
        request = method.codec.encode(method.request, {"id": task_id})
        return StreamReader(self._channel.unary_stream(path)(request, timeout=timeout), method)

    async def send(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Send a message, and return the task."""
        path, method = _method(Operation.SEND)
        answer = await self._channel.unary_unary(path)(_message(method, tool, arguments))
        return method.codec.decode(method.response, answer)["task"]

    async def working(self) -> int:
        """How many tasks are being worked on."""
        path, method = _method(Operation.LIST)
        request = method.codec.encode(method.request, {"status": "TASK_STATE_WORKING"})
        answer = await self._channel.unary_unary(path)(request)
        return method.codec.decode(method.response, answer).get("totalSize", 0)


@asynccontextmanager
async def grpc_reader(address: str) -> AsyncIterator[GrpcReader]:
    """Connect to a server."""
    async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
        yield GrpcReader(channel)


def _method(operation: Operation) -> tuple[str, Any]:
    path = f"/{ROW.service}/{ROW.methods[operation]}"
    return path, METHODS[path]


def _message(method: Any, tool: str, arguments: dict[str, object]) -> bytes:
    part = {"data": {"tool": tool, "arguments": arguments}}
    return method.codec.encode(
        method.request, {"message": {"messageId": f"{uuid4()}", "role": "ROLE_USER", "parts": [part]}}
    )
