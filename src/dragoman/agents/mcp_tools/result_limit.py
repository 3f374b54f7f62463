"""Bounds what an MCP server sends before the SDK makes objects of it on the event loop, which takes 7 µs for a part."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
import msgspec
from anyio import EndOfStream
from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from contextvars import Context
    from types import TracebackType

logger = logging.getLogger("dragoman.mcp")
MAX_ITEMS = 10_000
"""How many parts a result of a tool may have, and how many tools a page of their list."""
# A shorter line cannot have more items.
_MIN_BYTES = 2 * MAX_ITEMS


class _Result(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"[]")
    tools: msgspec.Raw = msgspec.Raw(b"[]")


class _Response(msgspec.Struct):
    id: int | str
    result: _Result


_decode = msgspec.json.Decoder(_Response).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def refuse_line(line: bytes, server: str) -> types.JSONRPCError | None:
    """Return the error in place of a response with too many items; None for any other line. Parses none of them."""
    if len(line) < _MIN_BYTES:
        return None
    try:
        response = _decode(line)
        counts = {name: len(_items(getattr(response.result, name))) for name in _Result.__struct_fields__}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the parser of the SDK says what is wrong
        return None
    return _refusal(response.id, counts, server)


def _refusal(id: types.RequestId, counts: dict[str, int], server: str) -> types.JSONRPCError | None:
    name, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if count <= MAX_ITEMS:
        return None
    what = f"a result whose `{name}` has {count} items, and {MAX_ITEMS} are the most that is read: let it return fewer"
    logger.warning("%s sent %s", server, what)
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=f"the MCP server `{server}` sent {what}")
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=error)


class BoundedStream:
    """The stream of messages that a session of the SDK reads, with an error in place of what has too many items."""

    def __init__(self, stream: Any, server: str) -> None:
        self._stream = stream
        self._server = server

    @property
    def last_context(self) -> Context | None:
        """The context of whoever sent the last message, which the SDK asks for."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises EndOfStream when there will be none."""
        received: SessionMessage | Exception = await self._stream.receive()
        if isinstance(received, Exception) or not isinstance(message := received.message, types.JSONRPCResponse):
            return received
        lists = {name: message.result.get(name) for name in _Result.__struct_fields__}
        counts = {name: len(cast("list[Any]", each)) for name, each in lists.items() if isinstance(each, list)}
        refusal = _refusal(message.id, counts, self._server)
        return received if refusal is None else SessionMessage(refusal, received.metadata)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> BoundedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(exc_type, exc_val, exc_tb)

    def __aiter__(self) -> BoundedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None
