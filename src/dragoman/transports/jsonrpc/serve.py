"""Serves JSON-RPC 2.0 over HTTP POST, for every version of A2A."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.dialects.errors import rpc_failure
from dragoman.dialects.negotiate import METHODS, SENDING_METHODS
from dragoman.dialects.table import VERSION_HEADER, VERSION_HEADER_RECEIVED, is_error_event, version_of_method
from dragoman.model.error import A2AError, InvalidParams, InvalidRequest, ParseError
from dragoman.model.json import UNREADABLE
from dragoman.transports.endpoint import BindingApp, ParsedRequest
from dragoman.transports.http import error_headers, respond, rpc_http_status
from dragoman.transports.sse import SseWriter, send_single_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from dragoman.dialects.dialect import Dialect, Result
    from dragoman.dialects.negotiate import MethodMatch
    from dragoman.engine.journal.follow import Batch
    from dragoman.model.operation import Operation
    from dragoman.transports.endpoint import Endpoint, Exchange
    from dragoman.transports.http import Header, Request, Send


class JsonRpcRequest(msgspec.Struct):
    """A JSON-RPC request. Its members are checked by hand, so that each mistake gets its own error."""

    jsonrpc: Any = None
    method: Any = None
    id: Any = None
    params: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(JsonRpcRequest).decode
# A response up to its result.
_BEFORE = b'{"jsonrpc":"2.0","id":%b,"result":'


def is_enveloped_message(body: bytes) -> bool:
    """True for a JSON-RPC request that sends a message: some clients post such to the paths of REST."""
    if b'"jsonrpc"' not in body or b'"method"' not in body:
        return False
    try:
        request = _decode(body)
    except UNREADABLE:
        return False
    return request.jsonrpc == "2.0" and isinstance(request.method, str) and request.method in SENDING_METHODS


def jsonrpc_app(endpoint: Endpoint, anonymous_error: Callable[[], A2AError] | None = None) -> BindingApp:
    """Return the ASGI app of one agent. With `anonymous_error`, that is the answer to every anonymous caller."""
    return BindingApp(partial(JsonRpcExchange, endpoint, anonymous_error))


class JsonRpcExchange(msgspec.Struct):
    """An `Exchange` of JSON-RPC. `id` and `method` are those of its request, once they are known."""

    endpoint: Endpoint
    anonymous_error: Callable[[], A2AError] | None
    request: Request
    id: Any = None
    method: Any = None
    params_field: str = "params"
    unwrap: Callable[[Exchange, bytes], Exchange] | None = None

    def receive(self) -> Awaitable[bytes]:
        return self.request.json_body(self.endpoint.body_limit)

    def parse(self, body: bytes) -> bytes:
        """Check the envelope, and return the raw parameters.

        Raises:
            ParseError: the body is not JSON.
            InvalidRequest: it is JSON, but not a request.
            InvalidParams: its parameters are no object.
        """
        try:
            request = _decode(body)
        except msgspec.ValidationError:
            what = "batches are not supported" if body.lstrip().startswith(b"[") else "the request must be an object"
            raise InvalidRequest(what) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ParseError("malformed JSON") from None
        except RecursionError:
            raise ParseError("the JSON is nested too deeply") from None
        if not isinstance(request.id, (str, int, float, type(None))) or isinstance(request.id, bool):
            raise InvalidRequest("invalid request id: it must be a string, a number or null")
        self.id, self.method = request.id, request.method
        if self.anonymous_error is not None and self.request.user is None:
            raise self.anonymous_error()
        if request.jsonrpc != "2.0":
            raise InvalidRequest('invalid jsonrpc version: "jsonrpc" must be "2.0"')
        if not isinstance(request.method, str) or not request.method:
            raise InvalidRequest('missing or invalid method: "method" must be a non-empty string')
        params = bytes(request.params).lstrip()
        if params and params != b"null" and not params.startswith(b"{"):
            raise InvalidParams("params must be an object", field="params")
        return params or b"{}"

    def read(self, params: bytes | None) -> ParsedRequest:
        endpoint, request = self.endpoint, self.request
        requested = request.headers.get(VERSION_HEADER_RECEIVED), request.query.get(VERSION_HEADER)
        match = endpoint.dialects.match_request(self.method, *requested)
        parsed = ParsedRequest(match, match.dialect.read_request(match.operation, params or b"{}"))
        plugin = endpoint.plugin_operations
        if plugin is not None and (match.by_origin or match.dialect is plugin.dialect):
            parsed.plugin = plugin
        return parsed

    def write_result(self, match: MethodMatch, dialect: Dialect, result: Result) -> bytes:
        return b"%b%b}" % (_BEFORE % msgspec.json.encode(self.id), dialect.write_result(match.operation, result))

    def respond(self, send: Send, body: bytes, headers: Sequence[Header]) -> Awaitable[None]:
        return respond(send, 200, body, headers=headers)

    def stream(
        self, send: Send, batches: AsyncIterator[Batch], dialect: Dialect, headers: Sequence[Header], ids: Sequence[str]
    ) -> Awaitable[None]:
        def encode_error(error: A2AError) -> bytes:
            return msgspec.json.encode(rpc_failure(error, dialect.version, self.id))

        before = _BEFORE % msgspec.json.encode(self.id)
        writer = SseWriter(dialect, encode_error, headers, before=before, after=b"}", artifacts=ids)
        return writer.write(batches, self.request, send)

    def describe_refused(self) -> tuple[str, Operation | None, str]:
        operation = METHODS.get(self.method) if isinstance(self.method, str) else None
        return self.endpoint.agent, operation, self._error_version()

    async def send_error(self, send: Send, error: A2AError) -> None:
        version = self._error_version()
        body = msgspec.json.encode(rpc_failure(error, version, self.id))
        status, headers = rpc_http_status(error), error_headers(error)
        if status == 200 and is_error_event(self.method, version):
            await send_single_event(send, body, headers)
        else:
            await respond(send, status, body, headers=headers)

    def _error_version(self) -> str:
        request = self.request
        requested = request.headers.get(VERSION_HEADER_RECEIVED) or request.query.get(VERSION_HEADER)
        return version_of_method(self.method, requested)
