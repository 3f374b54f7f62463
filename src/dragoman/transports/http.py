"""HTTP requests and responses over plain ASGI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

from dragoman.engine.quota import SERVER_MEMORY, Lease, overloaded
from dragoman.model.error import A2AError, ContentTypeNotSupported, InternalError, InvalidRequest, Overloaded
from dragoman.model.ids import MAX_ID_LENGTH
from dragoman.telemetry.log_context import fields_of_caller
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.transports.limits import LARGE_BODY

if TYPE_CHECKING:
    from dragoman.engine.quota import MemoryQuota
    from dragoman.model.user import User
    from dragoman.transports.limits import ArrivalTimer, CpuThrottle

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]
# The type of the ASGI scope of a gRPC call, which is otherwise that of an HTTP request.
GRPC_CALL = "grpc"
# Keys of the ASGI scope: the `Request`, and its user once authenticated.
REQUEST, USER = "dragoman.request", "dragoman.user"

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
_BODILESS = (204, 304)
# A body must make this much progress within each arrival timeout. Large bodies are sent in chunks of this size.
CHUNK_BYTES = 65_536
# Bytes of memory per byte of a body, at most. COPY_FACTOR: the body and the same encoded again. WIDE_FACTOR: the body
# and a str with four bytes per character; one wide character makes all of them that wide.
COPY_FACTOR, WIDE_FACTOR = 2, 5
# Bytes of memory per JSON value, about, beside its text; and the size below which nothing is counted.
VALUE_BYTES = 100
UNCOUNTED_BYTES = 16_384
logger = logging.getLogger("dragoman.http")


class TooLarge(InvalidRequest):
    """The body exceeds the limit of the server."""


class TooSlow(InvalidRequest):
    """The request did not arrive in time. `closes_connection` says that its connection cannot be reused."""

    def __init__(self, message: str, *, closes_connection: bool = True, **metadata: str) -> None:
        super().__init__(message, **metadata)
        self.closes_connection = closes_connection


class Disconnected(Exception):
    """The client disconnected before the request was complete."""


class SharedResources(NamedTuple):
    """What the requests of a server share: the memory quota, the CPU throttle and the arrival timer."""

    memory: MemoryQuota | None = None
    throttle: CpuThrottle | None = None
    arrival_timer: ArrivalTimer | None = None


_NO_RESOURCES = SharedResources()


def segments_of(scope: AsgiScope) -> list[str]:
    """Split the path below the mount point into segments; a trailing slash adds none.

    The path is split before it is decoded: the id of a task may hold a slash or a percent sign.
    """
    path: str = scope["path"]
    words = path.split("/")
    raw: bytes = scope.get("raw_path") or b""
    if b"%" in raw:
        decoded = [unquote(word) for word in raw.partition(b"?")[0].decode("latin-1").split("/")]
        # Where they differ, middleware has rewritten `path` only.
        if "/".join(decoded) == path:
            words = decoded
    root: list[str] = scope.get("root_path", "").rstrip("/").split("/")
    words = words[len(root) :] if words[: len(root)] == root else words[1:]
    while words and not words[-1]:
        words.pop()
    return words


class Request:
    """An HTTP request. `segments` are those of its path, relative to the agent it is for.

    `prefix` is the path of that agent below the app's root, as in `/agents/trip`. `shared` are the quotas it uses.
    `is_observed` is True when the error it ends with is in the metrics already.
    """

    # What is set only while telemetry is on.
    is_observed = False
    _log_fields: dict[str, str] | None = None

    def __init__(
        self,
        scope: AsgiScope,
        receive: Receive,
        segments: Sequence[str],
        prefix: str = "",
        shared: SharedResources = _NO_RESOURCES,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.segments = segments
        self.prefix = prefix
        self.path = f"/{'/'.join(segments)}" if segments else "/"
        # By lower-case name; repeated headers are joined by commas.
        self.headers: dict[str, str] = {}
        headers = self.headers
        repeated: dict[str, list[str]] | None = None
        for raw, value in scope["headers"]:
            name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
            if name in headers:
                repeated = {} if repeated is None else repeated
                repeated.setdefault(name, [headers[name]]).append(text)
            else:
                headers[name] = text
        if repeated is not None:  # joined once: strangers may send one name any number of times
            headers |= {name: ", ".join(texts) for name, texts in repeated.items()}
        query = scope.get("query_string")
        self.query: dict[str, str] = _parse_query(query) if query else {}
        self._shared = shared
        # Set by `admit`.
        self.user: User | None = None
        self.caller = ""
        self.may_list = True
        # Its share of the memory quota.
        self.lease: Lease | None = None
        # By `perf_counter`; 0 when it came while metrics were off.
        self.arrived = perf_counter() if METRICS.on else 0.0

    def admit(self, user: User | None, caller: str, may_list: bool) -> None:
        """Set the user, the caller whose quota it uses, and whether that user's tasks may be listed."""
        self.user, self.caller, self.may_list = user, caller, may_list

    def log_fields(self) -> dict[str, str]:
        """Return what lines of the log are about while it is handled."""
        return (self._log_fields or {}) | fields_of_caller(self.caller)

    def set_target(self, agent: str, params: object) -> None:
        """Set what lines of the log are about: the agent, and what the parameters name.

        The parameters themselves are not kept: a message may be large, and its stream open for days.
        """
        named: Any = getattr(params, "message", params)
        task_id, context_id = getattr(named, "task_id", None), getattr(named, "context_id", None)
        fields = {"agent": agent, "task": task_id or getattr(named, "id", None), "context": context_id}
        # Callers choose these, and they are not checked yet.
        self._log_fields = {
            name: value[:MAX_ID_LENGTH] for name, value in fields.items() if value and isinstance(value, str)
        }

    def mark_observed(self) -> None:
        """Note that the error it ends with is in the metrics already."""
        self.is_observed = True

    def age(self) -> float:
        """Return for how many seconds it has been here; 0 when it came while metrics were off."""
        return perf_counter() - self.arrived if self.arrived else 0.0

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def json_body(self, limit: int) -> bytes:
        """Read the whole body, which must have a JSON content type; an empty one may have any, or none.

        A page of another site can make a browser send other content types without a CORS preflight.

        Raises:
            ContentTypeNotSupported: it has another content type, or none.
            TooLarge, TooSlow, Overloaded, Disconnected: as `body`.
        """
        if self.headers.get("content-type") == "application/json":
            return await self.body(limit)
        kind = self.content_type
        if kind == "application/json" or kind.endswith("+json"):
            return await self.body(limit)
        try:
            return await self.body(0)
        except TooLarge:
            raise _not_json_error(f"is {kind}" if kind else "has no Content-Type") from None

    async def body(self, limit: int) -> bytes:
        """Read the whole body.

        Raises:
            TooLarge: it has more than `limit` bytes.
            TooSlow: it does not arrive in time.
            Overloaded: the memory quota is used up.
            Disconnected: the client disconnected.
        """
        length = self.headers.get("content-length", "")
        size = int(length) if length.isdecimal() else 0
        if size > limit:
            raise _too_large_error(limit)
        if COPY_FACTOR * size > UNCOUNTED_BYTES:
            self._reserve(COPY_FACTOR * size)  # before it is received, so that nothing is sent in vain
        # Most bodies have arrived completely: then the first step of `receive` returns, and no timer is needed.
        pending: Any = self.receive()
        if not isinstance(pending, CoroutineType):
            return await self._receive_timed(pending, limit, length=size)
        receive_coroutine = cast("CoroutineType[Any, Any, MutableMapping[str, Any]]", pending)
        try:
            waits_for = receive_coroutine.send(None)
        except StopIteration as done:
            message: MutableMapping[str, Any] = done.value
            if message["type"] == "http.request" and not message.get("more_body", False):
                body: bytes = message.get("body", b"")
                if len(body) > limit:
                    raise _too_large_error(limit) from None
                return body
            pending = _completed(message)
        else:
            pending = resume_coroutine(receive_coroutine, waits_for)
        return await self._receive_timed(pending, limit, length=size)

    async def _receive_timed(self, pending: Awaitable[MutableMapping[str, Any]], limit: int, *, length: int) -> bytes:
        """Receive the rest of the body with a timeout; `pending` is the next ASGI message."""
        timer = self._shared.arrival_timer
        if timer is None:
            return await self._receive_chunks(pending, limit, length=length)
        task = timer.start()
        try:
            return await self._receive_chunks(pending, limit, length=length)
        except asyncio.CancelledError:
            if timer.timed_out(task):
                raise self._too_slow_error(timer.seconds) from None
            raise
        finally:
            timer.stop(task)

    async def _receive_chunks(self, pending: Awaitable[MutableMapping[str, Any]], limit: int, *, length: int) -> bytes:
        chunks: list[bytes] = []
        size, next_restart = 0, CHUNK_BYTES
        while True:
            message = await pending
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise _too_large_error(limit)
            if not message.get("more_body", False):
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)
            if not length:
                self._reserve(COPY_FACTOR * size)
            if size >= next_restart and self._shared.arrival_timer is not None:
                next_restart = size + CHUNK_BYTES
                self._shared.arrival_timer.restart()
            pending = self.receive()

    def charge(self, body: bytes, values: int) -> None:
        """Reserve the memory of a body with that many JSON values once it is decoded. Raises Overloaded."""
        size = len(body)
        is_wide = size > CHUNK_BYTES and not (body.isascii() and b"\\u" not in body)
        size = size * (WIDE_FACTOR if is_wide else COPY_FACTOR) + values * VALUE_BYTES
        if size > UNCOUNTED_BYTES or self.lease is not None:
            self._reserve(size)

    def covering(self, size: int, *, anyway: bool = False) -> AbstractContextManager[None]:
        """Reserve memory for a response while it is sent. Entering raises Overloaded, unless it must be sent `anyway`.

        The response to a message uses what is already reserved for the message.
        """
        memory = self._shared.memory
        if size <= LARGE_BODY or memory is None:
            return nullcontext()
        self.lease = self.lease or Lease(memory, self.caller)
        return self.lease.covering(size, force=anyway)

    def _reserve(self, size: int) -> None:
        memory = self._shared.memory
        if memory is not None and (size > UNCOUNTED_BYTES or self.lease is not None):
            self.lease = self.lease or Lease(memory, self.caller)
            self.lease.resize(size)

    def release(self) -> None:
        """Release the memory of the request, except what its task still uses."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None

    async def wait_for_turn(self) -> None:
        """Wait for a turn to do CPU-bound work; return at once without a throttle."""
        if self._shared.throttle is not None:
            await self._shared.throttle.wait_for_turn()

    def _too_slow_error(self, seconds: float) -> TooSlow:
        # In HTTP/2 and later many requests share a connection, which stays open.
        closes = str(self.scope.get("http_version", "1.1")).startswith("1")
        return TooSlow(
            f"the request did not arrive within {seconds:g} seconds", limit="request_timeout", closes_connection=closes
        )


async def _completed(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return message


@coroutine
def resume_coroutine(started: CoroutineType[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine whose first step has yielded `waits_for`."""
    while True:
        try:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation is passed on to the coroutine
                waits_for = started.throw(error)
            else:
                waits_for = started.send(sent)
        except StopIteration as done:
            return done.value


