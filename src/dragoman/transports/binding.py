"""The client side of a protocol binding: builds HTTP requests, reads responses and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dragoman.dialects.errors import error_from_http, named_error
from dragoman.model.error import (
    A2AError,
    AuthError,
    BadResponse,
    CannotConnect,
    DragomanError,
    InternalError,
    Overloaded,
    Unauthenticated,
    Unauthorized,
    as_received,
)
from dragoman.model.json import UNREADABLE
from dragoman.net.exchange import redact_url
from dragoman.transports.sse import SseReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Operation, Request
    from dragoman.net.exchange import HttpRequest

_PREVIEW_BYTES = 200
_GATEWAY_ERRORS = (502, 503, 504)
_EXPLAINED = (*_GATEWAY_ERRORS, 404, 405, 429)


class StreamReader(Protocol):
    """An incremental parser of a stream: takes chunks, returns events as (data, id); an id of 0 is none."""

    def feed(self, chunk: bytes) -> Iterable[tuple[bytes, int]]:
        """Take a chunk and return the events that are complete now.

        Raises:
            ResponseTooLarge: an event exceeds the limit.
            A2AError, AuthError: the stream ends with an error.
            CannotConnect: the stream says that the agent goes away.
        """
        ...

    @property
    def pending(self) -> bool:
        """True when the stream has stopped in the middle of an event."""
        ...


class Binding(Protocol):
    """One interface of an agent, from the client side. Pure: it does no I/O."""

    @property
    def dialect(self) -> CallingDialect:
        """The dialect of this interface."""
        ...

    @property
    def name(self) -> str:
        """The name of the binding on agent cards."""
        ...

    @property
    def url(self) -> str:
        """The URL of the interface."""
        ...

    def build_request(self, operation: Operation, request: Request, after: int | None = None) -> HttpRequest:
        """Build the HTTP request of an operation; `after` is the id of the last event that was received.

        Raises:
            MethodNotFound: this version has no such operation.
        """
        ...

    def switch_method(self, operation: Operation) -> bool:
        """Switch to another HTTP method after HTTP 405; True when there is one to try."""
        ...

    def build_probe(self, operation: Operation, body: bytes, *, received: bool) -> HttpRequest | None:
        """Build a request that shows how to send this body, or to read it if it was `received`; None without need.

        What was received for a streaming operation is the data of one event.
        """
        ...

    def read_probe(self, headers: Mapping[str, str], body: bytes) -> None:
        """Learn from the response to the probe."""
        ...

    def read_result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        """Read the result of an operation from a response.

        Raises:
            A2AError: the agent answered with an error.
            AuthError: the agent wants other credentials.
            BadResponse: the response is not A2A.
            BadCard: the extended card cannot be read.
            CannotConnect: a gateway says that the agent is not available.
        """
        ...

    def is_answer(self, headers: Mapping[str, str]) -> bool:
        """True when a body is of the binding's media type, and not a page of a gateway."""
        ...

    def is_stream(self, status: int, headers: Mapping[str, str]) -> bool:
        """True when the response to a streaming operation is a stream, and not an answer or an error."""
        ...

    def open_reader(self, headers: Mapping[str, str], limit: int) -> StreamReader:
        """Return the parser for a stream, of which one event may have `limit` bytes."""
        ...

    def read_event(self, data: bytes) -> StreamResponse:
        """Read one event of a stream.

        Raises:
            A2AError: the event is an error, which ends the stream.
            AuthError: the error is about credentials.
            BadResponse: the event is not A2A.
        """
        ...


class SseStreams:
    """What the bindings with JSON have in common: their streams are server-sent events."""

    def is_answer(self, headers: Mapping[str, str]) -> bool:
        """True for JSON."""
        return "json" in headers.get("Content-Type", "")

    def is_stream(self, status: int, headers: Mapping[str, str]) -> bool:
        """True for server-sent events."""
        return "text/event-stream" in headers.get("Content-Type", "")

    def open_reader(self, headers: Mapping[str, str], limit: int) -> StreamReader:
        """Return a parser of server-sent events."""
        return SseReader(limit)


def decode_json(body: bytes, status: int, headers: Mapping[str, str], url: str) -> Any:
    """Decode the JSON body of a response.

    Raises:
        BadResponse: it is not JSON; the text shows how it begins.
        CannotConnect: it is not JSON, and a gateway says that the agent is not available.
        AuthError, Overloaded: it is not JSON, and the status is 401 or 403, or 429.
    """
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        raise not_json_error(body, status, headers, url) from None


def not_json_error(body: bytes, status: int, headers: Mapping[str, str], url: str) -> DragomanError:
    """Build the error for a response that is not JSON, or not the JSON of this binding, by its status."""
    content_type = headers.get("Content-Type", "").partition(";")[0].strip() or "no Content-Type"
    what = f"HTTP {status}, {content_type}"
    if status in (401, 403):
        return auth_error(status, headers, url, preview(body) if _is_explanation(body, content_type) else "")
    if status in _EXPLAINED and _is_explanation(body, content_type):
        what = f"{what}: {preview(body)}"
    if status in _GATEWAY_ERRORS:
        return CannotConnect(f"{redact_url(url)} is not available: {what}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return as_received(Overloaded(f"{redact_url(url)} takes no more requests now: {what}"))
    if status in (404, 405):
        return BadResponse(f"there is no A2A at {redact_url(url)}: {what}", status=status)
    if not body:
        return BadResponse(f"{redact_url(url)} answered with nothing: {what}", status=status)
    if content_type.endswith("json") and status == 200:
        return BadResponse(
            f"{redact_url(url)} answered with broken JSON ({len(body)} bytes): {preview(body)}", status=status
        )
    return BadResponse(f"{redact_url(url)} does not answer in A2A: {what}: {preview(body)}", status=status)


def _is_explanation(body: bytes, content_type: str) -> bool:
    """True for text that says why; pages of HTML do not."""
    return content_type == "text/plain" and bool(body.strip())


def preview(body: bytes) -> str:
    """Return the beginning of a body, quoted for an error."""
    return repr(" ".join(body[:_PREVIEW_BYTES].decode("utf-8", "replace").split()))


def auth_error(status: int, headers: Mapping[str, str], url: str, message: str = "") -> AuthError:
    """Build the error for credentials that are missing, wrong or insufficient."""
    detail = message or headers.get("WWW-Authenticate", "")
    if status == 403:
        return AuthError(
            f"{redact_url(url)} does not allow this: {detail or 'HTTP 403'}", reason="PERMISSION_DENIED", status=403
        )
    return AuthError(f"{redact_url(url)} requires authentication: {detail or 'HTTP 401'}. Give auth=…", status=401)


def error_from_response(status: int, headers: Mapping[str, str], body: Any, url: str) -> DragomanError:
    """Build the error for an HTTP error status with a JSON body."""
    error = error_from_http(status, body)
    if status in _GATEWAY_ERRORS and (type(error) is InternalError or named_error(body) is None):
        # The JSON is from a gateway, not from the agent.
        text = f"{redact_url(url)} is not available: HTTP {status}: {error.message}"
        return CannotConnect(text, reason="UNAVAILABLE", status=status)
    return as_client_error(error, headers, url)


def as_client_error(error: A2AError, headers: Mapping[str, str], url: str) -> DragomanError:
    """Turn Unauthenticated and Unauthorized into AuthError; return any other error as it is."""
    if isinstance(error, Unauthenticated):
        return auth_error(401, headers, url, error.message)
    if isinstance(error, Unauthorized):
        return auth_error(403, headers, url, error.message)
    return error
