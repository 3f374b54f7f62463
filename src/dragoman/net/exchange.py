"""HTTP requests, responses and the client interface, independent of the implementation."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from dragoman.model.error import CannotConnect, ResponseTooLarge

# A larger response is garbage, or a file that should have been a link.
MAX_RESPONSE = 64 * 1024 * 1024
PORTS = {"http": 80, "https": 443}


class HttpRequest:
    """An outgoing HTTP request. `operation` is the A2A operation it is for; interceptors may change `headers`.

    `connect_timeout` limits connecting, `read_timeout` the time between two reads, each in seconds; None is no limit.
    """

    __slots__ = ("body", "connect_timeout", "headers", "method", "operation", "read_timeout", "url")

    def __init__(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        operation: str = "",
        connect_timeout: float | None = 10.0,
        read_timeout: float | None = None,
    ) -> None:
        self.method = method
        self.url = url
        self.headers = headers if headers is not None else {}
        self.body = body
        self.operation = operation
        self.connect_timeout = connect_timeout
        self.read_timeout = read_timeout

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} {redact_url(self.url)}>"


class HttpResponse(Protocol):
    """An HTTP response. Its body is read once: whole, or in chunks as they arrive."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are case-insensitive."""
        ...

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        """Read the whole body.

        Raises:
            ResponseTooLarge: it has more than `limit` bytes.
            BadResponse: it cannot be decompressed.
            CannotConnect: the connection broke or timed out.
        """
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives.

        Raises:
            BadResponse: it cannot be decompressed.
            CannotConnect: the connection broke or timed out.
        """
        ...

    async def close(self) -> None:
        """Release the connection, also in the middle of the body."""
        ...


class HttpClient(Protocol):
    """Sends HTTP requests. It follows no redirects, keeps no cookies and adds no credentials."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and wait for the response head. The caller reads or closes the response.

        Raises:
            CannotConnect: no response; `.arrived` is False when the server cannot have read the request.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Headers(dict[str, str]):
    """A dict of headers whose lookups ignore case. Keys must be stored in lower case."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or the default."""
        return super().get(key.lower(), default)

    def __getitem__(self, key: str) -> str:
        return super().__getitem__(key.lower())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and super().__contains__(key.lower())


class Chunks:
    """Iterates over a body; `next_chunk` returns None at the end.

    Not a generator, so nothing needs to be closed when its reader stops early.
    """

    __slots__ = ("_next",)

    def __init__(self, next_chunk: Callable[[], Awaitable[bytes | None]]) -> None:
        self._next = next_chunk

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._next()
        if chunk is None:
            raise StopAsyncIteration
        return chunk


async def read_limited(limit: int, chunks: AsyncIterable[bytes]) -> bytes:
    """Read a whole body. Raises ResponseTooLarge when it has more than `limit` bytes."""
    body: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise too_large_error(limit)
        body.append(chunk)
    return b"".join(body)


CallNext = Callable[[HttpRequest], Awaitable[HttpResponse]]
Interceptor = Callable[[HttpRequest, CallNext], Awaitable[HttpResponse]]


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL in canonical form: credentials belong to an origin."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:  # not a URL, so it has no origin in common with any other
        return f"nowhere:{url}"
    host = (parts.hostname or "").rstrip(".")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


_OTHER_SCHEME = {"http": "https", "https": "http", "grpc": "grpcs", "grpcs": "grpc"}


def tls_error(url: str, why: str) -> CannotConnect:
    """Build the error for a TLS handshake that failed; if the server speaks without TLS, it says what to try."""
    if "WRONG_VERSION_NUMBER" in why:
        return CannotConnect(f"no TLS with {redact_url(url)}: {other_scheme_hint(url)}", reason="TLS", arrived=False)
    return CannotConnect(f"no TLS with {redact_url(url)}: {why}", reason="TLS", arrived=False)


def other_scheme_hint(url: str) -> str:
    """Return what to try where a server speaks the scheme with TLS, or without it, that a URL does not name."""
    scheme, _, place = origin_of(url).partition("://")
    other = _OTHER_SCHEME.get(scheme, scheme)
    return f"this server speaks {other}: try {other}://{place}"


def redact_url(url: str) -> str:
    """Return a URL without its credentials, query and fragment, for errors and logs."""
    scheme, separator, rest = url.partition("://")
    if not separator:  # not a URL, but it may hold a password all the same
        scheme, rest = "", url
    location = rest.partition("?")[0].partition("#")[0]
    host, slash, path = location.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def is_loopback(url: str) -> bool:
    """True when a URL names this machine."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    return _is_loopback_host(host)


@lru_cache(256)
def _is_loopback_host(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def too_large_error(limit: int) -> ResponseTooLarge:
    """Build the error for a response that exceeds the limit."""
    return ResponseTooLarge(f"the answer is larger than {format_size(limit)}: nothing more of it is read", limit=limit)


def format_size(size: int) -> str:
    """Format a number of bytes for people."""
    return f"{size // 1024 // 1024} MB" if size >= 1024 * 1024 else f"{size} bytes"
