"""Serves gRPC, in the packages of 1.x and of 0.3.

An ASGI app: a body is one message, and the trailers have the status of the call. HTTP/2 itself, with its sockets and
frames, is in `server/listen/grpc.py`.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dragoman.dialects.negotiate import requested_version
from dragoman.dialects.table import GRPC_ROWS, VERSION_HEADER_RECEIVED
from dragoman.dialects.v03_proto.names import card_of_proto
from dragoman.model.error import A2AError, InvalidRequest, MethodNotFound, ServerError
from dragoman.model.operation import Operation
from dragoman.transports.endpoint import BindingApp, ParsedRequest
from dragoman.transports.grpc.codec import MalformedMessage
from dragoman.transports.grpc.method import METHODS
from dragoman.transports.grpc.status import OK, status_trailers
from dragoman.transports.http import error_headers
from dragoman.transports.limits import LARGE_BODY
from dragoman.transports.sse import last_event_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from dragoman.dialects.dialect import Dialect, Result
    from dragoman.dialects.negotiate import MethodMatch
    from dragoman.dialects.table import Row
    from dragoman.engine.journal.follow import Batch
    from dragoman.model.card import AgentCard
    from dragoman.model.record import Record
    from dragoman.transports.endpoint import Endpoint, Exchange
    from dragoman.transports.grpc.method import GrpcMethod
    from dragoman.transports.http import Header, Request, Send

CONTENT_TYPE: Header = (b"content-type", b"application/grpc")
# Response metadata of a stream: the id of its first event. Each event after it is one more.
FIRST_EVENT_ID = b"first-event-id"
_STOPPING = "the server is stopping: subscribe again when it is back"
_GAP = "the next events of this task were deleted: get the task, and subscribe again"

# The paths of the methods of one name.
_PATHS: dict[str, list[str]] = {}
for _path in METHODS:
    _PATHS.setdefault(_path.rpartition("/")[2], []).append(_path)


class GrpcAgent(NamedTuple):
    """An agent over gRPC. `card` builds the card that its caller may see; only 0.3 asks for it."""

    endpoint: Endpoint
    card: Callable[[Request], AgentCard]


def grpc_app(agents: Mapping[str, GrpcAgent]) -> BindingApp:
    """Return the ASGI app of all agents of a server, by name."""
    served = GrpcAgents(agents)
    return BindingApp(partial(GrpcExchange, served, served.default.endpoint))


class GrpcAgents:
    """The agents of a server over gRPC, the first one of which is the default.

    The others are chosen by the tenant of a request, as their cards say: `NAME`, or `NAME/TENANT`.
    """

    def __init__(self, agents: Mapping[str, GrpcAgent]) -> None:
        self._agents = agents
        self.default = next(iter(agents.values()))
        # With several agents, a call that cannot be read is nobody's.
        self.only_name = self.default.endpoint.agent if len(agents) == 1 else ""
        limits = self.default.endpoint.limits
        self.max_levels, self.max_values = limits.nesting, limits.values or sys.maxsize

    def choose_agent(self, values: dict[str, Any]) -> GrpcAgent:
        """Return the agent that the tenant of a request names, and take its name out of it; else the first one."""
        tenant = values.get("tenant")
        if not isinstance(tenant, str):
            return self.default
        name, _, rest = tenant.partition("/")
        agent = self._agents.get(name)
        if agent is None:
            return self.default
        values["tenant"] = rest
        return agent


class GrpcExchange(msgspec.Struct):
    """An `Exchange` of gRPC. `method` is that of its path, once it is received."""

    agents: GrpcAgents
    endpoint: Endpoint
    request: Request
    method: GrpcMethod | None = None
    version: str | None = None
    card: Callable[[Request], AgentCard] | None = None
    params_field: str = ""
    unwrap: Callable[[Exchange, bytes], Exchange] | None = None

    def receive(self) -> Awaitable[bytes]:
        path = self.request.scope["path"]
        self.method = METHODS.get(path)
        if self.method is None:
            raise _no_method(path)
        self.version = requested_version(self.request.headers.get(VERSION_HEADER_RECEIVED), None)
        return self.request.body(self.endpoint.body_limit)

    def parse(self, body: bytes) -> bytes:
        agents, method = self.agents, self.method
        assert method is not None
        try:
            values = method.codec.decode(method.request, body, levels=agents.max_levels, values=agents.max_values)
        except MalformedMessage as error:
            raise InvalidRequest(f"the message cannot be read: {error}") from None
        if method.operation is Operation.LIST and values.get("pageSize") == 0:
            del values["pageSize"]  # a2a-go sends it always, and means what 0 is to protobuf: none
        self.endpoint, self.card = agents.choose_agent(values)
        return msgspec.json.encode(values)

    def read(self, params: bytes | None) -> ParsedRequest:
        assert self.method is not None
        operation, row = self.method.operation, self.method.row
        user_agent = self.request.headers.get("user-agent", "")
        match = self.endpoint.dialects.match_row(operation, row, self.version, user_agent, params)
        parsed = ParsedRequest(match, match.dialect.read_request(operation, params or b"{}"))
        if operation is Operation.EXTENDED_CARD and not row.tenants and self.card is not None:
            # 0.3 has one method for both cards.
            parsed.card = self.card(self.request)
        return parsed

    def write_result(self, match: MethodMatch, dialect: Dialect, result: Result) -> bytes:
        assert self.method is not None
        return encode_result(self.method, dialect, result)

    async def respond(self, send: Send, body: bytes, headers: Sequence[Header]) -> None:
        await send(_start(headers))
        await send({"type": "http.response.body", "body": body, "more_body": False})
        await _end(send, OK)

    def stream(
        self, send: Send, batches: AsyncIterator[Batch], dialect: Dialect, headers: Sequence[Header], ids: Sequence[str]
    ) -> Awaitable[None]:
        assert self.method is not None
        return MessageWriter(self.method, dialect, headers).write(batches, self.request, send)

    def describe_refused(self) -> tuple[str, Operation | None, str]:
        path = self.request.scope["path"]
        method = METHODS.get(path)
        return self.agents.only_name, None if method is None else method.operation, _row_of(path).version

    async def send_error(self, send: Send, error: A2AError) -> None:
        # What is added to the headers, such as challenges, is sent with the trailers.
        await send({**_start([]), "trailers_only": True})
        await _end(send, [*status_trailers(error, _row_of(self.request.scope["path"]).version), *error_headers(error)])


class MessageWriter:
    """Writes one stream to one caller: each event is a message, in a dialect.

    An event has no id of its own. Its caller counts them from that of the first one, so none may be missing: where the
    journal has a gap, the stream ends, and its caller subscribes again.
    """

    def __init__(self, method: GrpcMethod, dialect: Dialect, headers: Sequence[Header]) -> None:
        self._codec = method.codec
        self._message = method.response
        self._writer = dialect.event_writer()
        self._cache_keys = ((method.codec, dialect, False), (method.codec, dialect, True))
        self._headers = headers

    async def write(self, batches: AsyncIterator[Batch], request: Request, send: Send) -> None:
        """Send the stream until it ends.

        Raises:
            A2AError: the stream cannot go on.
        """
        after = last_event_id(request.headers) or 0  # the id of the last event that the caller has
        async with aclosing(batches):  # pyright: ignore[reportArgumentType] - every stream is a generator
            next_id, ended = None, False
            async for records, ended in batches:
                if next_id is None:
                    # Without records, it is a heartbeat: the caller knows at once that the stream is open.
                    next_id = records[0].generation if records else after + 1
                    await send(_start([*self._headers, *([(FIRST_EVENT_ID, b"%d" % next_id)] if next_id else [])]))
                for record in records:
                    if record.generation != next_id:
                        raise ServerError(_GAP, retryAfter="1")
                    next_id += 1
                    await self._send(self._encode(record, ended and record is records[-1]), request, send)
            if not ended:
                raise ServerError(_STOPPING)
        await _end(send, OK)

    @staticmethod
    async def _send(message: bytes, request: Request, send: Send) -> None:
        if len(message) <= LARGE_BODY:
            await send({"type": "http.response.body", "body": message, "more_body": True})
            return
        with request.covering(len(message)):
            await send({"type": "http.response.body", "body": message, "more_body": True})

    def _encode(self, record: Record, last: bool) -> bytes:
        """Encode an event, once for all callers who get the same."""
        key = self._cache_keys[last]
        message = record.encodings.get(key)
        if message is None:
            event = msgspec.json.decode(self._writer.write_event(record, last=last))
            message = record.encodings[key] = self._codec.encode(self._message, event)
        return message


def encode_result(method: GrpcMethod, dialect: Dialect, result: Result) -> bytes:
    """Encode the result of a method.

    Raises:
        ValueError: it has a value that protobuf cannot hold.
    """
    values = msgspec.json.decode(dialect.write_result(method.operation, result))
    if method.operation is Operation.EXTENDED_CARD and not method.row.tenants:
        values = card_of_proto(values)
    return method.codec.encode(method.response, values)


def _start(headers: Sequence[Header]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": [CONTENT_TYPE, *headers], "trailers": True}


async def _end(send: Send, trailers: Sequence[Header]) -> None:
    await send({"type": "http.response.trailers", "headers": trailers, "more_trailers": False})


def _row_of(path: str) -> Row:
    """Return the row of the service that a path names; that of the newest when it names none."""
    service = path[1:].partition("/")[0]
    return next((row for row in GRPC_ROWS if row.service == service), GRPC_ROWS[0])


def _no_method(path: str) -> MethodNotFound:
    name = path.rpartition("/")[2]
    near = get_close_matches(name, _PATHS, n=1) if len(name) < 100 else []
    # There are as many services as packages, and most methods are in all of them.
    paths = [each for each in _PATHS[near[0]] if each.rpartition("/")[0] in path] or _PATHS[near[0]] if near else []
    return MethodNotFound(f"there is no method {path[1:]!r}{f': did you mean {paths[0][1:]!r}?' if paths else ''}")
