"""Serves JSON-RPC 2.0 over HTTP POST, for every version of A2A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.dialects.errors import rpc_failure
from dragoman.dialects.negotiate import METHODS, SENDING_METHODS
from dragoman.dialects.table import VERSION_HEADER, VERSION_HEADER_RECEIVED, is_error_event, version_of_method
from dragoman.engine.journal.follow import Stream
from dragoman.model.error import A2AError, InvalidParams, InvalidRequest, ParseError
from dragoman.model.json import UNREADABLE
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.http import REQUEST, Disconnected, error_headers, respond, rpc_http_status, unexpected_error
from dragoman.transports.limits import LARGE_BODY
from dragoman.transports.observed import count_refused
from dragoman.transports.sse import SseWriter, last_event_id, send_single_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.transports.endpoint import Endpoint
    from dragoman.transports.http import AsgiScope, Receive, Request, Send


class JsonRpcRequest(msgspec.Struct):
    """A JSON-RPC request. Its members are checked by hand, so that each mistake gets its own error."""

    jsonrpc: Any = None
    method: Any = None
    id: Any = None
    params: msgspec.Raw = msgspec.Raw(b"")


_NONE = msgspec.Raw(b"")
_decode = msgspec.json.Decoder(JsonRpcRequest).decode
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


def parse_request(body: bytes) -> JsonRpcRequest:
    """Parse a request.

    Raises:
        ParseError: the body is not JSON.
        InvalidRequest: it is JSON, but not a request.
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
        request.id = None
        raise InvalidRequest("invalid request id: it must be a string, a number or null")
    return request


def is_enveloped_message(body: bytes) -> bool:
    """True for a JSON-RPC request that sends a message: some clients post such to the paths of REST."""
    if b'"jsonrpc"' not in body or b'"method"' not in body:
        return False
    try:
        request = _decode(body)
    except UNREADABLE:
        return False
    return request.jsonrpc == "2.0" and isinstance(request.method, str) and request.method in SENDING_METHODS


def _take_params(request: JsonRpcRequest) -> bytes:
    """Check the request and take its raw params out of it. Raises InvalidRequest or InvalidParams."""
    if request.jsonrpc != "2.0":
        raise InvalidRequest('invalid jsonrpc version: "jsonrpc" must be "2.0"')
    if not isinstance(request.method, str) or not request.method:
        raise InvalidRequest('missing or invalid method: "method" must be a non-empty string')
    params = bytes(request.params).lstrip()
    if params and params != b"null" and not params.startswith(b"{"):
        raise InvalidParams("params must be an object", field="params")
    request.params = _NONE
    return params or b"{}"


class JsonRpc:
    """The ASGI app of one agent over JSON-RPC."""

    def __init__(self, endpoint: Endpoint, anonymous_error: Callable[[], A2AError] | None = None) -> None:
        self._endpoint = endpoint
        self._anonymous_error = anonymous_error

    def for_anonymous(self, error: Callable[[], A2AError]) -> JsonRpc:
        """Return a copy that answers anonymous callers with that error, whatever they ask for."""
        return JsonRpc(self._endpoint, error)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one admitted request; every error becomes a JSON-RPC error."""
        await self.answer(scope[REQUEST], send)

    async def answer(self, request: Request, send: Send, body: bytes | None = None) -> None:
        """Serve one admitted request, whose body may have been read already."""
        request_id: Any = None
        method: Any = None
        try:
            if body is None:
                body = await request.json_body(self._endpoint.body_limit)
            if len(body) > LARGE_BODY:
                await request.wait_for_turn()
            rpc_request = parse_request(body)
            del body
            request_id = rpc_request.id
            method = rpc_request.method
            await self._serve(request, send, rpc_request)
        except A2AError as error:
            self._endpoint.log_denial(request, error)
            await self._send_error(request, send, error, request_id, method)
        except (Disconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - it is logged there
            await self._send_error(request, send, unexpected_error(error), request_id, method)

    async def send_error(self, request: Request, send: Send, error: A2AError, *, challenged: bool = False) -> None:
        """Send the error of a request that was not admitted; its body, and so its id, has not been read."""
        await self._send_error(request, send, error)

    async def _send_error(
        self, request: Request, send: Send, error: A2AError, request_id: Any = None, method: object = None
    ) -> None:
        requested = request.headers.get(VERSION_HEADER_RECEIVED) or request.query.get(VERSION_HEADER)
        version = version_of_method(method, requested)
        if METRICS.on or TRACING.on:
            operation = METHODS.get(method) if isinstance(method, str) else None
            count_refused(request, error, self._endpoint.agent, operation, version)
        body = msgspec.json.encode(rpc_failure(error, version, request_id))
        status, headers = rpc_http_status(error), error_headers(error)
        if status == 200 and is_error_event(method, version):
            await send_single_event(send, body, headers)
        else:
            await respond(send, status, body, headers=headers)

    async def _serve(self, request: Request, send: Send, rpc_request: JsonRpcRequest) -> None:
        endpoint = self._endpoint
        if self._anonymous_error is not None and request.user is None:
            raise self._anonymous_error()
        # This is the only reference to the text, so that its memory is free once it is decoded.
        raw = _take_params(rpc_request)
        is_large = len(raw) > LARGE_BODY
        if is_large:
            await request.wait_for_turn()
        request.charge(raw, endpoint.limits.check(raw, "params"))
        requested = request.headers.get(VERSION_HEADER_RECEIVED), request.query.get(VERSION_HEADER)
        match = endpoint.dialects.match_request(rpc_request.method, *requested)
        if is_large:
            await request.wait_for_turn()
        params = match.dialect.read_request(match.operation, raw)
        del raw
        if is_large:
            await request.wait_for_turn()
        call = endpoint.build_context(request, match.dialect, params.tenant or "")
        plugin_operations, headers = endpoint.plugin_operations, request.headers
        after = last_event_id(headers) if "last-event-id" in headers else None
        if plugin_operations is None or not (match.by_origin or match.dialect is plugin_operations.dialect):
            outcome = await endpoint.perform(match.operation, call, params, after, request)
        else:
            outcome = await plugin_operations.perform(endpoint, match, call, params, after, request)
        dialect = endpoint.dialects.response_dialect(match, outcome.origin) if match.by_origin else match.dialect
        extra_headers = endpoint.headers(call, dialect, outcome) if call.extensions or outcome.repeat else ()
        prefix = b'{"jsonrpc":"2.0","id":%b,"result":' % msgspec.json.encode(rpc_request.id)
        if not isinstance(outcome.result, Stream):
            result = outcome.result
            if is_large:
                await request.wait_for_turn()
            body = b"%b%b}" % (prefix, dialect.write_result(match.operation, result))
            del outcome, result
            if len(body) <= LARGE_BODY:
                await respond(send, 200, body, headers=extra_headers)
                return
            with request.covering(len(body), anyway=not match.operation.reads):
                await respond(send, 200, body, headers=extra_headers)
            return

        def encode_error(problem: A2AError) -> bytes:
            return msgspec.json.encode(rpc_failure(problem, dialect.version, rpc_request.id))

        stream = outcome.result
        artifacts: tuple[str, ...] = ()
        if dialect.row.counts_artifacts and stream.artifacts is not None:
            artifacts = await stream.artifacts()
        writer = SseWriter(dialect, encode_error, extra_headers, before=prefix, after=b"}", artifacts=artifacts)
        await writer.write(stream.batches, request, send)
