"""Requests and responses over plain ASGI, with nothing between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from dragoman.engine.accept.quota import SERVER_MEMORY, Lease, busy
from dragoman.model.error import A2AError, ContentTypeNotSupported, InternalError, InvalidRequest, Overloaded
from dragoman.transports.limits import LARGE

if TYPE_CHECKING:
    from dragoman.engine.accept.quota import Memory
    from dragoman.transports.limits import Pace, Patience

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
_BODILESS = (204, 304)
# So much of a body must come before patience ends, and again as much for each time more.
PIECE = 65_536
# How many bytes of memory a byte of a body takes, at most: while it is read and encoded again; and as text whose
# characters take four bytes each, which one of them is enough for.
COPIES, WIDE = 2, 5
# How many bytes a value of JSON takes, about, beside those of its text; and what is not worth counting.
VALUE = 100
TRIFLE = 16_384
logger = logging.getLogger("dragoman.http")


class TooLarge(InvalidRequest):
    """The body is larger than this server takes."""


class TooSlow(InvalidRequest):
    """The request did not arrive in time. With `closes`, its connection is of no more use."""

    closes = True


class Disconnected(Exception):
    """The caller left before the request was whole."""


def segments_of(scope: AsgiScope) -> list[str]:
    """The words of the path below where the app is mounted; a trailing slash adds none.

    The path is cut before it is decoded: the id of a task may hold a slash or a percent sign.
    """
    path: str = scope["path"]
    words = path.split("/")
    raw: bytes = scope.get("raw_path") or b""
    if b"%" in raw:
        decoded = [unquote(word) for word in raw.partition(b"?")[0].decode("latin-1").split("/")]
        # Where they differ, something on the way has rewritten the path alone.
        if "/".join(decoded) == path:
            words = decoded
    root: list[str] = scope.get("root_path", "").rstrip("/").split("/")
    words = words[len(root) :] if words[: len(root)] == root else words[1:]
    while words and not words[-1]:
        words.pop()
    return words


class Request:
    """An HTTP request. `segments` are the words of its path, relative to the agent it is for."""

    def __init__(self, scope: AsgiScope, receive: Receive, segments: list[str]) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.segments = segments
        self.path = "/" + "/".join(segments)
        # By lower-case name; of several with one name, all, joined by commas.
        self.headers: dict[str, str] = _headers(scope["headers"])
        query = scope.get("query_string", b"")
        self.query: dict[str, str] = _query(query) if query else {}
        self.may_list = True
        # Whom it counts for, and how long its body may take; the app says so.
        self.caller = ""
        self.patience: Patience | None = None
        # What its memory is taken from, what it takes of that, and whose turn it is; the app says so too.
        self.memory: Memory | None = None
        self.lease: Lease | None = None
        self.pace: Pace | None = None
        # Where the agent stands below the app's root, as in `/agents/trip`.
        self.prefix = ""

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def json_body(self, limit: int) -> bytes:
        """Read the whole body, which must be declared as JSON; an empty one need not be declared.

        A page elsewhere can have a browser send a body of another type, or of none, without asking first.

        Raises:
            ContentTypeNotSupported: it is declared as something else, or is there and not declared at all.
            TooLarge, TooSlow, Disconnected: see `body`.
        """
        kind = self.content_type
        if kind:
            if kind != "application/json" and not kind.endswith("+json"):
                raise _not_json(f"is {kind}")
            return await self.body(limit)
        if self.headers.get("content-length", "0") != "0" or "transfer-encoding" in self.headers:
            raise _not_json("has no Content-Type")
        body = await self.body(limit)
        if body:  # later versions of HTTP need not announce one
            raise _not_json("has no Content-Type")
        return body

    async def body(self, limit: int) -> bytes:
        """Read the whole body.

        Raises:
            TooLarge: it has more than `limit` bytes.
            TooSlow: it does not arrive.
            Overloaded: there is no memory for it.
            Disconnected: the caller left.
        """
        length = self.headers.get("content-length", "")
        size = int(length) if length.isdecimal() else 0
        if size > limit:
            raise _too_large(limit)
        if COPIES * size > TRIFLE:
            self._take(COPIES * size)  # before it comes: there is room for it then, and nothing is sent in vain
        patience = self.patience
        if patience is None:
            return await self._whole(limit, length=size)
        task = patience.begin()
        try:
            return await self._whole(limit, length=size)
        except asyncio.CancelledError:
            if patience.gave_up(task):
                raise self._too_slow(patience.seconds) from None
            raise
        finally:
            patience.end(task)

    async def _whole(self, limit: int, *, length: int) -> bytes:
        chunks: list[bytes] = []
        size, wanted = 0, PIECE
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            if not message.get("more_body", False):
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)
            if not length:
                self._take(COPIES * size)
            if size >= wanted and self.patience is not None:
                wanted = size + PIECE
                self.patience.again()

    def charge(self, body: bytes, values: int) -> None:
        """Count what a body takes once it is decoded, with so many values. Raises Overloaded."""
        size = len(body)
        is_wide = size > PIECE and not (body.isascii() and b"\\u" not in body)
        size = size * (WIDE if is_wide else COPIES) + values * VALUE
        if size > TRIFLE or self.lease is not None:
            self._take(size)

    def covering(self, size: int, *, anyway: bool = False) -> AbstractContextManager[None]:
        """Count an answer of so many bytes while it is sent. Raises Overloaded when entered, unless it is due `anyway`.

        The answer to a message takes no more than is counted for that.
        """
        if size <= LARGE or self.memory is None:
            return nullcontext()
        self.lease = self.lease or Lease(self.memory, self.caller)
        return self.lease.covering(size, anyway=anyway)

    def _take(self, size: int) -> None:
        if self.memory is not None and (size > TRIFLE or self.lease is not None):
            self.lease = self.lease or Lease(self.memory, self.caller)
            self.lease.resize(size)

    def release(self) -> None:
        """It is answered: what it takes is free, unless its task goes on."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None

    async def turn(self) -> None:
        """Wait for a turn to do what takes long."""
        if self.pace is not None:
            await self.pace.turn()

    def _too_slow(self, seconds: float) -> TooSlow:
        error = TooSlow(f"the request did not arrive within {seconds:g} seconds", limit="patience")
        # Later versions of HTTP have no word for it: many requests share a connection there.
        error.closes = str(self.scope.get("http_version", "1.1")).startswith("1")
        return error


