"""What a client needs from a binding: requests spelled, answers and events read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dragoman.dialects.errors import error_from_http
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
)
from dragoman.model.json import UNREADABLE
from dragoman.net.exchange import redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Operation, Request
    from dragoman.net.exchange import HttpRequest

_PREVIEW_BYTES = 200
_GATEWAY_ERRORS = (502, 503, 504)


class Binding(Protocol):
    """One interface of an agent, as a caller uses it. Pure: it carries nothing itself."""

    @property
    def dialect(self) -> CallingDialect:
        """What is spoken there."""
        ...

    @property
    def name(self) -> str:
        """The binding, as cards name it."""
        ...

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    def request(self, operation: Operation, request: Request, after: int | None = None) -> HttpRequest:
        """Spell a request; `after` is the last event a reader has seen.

        Raises:
            MethodNotFound: this version has no such operation.
        """
        ...

    def switch_method(self, operation: Operation) -> bool:
        """Hear that an operation is not to be had with its HTTP method: True when there is another to try."""
        ...

    def result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        """Read an answer.

        Raises:
            A2AError: the agent says no.
            AuthError: it wants other credentials.
            BadResponse: it is not A2A.
            CannotConnect: somebody on the way says that the agent is not there.
        """
        ...

    def event(self, data: bytes) -> StreamResponse:
        """Read one event of a stream.

        Raises:
            A2AError: the stream ends with an error.
            BadResponse: it is not A2A.
        """
        ...


def decode_json(body: bytes, status: int, headers: Mapping[str, str], url: str) -> Any:
    """The JSON of an answer.

    Raises:
        BadResponse: it is something else; the text shows how it begins.
        CannotConnect: a gateway says that nobody is behind it.
    """
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        raise not_json_error(body, status, headers, url) from None


def not_json_error(body: bytes, status: int, headers: Mapping[str, str], url: str) -> DragomanError:
    """The error for an answer that is no JSON."""
    content_type = headers.get("Content-Type", "").partition(";")[0].strip() or "nothing it names"
    what = f"HTTP {status}, {content_type}"
    if status in (401, 403):
        return auth_error(status, headers, url)
    if status in _GATEWAY_ERRORS:
        return CannotConnect(f"{redact_url(url)} is not available: {what}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return Overloaded(f"{redact_url(url)} takes no more requests now: {what}")
    if status in (404, 405):
        return BadResponse(f"there is no A2A at {redact_url(url)}: {what}", status=status)
    if not body:
        return BadResponse(f"{redact_url(url)} answered with nothing: {what}", status=status)
    if content_type.endswith("json") and status == 200:
        return BadResponse(
            f"{redact_url(url)} answered with broken JSON ({len(body)} bytes): {preview(body)}", status=status
        )
    return BadResponse(f"{redact_url(url)} does not answer in A2A: {what}: {preview(body)}", status=status)


def preview(body: bytes) -> str:
    """How an answer begins, for an error."""
    return repr(" ".join(body[:_PREVIEW_BYTES].decode("utf-8", "replace").split()))


def auth_error(status: int, headers: Mapping[str, str], url: str, message: str = "") -> AuthError:
    """The error for credentials that are missing, wrong or not enough."""
    detail = message or headers.get("WWW-Authenticate", "")
    if status == 403:
        return AuthError(
            f"{redact_url(url)} does not allow this: {detail or 'HTTP 403'}", reason="PERMISSION_DENIED", status=403
        )
    return AuthError(f"{redact_url(url)} wants to know who calls: {detail or 'HTTP 401'}. Give auth=…", status=401)


def error_from_response(status: int, headers: Mapping[str, str], body: Any, url: str) -> DragomanError:
    """The error behind an HTTP status with a JSON body."""
    error = error_from_http(status, body)
    if type(error) is InternalError and status in _GATEWAY_ERRORS:
        # A gateway that speaks JSON, and not the agent.
        text = f"{redact_url(url)} is not available: HTTP {status}: {error.message}"
        return CannotConnect(text, reason="UNAVAILABLE", status=status)
    return as_client_error(error, headers, url)


def as_client_error(error: A2AError, headers: Mapping[str, str], url: str) -> DragomanError:
    """An error of the protocol as callers get it: what is about credentials is an AuthError."""
    if isinstance(error, Unauthenticated):
        return auth_error(401, headers, url, error.message)
    if isinstance(error, Unauthorized):
        return auth_error(403, headers, url, error.message)
    return error
