"""One gRPC call: its request, its response, and what went wrong with either."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from typing import Any

from dragoman.model.error import CLIENT_CLOSED, CannotConnect, DragomanError, TimedOut
from dragoman.net.exchange import (
    MAX_RESPONSE,
    Chunks,
    Headers,
    HttpRequest,
    origin_of,
    read_limited,
    tls_error,
    too_large_error,
)
from dragoman.net.grpc.channel import GrpcChannel, Metadata
from dragoman.net.grpc.frames import MEDIA_TYPE, write_message, write_text, write_trailers
from dragoman.net.grpc.status import http_status

_MAX_DETAIL = 300
_NOT_CONNECTED = ("failed to connect", "errors resolving", "dns resolution failed", "empty address list")
_UNTRUSTED = re.compile(r"certificate_verify_failed|hostname verification|peer name", re.IGNORECASE)
_NO_TLS = re.compile(r"(?:tls|ssl) handshake failed", re.IGNORECASE)
_IS_PLAIN = re.compile(r"wrong_version_number|http_request", re.IGNORECASE)
_NO_HOST = re.compile(r"errors resolving|dns resolution failed|name not found", re.IGNORECASE)
# What grpcio itself says when the connection, or the server at its other end, went away. A server may say the same of
# what is behind it, but rarely begins with it.
_BROKEN = re.compile(
    r"(?:received )?rst_stream|stream removed|socket closed|connection (?:reset|aborted|timed out)|goaway|broken pipe"
    r"|(?:recv|send)msg|cancelling all calls|keepalive|ping timeout|transport",
    re.IGNORECASE,
)


class OutgoingCall:
    """One call from its request to the head of its response, and the errors of both."""

    def __init__(self, channel: GrpcChannel, request: HttpRequest, limit: int) -> None:
        self._channel = channel
        self.request = request
        self._where = origin_of(request.url)
        self._limit = limit
        self._rpc: Any = None
        self._has_ended = False

    async def perform(self, path: str, message: bytes, metadata: Metadata) -> GrpcResponse:
        """Make a call with one answer."""
        await self._connect()
        deadline = self.request.read_timeout
        try:
            self._rpc = self._channel.begin(path, message, metadata, streams=False, timeout=deadline)
            answer = await self._rpc
            headers = _headers_of(await self._rpc.initial_metadata())
            trailers = _headers_of(await self._rpc.trailing_metadata())
        except self._channel.grpc.aio.AioRpcError as error:
            return await self._failed(error)
        except BaseException:
            self._check_closed()
            await self.end()
            raise
        await self.end()
        frames = [write_message(answer), write_trailers({"grpc-status": "0", **trailers})]
        return GrpcResponse(self, 200, headers, frames)

    async def stream(self, path: str, message: bytes, metadata: Metadata) -> GrpcResponse:
        """Make a call whose answer is a stream, and wait for its first message."""
        await self._connect()
        try:
            self._rpc = self._channel.begin(path, message, metadata, streams=True, timeout=None)
            first = await self._read()
            headers = _headers_of(await self._rpc.initial_metadata())
        except self._channel.grpc.aio.AioRpcError as error:
            return await self._failed(error)
        except BaseException:
            await self.end()
            raise
        return GrpcResponse(self, 200, headers, [first], is_whole=self._has_ended)

    async def next_frame(self) -> bytes:
        """Return the next frame of a stream; the trailers are the last one. Raises CannotConnect when it breaks."""
        try:
            return await self._read()
        except self._channel.grpc.aio.AioRpcError as error:
            problem = self._problem(error)
            await self.end(retire=_needs_new_channel(problem))
            if problem is not None:
                raise problem from None
            return write_trailers(self._trailers_of(error))

    @property
    def has_ended(self) -> bool:
        """True when nothing more comes."""
        return self._has_ended

    async def end(self, *, retire: bool = False) -> None:
        """End the call, also in the middle of a stream."""
        if not self._has_ended:
            self._has_ended = True
            if self._rpc is not None:
                self._rpc.cancel()
            await self._channel.end(retire=retire)

    async def _read(self) -> bytes:
        timeout = self.request.read_timeout
        try:
            if timeout is None:
                message = await self._rpc.read()
            else:
                async with asyncio.timeout(timeout):
                    message = await self._rpc.read()
        except TimeoutError:
            await self.end(retire=True)
            raise TimedOut(f"{self._where} said nothing for {timeout:g} s") from None
        except asyncio.CancelledError:
            self._check_closed()
            raise
        if message is not self._channel.grpc.aio.EOF:
            return write_message(message)
        trailers = _headers_of(await self._rpc.trailing_metadata())
        await self.end()
        return write_trailers({"grpc-status": "0", **trailers})

    async def _connect(self) -> None:
        seconds = self.request.connect_timeout
        try:
            await self._channel.connect(seconds)
        except TimeoutError:
            await self.end(retire=True)
            raise TimedOut(f"{self._where} did not accept the connection within {seconds:g} s", arrived=False) from None
        except BaseException:
            self._check_closed()
            await self.end()
            raise
        self._check_closed()

    def _check_closed(self) -> None:
        task = asyncio.current_task()
        if self._channel.is_closed and (task is None or not task.cancelling()):
            self._has_ended = True
            raise CannotConnect(f"the client was closed during a call of {self._where}", reason=CLIENT_CLOSED) from None

    async def _failed(self, error: Any) -> GrpcResponse:
        """Return the response of a call that failed before its first message; raise what is no answer."""
        problem = self._problem(error)
        await self.end(retire=_needs_new_channel(problem))
        if problem is not None:
            raise problem from None
        headers = _headers_of(error.initial_metadata() or ()) | self._trailers_of(error)
        return GrpcResponse(self, http_status(error.code().name), Headers(headers), [], is_whole=True)

    def _problem(self, error: Any) -> DragomanError | None:
        """Return the error of a call that has got no answer; None for one that the server has answered."""
        where, name, detail = self._where, error.code().name, _one_line(error.details())
        has_trailers = bool(error.trailing_metadata())
        text = detail.lower()
        if name == "RESOURCE_EXHAUSTED" and "client: received message larger" in text:
            return too_large_error(self._limit)
        if name == "DEADLINE_EXCEEDED" and self.request.read_timeout is not None and not has_trailers:
            arrived = None if self._channel.is_ready else False
            return TimedOut(f"{where} said nothing for {self.request.read_timeout:g} s", arrived=arrived)
        if has_trailers:
            return None
        if self._channel.is_closed:
            return CannotConnect(f"the client was closed during a call of {where}", reason=CLIENT_CLOSED)
        # While there is a connection, the text is the server's own: it may pass on the trouble of one behind it.
        is_connected = self._channel.is_ready
        if name == "UNAVAILABLE" and text.startswith(_NOT_CONNECTED) and not is_connected:
            return _connect_error(where, detail)
        is_broken = bool(_BROKEN.match(text)) or (not is_connected and name in ("UNAVAILABLE", "CANCELLED"))
        if is_broken and name in ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN"):
            # What the server has sent before the break, if only metadata, shows that it was at work on the request.
            status = 200 if error.initial_metadata() else None
            return CannotConnect(
                f"the connection to {where} broke: {detail or name}", reason="CONNECTION_LOST", status=status
            )
        return None

    @staticmethod
    def _trailers_of(error: Any) -> dict[str, str]:
        trailers = _headers_of(error.trailing_metadata() or ())
        return {
            "grpc-status": str(error.code().value[0]),
            "grpc-message": write_text(error.details() or ""),
            **trailers,
        }


class GrpcResponse:
    """A response whose head has arrived."""

    __slots__ = ("_call", "_frames", "_is_whole", "headers", "status")

    def __init__(
        self, call: OutgoingCall, status: int, headers: Headers, frames: list[bytes], *, is_whole: bool = True
    ) -> None:
        self._call = call
        self._frames = frames[::-1]
        self._is_whole = is_whole
        self.status = status
        self.headers = headers
        headers.setdefault("content-type", MEDIA_TYPE)

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        try:
            return await read_limited(limit, self.chunks())
        finally:
            await self.close()

    def chunks(self) -> AsyncIterator[bytes]:
        return Chunks(self._next_chunk)

    async def close(self) -> None:
        await self._call.end()

    async def _next_chunk(self) -> bytes | None:
        if self._frames:
            return self._frames.pop()
        return None if self._is_whole or self._call.has_ended else await self._call.next_frame()


def _headers_of(metadata: Iterable[tuple[str, str | bytes]]) -> Headers:
    """Return metadata as headers: several values of a name joined with commas, bytes in Base64 as over HTTP/2."""
    values: dict[str, list[str]] = {}
    for name, value in metadata:
        values.setdefault(name, []).append(b64encode(value).decode() if isinstance(value, bytes) else value)
    return Headers((name, ",".join(texts)) for name, texts in values.items())


def _connect_error(where: str, detail: str) -> CannotConnect:
    why = detail.rpartition("last error: ")[2]
    if _NO_HOST.search(detail):
        return CannotConnect(f"{where} cannot be found: no such host", reason="NO_SUCH_HOST", arrived=False)
    if _UNTRUSTED.search(detail):
        return CannotConnect(f"the certificate of {where} is not trusted: {why}", reason="TLS", arrived=False)
    other = "grpc" if where.startswith("grpcs:") else "grpcs"
    elsewhere = f"{other}{where[where.index(':') :]}"
    if _IS_PLAIN.search(detail):
        return CannotConnect(f"{where} does not speak TLS: try {elsewhere}", arrived=False)
    if "missing selected alpn" in detail.lower():
        text = f"{where} speaks TLS and is no gRPC port: use its https:// address, or the port of --grpc"
        return CannotConnect(text, arrived=False)
    if "socket closed" in detail.lower():
        why = f"perhaps it speaks TLS: try {elsewhere}"
        if other == "grpc":
            why = "perhaps it wants a certificate of yours: auth=MutualTLS(…)"
        return CannotConnect(f"{where} closes the connection: {why}", arrived=False)
    if _NO_TLS.search(detail):
        return tls_error(where, why)
    if "connection refused" in detail.lower():
        why = "connection refused"
    return CannotConnect(f"nobody answers at {where}: {why}", arrived=False)


def _needs_new_channel(problem: DragomanError | None) -> bool:
    """True after a failure to connect, and for a connection that is open but silent."""
    return isinstance(problem, CannotConnect) and (problem.arrived is False or isinstance(problem, TimedOut))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:_MAX_DETAIL]
