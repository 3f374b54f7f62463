"""Serves HTTP+JSON: 1.x at the root, 0.3 under /v1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from dragoman.dialects.errors import http_error
from dragoman.dialects.negotiate import requested_version
from dragoman.dialects.table import REST, ROWS, VERSION_HEADER, VERSION_HEADER_RECEIVED, rest_row
from dragoman.engine.journal.follow import Stream
from dragoman.model.error import A2AError, InvalidParams, MethodNotFound, ParseError
from dragoman.model.operation import Operation
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.http import (
    A2A_JSON,
    JSON,
    REQUEST,
    Disconnected,
    error_headers,
    limit_status,
    respond,
    unexpected_error,
)
from dragoman.transports.jsonrpc.serve import is_enveloped_message
from dragoman.transports.limits import LARGE_BODY
from dragoman.transports.observed import count_refused
from dragoman.transports.sse import SseWriter, last_event_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.dialects.dialect import Dialect
    from dragoman.dialects.table import Row
    from dragoman.transports.endpoint import Endpoint
    from dragoman.transports.http import AsgiScope, Header, Receive, Request, Send
    from dragoman.transports.jsonrpc.serve import JsonRpc

# Reserved: first segments of other paths, which therefore cannot be tenants.
NOT_TENANTS = frozenset(
    {"a2a", "v1", "agents", "api", "console", ".well-known", "tasks", "extendedAgentCard", "healthz", "readyz"}
)


_BODILESS = ("GET", "DELETE")
_SENDS = (Operation.SEND, Operation.STREAM)
# Bodies that say nothing, where a body is optional; some clients encode the absent one as null.
_NOTHING = (b"", b"null")


class OperationRoute(NamedTuple):
    """An operation with the parameters and the tenant in its path."""

    operation: Operation
    params: dict[str, str]
    tenant: str = ""


def _build_routes(row: Row) -> dict[int, list[tuple[list[str], dict[str, Operation]]]]:
    """Build the routes of a version: by number of segments, the segments and the operation of each HTTP method."""
    by_template: dict[str, dict[str, Operation]] = {}
    for operation, path in row.paths.items():
        by_template.setdefault(path.template, {}).update(dict.fromkeys(path.verbs, operation))
    routes: dict[int, list[tuple[list[str], dict[str, Operation]]]] = {}
    for template, choices in by_template.items():
        words = template.split("/")[1:]
        routes.setdefault(len(words), []).append((words, choices))
    return routes


_ROUTES = {row.version: _build_routes(row) for row in ROWS.values() if row.binding == REST}


class MethodNotAllowed(MethodNotFound):
    """The path exists, but not with this HTTP method; `allow` lists those it has."""

    def __init__(self, allow: str) -> None:
        super().__init__(f"use {allow} here")
        self.allow = allow


def find_route(method: str, segments: Sequence[str], row: Row) -> OperationRoute:
    """Find the operation for a path, relative to the root of the binding.

    Raises:
        MethodNotFound: there is no such path.
        MethodNotAllowed: there is, with another HTTP method.
    """
    tenant, words = "", segments[len(row.prefix) :]
    if row.tenants and len(words) > 1 and words[0] not in NOT_TENANTS:
        tenant, words = words[0], words[1:]
    for pattern, choices in _ROUTES[row.version].get(len(words), ()):
        params = _match_path(pattern, words)
        if params is None:
            continue
        if method not in choices:
            raise MethodNotAllowed(", ".join(choices))
        return OperationRoute(choices[method], params, tenant)
    raise MethodNotFound("there is nothing at this path")


def _match_path(pattern: list[str], words: Sequence[str]) -> dict[str, str] | None:
    """Return the parameters in a path; None when it does not match the pattern."""
    params: dict[str, str] = {}
    for expected, word in zip(pattern, words, strict=True):
        if not expected.startswith("{"):
            if expected != word:
                return None
            continue
        name, _, verb = expected[1:].partition("}")
        params[name] = word.removesuffix(verb)
        if verb and params[name] in ("", word):
            return None
    return params


class Rest:
    """The ASGI app of one agent over HTTP+JSON. `rpc` answers the JSON-RPC requests that arrive at its paths."""

    def __init__(self, endpoint: Endpoint, rpc: JsonRpc) -> None:
        self._endpoint = endpoint
        self._rpc = rpc

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one admitted request; every error becomes a google.rpc.Status."""
        request: Request = scope[REQUEST]
        try:
            await self._serve(request, send)
        except A2AError as error:
            self._endpoint.log_denial(request, error)
            await self.send_error(request, send, error)
        except (Disconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - it is logged there
            await self.send_error(request, send, unexpected_error(error))

    async def send_error(self, request: Request, send: Send, error: A2AError, *, challenged: bool = False) -> None:
        """Send an error in the format of the version the path belongs to."""
        row = rest_row(request.segments)
        if METRICS.on or TRACING.on:
            count_refused(request, error, self._endpoint.agent, _operation_of(request, row), row.version)
        status, body = http_error(error, row.version)
        headers: list[Header] = error_headers(error)
        if (limited := limit_status(error)) is not None:
            status = body["error"]["code"] = limited
        if isinstance(error, MethodNotAllowed):
            status = body["error"]["code"] = 405
            headers.append((b"allow", error.allow.encode()))
        await respond(send, status, msgspec.json.encode(body), _media_type(request), headers)

    async def _serve(self, request: Request, send: Send) -> None:
        endpoint, row = self._endpoint, rest_row(request.segments)
        version = requested_version(request.headers.get(VERSION_HEADER_RECEIVED), request.query.get(VERSION_HEADER))
        route = find_route(request.method, request.segments, row)
        body = None
        if request.method not in _BODILESS:
            body = await request.json_body(endpoint.body_limit)
            # Nowhere else: an envelope has no place for what a path says, and rules for paths must hold.
            if route.operation in _SENDS and not route.tenant and is_enveloped_message(body):
                await self._rpc.answer(request, send, body)
                return
            await self._check_body(request, body)
        dialect = endpoint.dialects.for_row(row, version, request.headers.get("user-agent", ""), body)
        params = _read_params(request, dialect, route, body)
        del body
        call = endpoint.build_context(request, dialect, route.tenant or params.tenant or "")
        outcome = await endpoint.perform(route.operation, call, params, last_event_id(request.headers), request)
        dialect = endpoint.dialects.row_response_dialect(dialect, outcome.origin)
        headers = endpoint.headers(call, dialect, outcome)
        if not isinstance(outcome.result, Stream):
            if request.user is not None and request.method == "GET":
                # Credentials in a cookie do not keep a cache from serving the response to others.
                headers.append((b"cache-control", b"private, no-store"))
            body = dialect.write_result(route.operation, outcome.result)
            del outcome
            with request.covering(len(body), anyway=not route.operation.reads):
                await respond(send, 200, body, _media_type(request), headers)
            return

        def encode_error(problem: A2AError) -> bytes:
            return msgspec.json.encode(http_error(problem, dialect.version)[1])

        await SseWriter(dialect, encode_error, headers).write(outcome.result.batches, request, send)

    async def _check_body(self, request: Request, body: bytes) -> None:
        """Check the limits of a body. Raises InvalidParams or Overloaded."""
        is_large = len(body) > LARGE_BODY
        if is_large:
            await request.wait_for_turn()
        request.charge(body, self._endpoint.limits.check(body))
        if is_large:
            await request.wait_for_turn()


def _operation_of(request: Request, row: Row) -> Operation | None:
    try:
        return find_route(request.method, request.segments, row).operation
    except MethodNotFound:
        return None


def _read_params(request: Request, dialect: Dialect, route: OperationRoute, body: bytes | None) -> Any:
    if body is None:
        query = {name: value for name, value in request.query.items() if name != VERSION_HEADER}
        return dialect.read_values(route.operation, {**query, **route.params})
    if route.operation in _SENDS:
        return dialect.read_request(route.operation, body)
    return dialect.read_values(route.operation, {**_parse_object(body), **route.params})


def _parse_object(body: bytes) -> dict[str, Any]:
    if body.strip() in _NOTHING:
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ParseError("malformed JSON") from None
    except RecursionError:
        raise ParseError("the JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise InvalidParams("the body must be a JSON object")
    return cast("dict[str, Any]", value)


def _media_type(request: Request) -> bytes:
    accepted = request.headers.get("accept", "")
    # A client that sends plain JSON, or accepts it and not A2A's own type, gets plain JSON.
    plain = bool(accepted) and not any(kind in accepted for kind in ("a2a+json", "*/*", "application/*"))
    return JSON if plain or request.content_type == "application/json" else A2A_JSON
