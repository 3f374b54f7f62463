"""A program as an MCP server: its end is noticed, and what it says on stderr goes to the log."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from mcp.client.stdio import StdioServerParameters, stdio_client

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from dragoman.agents.mcp_tools.source import Source

logger = logging.getLogger("dragoman.mcp")
_REMEMBERED = 8
_LONGEST = 2000


class Murmur:
    """What a program says on stderr: to the log line by line, and the last of it kept to explain its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: deque[str] = deque(maxlen=_REMEMBERED)
        self._rest = b""
        self._reading = -1
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def last(self) -> str:
        """The last lines."""
        return "\n".join(self._last)

    def open(self) -> int:
        """Begin to listen. Gives the end for the program, which must be closed here once it has it."""
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read)
        return writing

    def close(self) -> None:
        """Listen no more."""
        if self._loop is not None and self._reading >= 0:
            self._read()
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1

    def _read(self) -> None:
        try:
            data = os.read(self._reading, 65536)
        except BlockingIOError:
            return
        if not data and self._loop is not None:  # it has closed it
            self._loop.remove_reader(self._reading)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST or not data:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:_LONGEST]
            if text:
                self._last.append(text)
                logger.debug("%s: %s", self._name, text)


@asynccontextmanager
async def program(source: Source, murmur: Murmur, ended: Callable[[], None]) -> AsyncGenerator[TransportStreams, None]:
    """Run a server's program; `ended` is called when it talks no more. Raises OSError when it cannot be started."""
    writing = murmur.open()
    with os.fdopen(writing, "w") as errors:
        parameters = StdioServerParameters(
            command=source.argv[0],
            args=list(source.argv[1:]),
            env=source.env or None,
            encoding_error_handler="replace",  # one stray byte is no reason to give the server up
        )
        try:
            async with stdio_client(parameters, errors) as (read, write):
                with suppress(OSError):
                    errors.close()  # the program has it; our copy would hide its end
                yield _Noticed(read, ended), write  # pyright: ignore[reportReturnType]
        finally:
            murmur.close()


class _Noticed:
    """A stream whose end somebody hears of."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Noticed:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ended()
        await self._stream.__aexit__(*error)

    def __aiter__(self) -> _Noticed:
        return self

    async def __anext__(self) -> Any:
        return await self._stream.__anext__()
