"""A pooler in front of PostgreSQL: clients get a session for one transaction each, or for as long as they stay."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

_SSL_REQUEST = 80877103
_PROTOCOL = 196608


class Upstream(NamedTuple):
    """A session of the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The type and the bytes of the next message."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


def _encode(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


class Pooler:
    """Passes messages on. With `shares`, a session goes back to the pool at the end of a transaction."""

    def __init__(self, url: str, *, shares: bool) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._startup = {"user": parts.username or "", "database": parts.path[1:]}
        self._shares = shares
        self._idle: list[Upstream] = []
        self._all: list[Upstream] = []
        self._greeting = b""
        self._clients = 0

    async def _session(self) -> Upstream:
        if self._idle:
            return self._idle.pop()
        upstream = Upstream(*await asyncio.open_connection(*self._address))
        self._all.append(upstream)
        words = b"".join(f"{name}\0{value}\0".encode() for name, value in self._startup.items())
        body = struct.pack("!i", _PROTOCOL) + words + b"\0"
        upstream.writer.write(struct.pack("!i", len(body) + 4) + body)
        greeting = b""
        while True:
            kind, message = await _message(upstream.reader)
            if kind == b"Z":
                break
            if kind != b"K":  # the key of the session is not the client's
                greeting += message
        self._greeting = greeting
        return upstream

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        held: list[Upstream] = []
        answers: set[asyncio.Task[None]] = set()
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if int.from_bytes((await reader.readexactly(size - 4))[:4], "big") != _SSL_REQUEST:
                    break
                writer.write(b"N")
            upstream = await self._session()
            self._clients += 1
            key = _encode(b"K", struct.pack("!ii", 1_000_000 + self._clients, 7))
            writer.write(self._greeting + key + _encode(b"Z", b"I"))
            self._idle.append(upstream)
            while True:
                kind, message = await _message(reader)
                if kind == b"X":
                    break
                if not held:
                    held.append(await self._session())
                    answer = asyncio.create_task(self._answer(held, writer))
                    answers.add(answer)
                    answer.add_done_callback(answers.discard)
                held[0].writer.write(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for answer in answers:
                answer.cancel()
            for upstream in held:
                upstream.writer.close()
            writer.close()

    async def _answer(self, held: list[Upstream], writer: asyncio.StreamWriter) -> None:
        """Pass answers on, until the end of a transaction if sessions are shared."""
        while True:
            kind, message = await _message(held[0].reader)
            if self._shares and kind == b"Z" and message[5:6] == b"I":
                self._idle.append(held.pop())
                writer.write(message)
                return
            writer.write(message)

    def close(self) -> None:
        """End all sessions."""
        for upstream in self._all:
            upstream.writer.close()


@asynccontextmanager
async def pooled(url: str, *, shares: bool) -> AsyncIterator[str]:
    """The URL of a pooler in front of a database."""
    pooler = Pooler(url, shares=shares)
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parts = urlsplit(url)
    try:
        yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
    finally:
        server.close()
        pooler.close()
