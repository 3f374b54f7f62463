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
from dragoman.net.exchange import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Operation, Request
    from dragoman.net.exchange import HttpRequest

_SHOWN = 200
_GONE = (502, 503, 504)


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

    def turn(self, operation: Operation) -> bool:
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


def decoded(body: bytes, status: int, headers: Mapping[str, str], url: str) -> Any:
    """The JSON of an answer.

    Raises:
        BadResponse: it is something else; the text shows how it begins.
        CannotConnect: a gateway says that nobody is behind it.
    """
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        raise not_json(body, status, headers, url) from None


def not_json(body: bytes, status: int, headers: Mapping[str, str], url: str) -> DragomanError:
    """The error for an answer that is no JSON."""
    kind = headers.get("Content-Type", "").partition(";")[0].strip() or "nothing it names"
    what = f"HTTP {status}, {kind}"
    if status in (401, 403):
        return refused(status, headers, url)
    if status in _GONE:
        return CannotConnect(f"{shown(url)} is not available: {what}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return Overloaded(f"{shown(url)} takes no more requests now: {what}")
    if status in (404, 405):
        return BadResponse(f"there is no A2A at {shown(url)}: {what}", status=status)
    if not body:
        return BadResponse(f"{shown(url)} answered with nothing: {what}", status=status)
    if kind.endswith("json") and status == 200:
        return BadResponse(
            f"{shown(url)} answered with broken JSON ({len(body)} bytes): {start_of(body)}", status=status
        )
    return BadResponse(f"{shown(url)} does not answer in A2A: {what}: {start_of(body)}", status=status)


def start_of(body: bytes) -> str:
    """How an answer begins, for an error."""
    return repr(" ".join(body[:_SHOWN].decode("utf-8", "replace").split()))


def refused(status: int, headers: Mapping[str, str], url: str, text: str = "") -> AuthError:
    """The error for credentials that are missing, wrong or not enough."""
    said = text or headers.get("WWW-Authenticate", "")
    if status == 403:
        return AuthError(
            f"{shown(url)} does not allow this: {said or 'HTTP 403'}", reason="PERMISSION_DENIED", status=403
        )
    return AuthError(f"{shown(url)} wants to know who calls: {said or 'HTTP 401'}. Give auth=…", status=401)


def error_of(status: int, headers: Mapping[str, str], body: Any, url: str) -> DragomanError:
    """The error behind an HTTP status with a JSON body."""
    found = error_from_http(status, body)
    if type(found) is InternalError and status in _GONE:
        # A gateway that speaks JSON, and not the agent.
        text = f"{shown(url)} is not available: HTTP {status}: {found.message}"
        return CannotConnect(text, reason="UNAVAILABLE", status=status)
    return told(found, headers, url)


def told(error: A2AError, headers: Mapping[str, str], url: str) -> DragomanError:
    """An error of the protocol as callers get it: what is about credentials is an AuthError."""
    if isinstance(error, Unauthenticated):
        return refused(401, headers, url, error.message)
    if isinstance(error, Unauthorized):
        return refused(403, headers, url, error.message)
    return error
