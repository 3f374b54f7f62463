"""Calling over JSON-RPC, in any version."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.dialects.errors import error_from_rpc
from dragoman.dialects.negotiate import method_of
from dragoman.model.error import BadResponse
from dragoman.net.exchange import HttpRequest
from dragoman.transports.calling import decoded, error_of, not_json, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.base import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Operation
    from dragoman.model.request import Request

_ANSWERS = "application/json"
_STREAMS = "text/event-stream, application/json"


class _Envelope(Struct):
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_NULL = b"null"


class JsonRpcBinding:
    """One JSON-RPC address in one version."""

    name = "JSONRPC"

    def __init__(self, url: str, dialect: CallingDialect) -> None:
        self.url = url
        self.dialect = dialect
        self._numbers = count(1)
        self._headers = {"Content-Type": "application/json"}
        if dialect.version.startswith("1."):
            self._headers["A2A-Version"] = dialect.version

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

    def result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        """See `Binding.result`."""
        try:
            envelope = _ENVELOPE.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # What is no envelope may still be JSON that says what is wrong.
            said: Any = decoded(body, status, headers, self.url)
            if status >= 400:
                raise error_of(status, headers, said, self.url) from None
            raise not_json(body, status, headers, self.url) from None
        self._raise(envelope, status, headers, body)
        result = envelope.result
        assert result is not UNSET
        return self.dialect.result_from(operation, bytes(result))

    def event(self, data: bytes) -> StreamResponse:
        """See `Binding.event`."""
        try:
            envelope = _ENVELOPE.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadResponse(f"an event of {self.url} is not JSON-RPC: {data[:200]!r}") from None
        self._raise(envelope, 200, {}, data)
        result = envelope.result
        assert result is not UNSET
        return self.dialect.event_from(bytes(result))

    def _raise(self, envelope: _Envelope, status: int, headers: Mapping[str, str], body: bytes) -> None:
        if envelope.error is not UNSET and bytes(envelope.error) != _NULL:
            raise told(error_from_rpc(msgspec.json.decode(envelope.error)), headers, self.url)
        if envelope.result is UNSET:
            if status >= 400:
                raise error_of(status, headers, msgspec.json.decode(body), self.url)
            raise BadResponse(f"{self.url} answered with neither a result nor an error: {body[:200]!r}")
