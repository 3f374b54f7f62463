"""Requests and responses over plain ASGI, with nothing between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from dragoman.model.error import A2AError, ContentTypeNotSupported, InvalidRequest

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
_BODILESS = (204, 304)


class TooLarge(InvalidRequest):
    """The body is larger than this server takes."""


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

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def must_be_json(self) -> None:
        """Refuse a body that says it is something else. Raises ContentTypeNotSupported."""
        kind = self.content_type
        if kind and kind != "application/json" and not kind.endswith("+json"):
            raise ContentTypeNotSupported(
                f"the body is {kind}: send it with Content-Type: application/json", header="content-type"
            )

    async def body(self, limit: int) -> bytes:
        """Read the whole body.

        Raises:
            TooLarge: it has more than `limit` bytes.
            Disconnected: the caller left.
        """
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise TooLarge(f"the body is larger than {limit} bytes")
            if not message.get("more_body", False):
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)


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
    """Send a whole response; to HEAD, only what is said about it."""
    about = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*(() if status in _BODILESS else about), *headers],
        }
    )
    await send({"type": "http.response.body", "body": b"" if head else body})


def status_of(error: A2AError) -> int:
    """The HTTP status of a JSON-RPC error: 200, except where HTTP itself has something to say."""
    if isinstance(error, TooLarge):
        return 413
    return {-31401: 401, -31403: 403}.get(error.code, 200)