def _not_json(problem: str) -> ContentTypeNotSupported:
    return ContentTypeNotSupported(
        f"the body {problem}: send it with Content-Type: application/json", header="content-type"
    )


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", limit="body")


def _headers(raw: Iterable[Header]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _query(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = JSON,
    headers: Iterable[Header] = (),
    *,
    head: bool = False,
) -> None:
    """Send a whole response; to HEAD, only what is said about it. A large one is gone from memory when this is over."""
    about = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*(() if status in _BODILESS else about), *headers],
        }
    )
    body = b"" if head else body
    if len(body) > LARGE:
        await send_large(send, body)
        body = b""
    await send({"type": "http.response.body", "body": body})


async def send_large(send: Send, body: bytes) -> None:
    """Send a piece of a body that more follows, and wait until nearly all of it has been taken.

    A server takes all it is given at once, however slow the reader is; before the next piece it waits.
    """
    for start in range(0, len(body), PIECE):
        await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": True})


def status_of(error: A2AError) -> int:
    """The HTTP status of a JSON-RPC error: 200, except where HTTP itself has something to say."""
    if isinstance(error, (TooLarge, TooSlow, Overloaded)):
        return limit_status(error) or 429
    return {-31401: 401, -31403: 403}.get(error.code, 200)


def limit_status(error: A2AError) -> int | None:
    """The HTTP status of a request the server itself has no room or no time for, in every binding; else None."""
    if isinstance(error, TooLarge):
        return 413
    if isinstance(error, Overloaded) and error.metadata.get("limit") == SERVER_MEMORY:
        return 503
    return 408 if isinstance(error, TooSlow) else None


def failure_of(error: Exception) -> A2AError:
    """What a caller is told when a request broke; the log has the rest."""
    if isinstance(error, MemoryError):
        logger.error("there was no memory left for a request: set limits_memory lower")
        return busy("the server has no memory left", SERVER_MEMORY)
    logger.error("a request broke", exc_info=error)
    return InternalError()


def refusal_headers(error: A2AError) -> list[Header]:
    """What an error says in headers: when to come back, and that the connection ends."""
    found: list[Header] = []
    if "retryAfter" in error.metadata:
        found.append((b"retry-after", error.metadata["retryAfter"].encode()))
    if isinstance(error, TooSlow) and error.closes:
        found.append((b"connection", b"close"))
    return found