def _not_json_error(problem: str) -> ContentTypeNotSupported:
    return ContentTypeNotSupported(
        f"the body {problem}: send it with Content-Type: application/json", header="content-type"
    )


def _too_large_error(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", limit="body")


def _parse_query(query_string: bytes) -> dict[str, str]:
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: ",".join(texts) for name, texts in values.items()}


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = JSON,
    headers: Iterable[Header] = (),
    *,
    head: bool = False,
) -> None:
    """Send a whole response; with `head`, without its body. A large body is sent in chunks with backpressure."""
    body_headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*(() if status in _BODILESS else body_headers), *headers],
        }
    )
    body = b"" if head else body
    if len(body) > LARGE_BODY:
        await send_large(send, body)
        body = b""
    await send({"type": "http.response.body", "body": body})


def with_headers(send: Send, more: Sequence[Header], status: int | None = None) -> Send:
    """Wrap `send` so that it adds headers to the response, or only to one with this status."""

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and status in (None, message["status"]):
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return send_with_headers


async def send_large(send: Send, body: bytes) -> None:
    """Send a part of a body in chunks, and wait until nearly all of it has been read.

    The ASGI server buffers any chunk at once, however slow the reader is; it waits before the next one.
    """
    for start in range(0, len(body), CHUNK_BYTES):
        await send({"type": "http.response.body", "body": body[start : start + CHUNK_BYTES], "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": True})


