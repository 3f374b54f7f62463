"""Calling over JSON-RPC, in any version."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.dialects.errors import error_from_rpc
from dragoman.dialects.table import JSONRPC, method_of
from dragoman.model.error import BadResponse, DragomanError
from dragoman.model.json import UNREADABLE
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest, shown
from dragoman.transports.binding import decoded, error_of, not_json, refused, start_of, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Request

_ANSWERS = "application/json"
_STREAMS = "text/event-stream, application/json"


class _Envelope(Struct):
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_NOTHING = _Envelope()
_NULL = b"null"


class JsonRpcBinding:
    """One JSON-RPC address in one version."""

    name = JSONRPC

    def __init__(self, url: str, dialect: CallingDialect) -> None:
        self.url = url
        self.dialect = dialect
        self._numbers = count(1)
        self._headers = {"Content-Type": "application/json", **dialect.row.headers}

    def request(self, operation: Operation, request: Request, after: int | None = None) -> HttpRequest:
        """See `Binding.request`."""
        method = method_of(operation, self.dialect.version)
        params = self.dialect.params(operation, request)
        body = b'{"jsonrpc":"2.0","id":"%d","method":"%b","params":%b}' % (
            next(self._numbers),
            method.encode(),
            params,
        )
        headers = {**self._headers, "Accept": _STREAMS if operation.streams else _ANSWERS}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        return HttpRequest("POST", self.url, headers, body, operation=operation.value)

    def turn(self, operation: Operation) -> bool:
        """See `Binding.turn`."""
        return False

    def result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        """See `Binding.result`."""
        try:
            envelope = _ENVELOPE.decode(body)
        except UNREADABLE:
            # What is no envelope may still be JSON that says what is wrong.
            said: Any = decoded(body, status, headers, self.url)
            if status >= 400:
                raise error_of(status, headers, said, self.url) from None
            raise not_json(body, status, headers, self.url) from None
        if operation is Operation.DELETE_PUSH and status < 400 and envelope == _NOTHING:
            # Not every server says "result": null.
            return None
        return self.dialect.result_from(operation, self._result(envelope, status, headers, body))

    def event(self, data: bytes) -> StreamResponse:
        """See `Binding.event`."""
        try:
            envelope = _ENVELOPE.decode(data)
        except UNREADABLE:
            raise BadResponse(f"an event of {shown(self.url)} is not JSON-RPC: {start_of(data)}") from None
        return self.dialect.event_from(self._result(envelope, 200, {}, data))

    def _result(self, envelope: _Envelope, status: int, headers: Mapping[str, str], body: bytes) -> bytes:
        error, result = envelope.error, envelope.result
        if error is not UNSET and bytes(error) != _NULL:
            raise self._error(bytes(error), status, headers, body)
        if result is not UNSET and status < 400:
            return bytes(result)
        if status >= 400:
            raise error_of(status, headers, decoded(body, status, headers, self.url), self.url)
        raise BadResponse(f"{shown(self.url)} answered with neither a result nor an error: {start_of(body)}")

    def _error(self, error: bytes, status: int, headers: Mapping[str, str], body: bytes) -> DragomanError:
        said: Any = decoded(error, status, headers, self.url)
        if status >= 400 and not _is_error(said):
            # Not an error of JSON-RPC: somebody before the agent, who has a member of that name too.
            return error_of(status, headers, decoded(body, status, headers, self.url), self.url)
        found = error_from_rpc(said)
        if status in (401, 403):
            return refused(status, headers, self.url, found.message)
        if status >= 400:
            found.status = status
        return told(found, headers, self.url)


def _is_error(said: Any) -> bool:
    return isinstance(said, dict) and isinstance(cast("dict[str, Any]", said).get("code"), int)
