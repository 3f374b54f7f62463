"""Serves HTTP+JSON: 1.x at the root, 0.3 under /v1."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from dragoman.dialects.errors import http_error
from dragoman.dialects.negotiate import requested_version
from dragoman.dialects.table import REST, ROWS, VERSION_HEADER, VERSION_HEADER_RECEIVED, rest_row
from dragoman.model.error import A2AError, InvalidParams, MethodNotFound, ParseError
from dragoman.model.operation import Operation
from dragoman.transports.endpoint import BindingApp, ParsedRequest
from dragoman.transports.http import A2A_JSON, JSON, error_headers, limit_status, respond
from dragoman.transports.jsonrpc.serve import JsonRpcExchange, is_enveloped_message
from dragoman.transports.sse import SseWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from dragoman.dialects.dialect import Dialect, Result
    from dragoman.dialects.negotiate import MethodMatch
    from dragoman.dialects.table import Row
    from dragoman.engine.journal.follow import Batch
    from dragoman.transports.endpoint import Endpoint, Exchange
    from dragoman.transports.http import Header, Request, Send

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


def rest_app(endpoint: Endpoint) -> BindingApp:
    """Return the ASGI app of one agent."""
    return BindingApp(partial(RestExchange, endpoint))


class RestExchange(msgspec.Struct):
    """An `Exchange` of HTTP+JSON. The path says to which version it belongs."""

    endpoint: Endpoint
    request: Request
    version: str | None = None
    route: OperationRoute | None = None
    params_field: str = ""
    unwrap: Callable[[Exchange, bytes], Exchange] | None = None

    @property
    def row(self) -> Row:
        return rest_row(self.request.segments)

    def receive(self) -> Awaitable[bytes] | None:
        request = self.request
        self.version = requested_version(
            request.headers.get(VERSION_HEADER_RECEIVED), request.query.get(VERSION_HEADER)
        )
        self.route = route = find_route(request.method, request.segments, self.row)
        if request.method in _BODILESS:
            return None
        # Nowhere else: an envelope has no place for what a path says, and rules for paths must hold.
        if route.operation in _SENDS and not route.tenant:
            self.unwrap = _unwrap
        return request.json_body(self.endpoint.body_limit)

    def parse(self, body: bytes) -> bytes:
        return body

    def read(self, params: bytes | None) -> ParsedRequest:
        assert self.route is not None
        operation, path_params, tenant = self.route
        headers = self.request.headers
        match = self.endpoint.dialects.match_row(
            operation, self.row, self.version, headers.get("user-agent", ""), params
        )
        if params is None:
            query = {name: value for name, value in self.request.query.items() if name != VERSION_HEADER}
            parsed = match.dialect.read_values(operation, {**query, **path_params})
        elif operation in _SENDS:
            parsed = match.dialect.read_request(operation, params)
        else:
            parsed = match.dialect.read_values(operation, {**_parse_object(params), **path_params})
        return ParsedRequest(match, parsed, tenant)

    def write_result(self, match: MethodMatch, dialect: Dialect, result: Result) -> bytes:
        return dialect.write_result(match.operation, result)

    def respond(self, send: Send, body: bytes, headers: Sequence[Header]) -> Awaitable[None]:
        request = self.request
        if request.user is not None and request.method == "GET":
            # Credentials in a cookie do not keep a cache from serving the response to others.
            headers = (*headers, (b"cache-control", b"private, no-store"))
        return respond(send, 200, body, _media_type(request), headers)

    def stream(
        self, send: Send, batches: AsyncIterator[Batch], dialect: Dialect, headers: Sequence[Header], ids: Sequence[str]
    ) -> Awaitable[None]:
        def encode_error(error: A2AError) -> bytes:
            return msgspec.json.encode(http_error(error, dialect.version)[1])

        return SseWriter(dialect, encode_error, headers, artifacts=ids).write(batches, self.request, send)

    def describe_refused(self) -> tuple[str, Operation | None, str]:
        request, row = self.request, self.row
        try:
            operation = find_route(request.method, request.segments, row).operation
        except MethodNotFound:
            operation = None
        return self.endpoint.agent, operation, row.version

    async def send_error(self, send: Send, error: A2AError) -> None:
        status, body = http_error(error, self.row.version)
        headers = error_headers(error)
        if (limited := limit_status(error)) is not None:
            status = body["error"]["code"] = limited
        if isinstance(error, MethodNotAllowed):
            status = body["error"]["code"] = 405
            headers.append((b"allow", error.allow.encode()))
        await respond(send, status, msgspec.json.encode(body), _media_type(self.request), headers)


def _unwrap(exchange: Exchange, body: bytes) -> Exchange:
    return JsonRpcExchange(exchange.endpoint, None, exchange.request) if is_enveloped_message(body) else exchange


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
