"""The client side of JSON-RPC, for every version of A2A."""

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
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.transports.binding import (
    SseStreams,
    as_client_error,
    auth_error,
    decode_json,
    error_from_response,
    not_json_error,
    preview,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Request

_ACCEPT_JSON = "application/json"
_ACCEPT_STREAM = "text/event-stream, application/json"


class _JsonRpcResponse(Struct, rename="camel"):
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    error_details: Any = None


_decoder = msgspec.json.Decoder(_JsonRpcResponse)
_EMPTY = _JsonRpcResponse()
_NULL = b"null"


class JsonRpcBinding(SseStreams):
    """A JSON-RPC interface in one version of A2A."""

    name = JSONRPC

    def __init__(self, url: str, dialect: CallingDialect) -> None:
        self.url = url
        self.dialect = dialect
        self._request_ids = count(1)
        self._headers = {"Content-Type": "application/json", **dialect.row.headers}

    def build_request(self, operation: Operation, request: Request, after: int | None = None) -> HttpRequest:
        method = method_of(operation, self.dialect.version)
        params = self.dialect.write_params(operation, request)
        body = b'{"jsonrpc":"2.0","id":"%d","method":"%b","params":%b}' % (
            next(self._request_ids),
            method.encode(),
            params,
        )
        headers = {**self._headers, "Accept": _ACCEPT_STREAM if operation.streams else _ACCEPT_JSON}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        return HttpRequest("POST", self.url, headers, body, operation=operation.value)

    def switch_method(self, operation: Operation) -> bool:
        return False

    def build_probe(self, operation: Operation, body: bytes, *, received: bool) -> HttpRequest | None:
        return None

    def read_probe(self, headers: Mapping[str, str], body: bytes) -> None:
        """Nothing is probed."""

    def read_result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        try:
            response = _decoder.decode(body)
        except UNREADABLE:
            # Not a JSON-RPC response, but it may be JSON with an error of a gateway.
            body_json: Any = decode_json(body, status, headers, self.url)
            if status >= 400:
                raise error_from_response(status, headers, body_json, self.url) from None
            raise not_json_error(body, status, headers, self.url) from None
        if operation is Operation.DELETE_PUSH and status < 400 and response == _EMPTY:
            # Not every server sends "result": null.
            return None
        return self.dialect.read_result(operation, self._take_result(response, status, headers, body))

    def read_event(self, data: bytes) -> StreamResponse:
        try:
            response = _decoder.decode(data)
        except UNREADABLE:
            raise BadResponse(f"an event of {redact_url(self.url)} is not JSON-RPC: {preview(data)}") from None
        return self.dialect.read_event(self._take_result(response, 200, {}, data))

    def _take_result(self, response: _JsonRpcResponse, status: int, headers: Mapping[str, str], body: bytes) -> bytes:
        error, result = response.error, response.result
        if error is not UNSET and bytes(error) != _NULL:
            raise self._build_error(bytes(error), response.error_details, status, headers, body)
        if result is not UNSET and status < 400:
            return bytes(result)
        if status >= 400:
            raise error_from_response(status, headers, decode_json(body, status, headers, self.url), self.url)
        raise BadResponse(f"{redact_url(self.url)} answered with neither a result nor an error: {preview(body)}")

    def _build_error(
        self, error: bytes, details: Any, status: int, headers: Mapping[str, str], body: bytes
    ) -> DragomanError:
        error_json: Any = decode_json(error, status, headers, self.url)
        if status >= 400 and not _is_rpc_error(error_json):
            # Not a JSON-RPC error: a gateway whose JSON has an `error` member too.
            return error_from_response(status, headers, decode_json(body, status, headers, self.url), self.url)
        agent_error = error_from_rpc(error_json, details)
        if status in (401, 403):
            return auth_error(status, headers, self.url, agent_error.message)
        if status >= 400:
            agent_error.status = status
        return as_client_error(agent_error, headers, self.url)


def _is_rpc_error(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("code"), int)