def rpc_http_status(error: A2AError) -> int:
    """Return the HTTP status of a JSON-RPC error: 200, except for authentication and limits."""
    if isinstance(error, (TooLarge, TooSlow, Overloaded)):
        return limit_status(error) or 429
    return {-31401: 401, -31403: 403}.get(error.code, 200)


def limit_status(error: A2AError) -> int | None:
    """Return the HTTP status, in every binding, of a request that a server limit refused; None for other errors."""
    if isinstance(error, TooLarge):
        return 413
    if isinstance(error, Overloaded) and error.metadata.get("limit") == SERVER_MEMORY:
        return 503
    return 408 if isinstance(error, TooSlow) else None


def unexpected_error(error: Exception) -> A2AError:
    """Log an unexpected exception, and return the error for the caller, which reveals nothing of it."""
    if isinstance(error, MemoryError):
        logger.error("there was no memory left for a request: set limits_memory lower")
        return overloaded("the server has no memory left", SERVER_MEMORY)
    logger.error("a request failed", exc_info=error)
    return InternalError()


def error_headers(error: A2AError) -> list[Header]:
    """Return the headers of an error response: Retry-After and Connection."""
    headers: list[Header] = []
    retry_after = error.metadata.get("retryAfter", "")
    if retry_after.isascii() and retry_after.isdecimal():  # an agent may raise errors with anything there
        headers.append((b"retry-after", retry_after.encode()))
    if isinstance(error, TooSlow) and error.closes_connection:
        headers.append((b"connection", b"close"))
    return headers
