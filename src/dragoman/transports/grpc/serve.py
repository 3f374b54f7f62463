"""Serves gRPC, in the packages of 1.x and of 0.3.

An ASGI app: a body is one message, and the trailers have the status of the call. HTTP/2 itself, with its sockets and
frames, is in `server/listen/grpc.py`.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dragoman.dialects.negotiate import requested_version
from dragoman.dialects.table import GRPC_ROWS, VERSION_HEADER_RECEIVED
from dragoman.dialects.v03_proto.names import card_of_proto
from dragoman.engine.journal.follow import Stream
from dragoman.model.error import A2AError, InvalidRequest, MethodNotFound, ServerError
from dragoman.model.operation import Operation
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.grpc.codec import MalformedMessage
from dragoman.transports.grpc.method import METHODS
from dragoman.transports.grpc.status import OK, status_trailers
from dragoman.transports.http import REQUEST, Disconnected, error_headers, unexpected_error
from dragoman.transports.limits import LARGE_BODY
from dragoman.transports.observed import count_refused
from dragoman.transports.sse import last_event_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from dragoman.dialects.dialect import Dialect, Result
    from dragoman.dialects.table import Row
    from dragoman.engine.journal.follow import Batch
    from dragoman.model.card import AgentCard
    from dragoman.model.record import Record
    from dragoman.transports.endpoint import Endpoint
    from dragoman.transports.grpc.method import GrpcMethod
    from dragoman.transports.http import AsgiScope, Header, Receive, Request, Send

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


class Grpc:
    """The ASGI app of all agents of a server over gRPC, the first one of which is the default.

    The others are chosen by the tenant of a request, as their cards say: `NAME`, or `NAME/TENANT`.
    """

    def __init__(self, agents: Mapping[str, GrpcAgent]) -> None:
        self._agents = agents
        self._default = next(iter(agents.values()))
        # The name of the agent; with several, a call that cannot be read is nobody's.
        self._only = self._default.endpoint.agent if len(agents) == 1 else ""
        limits = self._default.endpoint.limits
        self._max_levels, self._max_values = limits.nesting, limits.values or sys.maxsize

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one admitted call; every error becomes the status of the call."""
        request: Request = scope[REQUEST]
        try:
            await self._serve(request, send)
        except A2AError as error:
            self._default.endpoint.log_denial(request, error)
            await self.send_error(request, send, error)
        except (Disconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - it is logged there
            await self.send_error(request, send, unexpected_error(error))

    async def send_error(self, request: Request, send: Send, error: A2AError, *, challenged: bool = False) -> None:
        """Send an error as the status of the call, with its details."""
        path = request.scope["path"]
        version = _row_of(path).version
        if METRICS.on or TRACING.on:
            method = METHODS.get(path)
            count_refused(request, error, self._only, None if method is None else method.operation, version)
        # What is added to the headers, such as challenges, is sent with the trailers.
        await send({**_start([]), "trailers_only": True})
        await _end(send, [*status_trailers(error, version), *error_headers(error)])

    async def _serve(self, request: Request, send: Send) -> None:
        method = METHODS.get(request.scope["path"])
        if method is None:
            raise _no_method(request.scope["path"])
        row, operation, codec = method.row, method.operation, method.codec
        version = requested_version(request.headers.get(VERSION_HEADER_RECEIVED), None)
        data = await request.body(self._default.endpoint.body_limit)
        if len(data) > LARGE_BODY:
            await request.wait_for_turn()
        try:
            values = codec.decode(method.request, data, levels=self._max_levels, values=self._max_values)
        except MalformedMessage as error:
            raise InvalidRequest(f"the message cannot be read: {error}") from None
        if operation is Operation.LIST and values.get("pageSize") == 0:
            del values["pageSize"]  # a2a-go sends it always, and means what 0 is to protobuf: none
        agent = self._choose(values)
        endpoint = agent.endpoint
        body = msgspec.json.encode(values)
        del data, values
        request.charge(body, endpoint.limits.check(body))
        dialect = endpoint.dialects.for_row(row, version, request.headers.get("user-agent", ""), body)
        params = dialect.read_request(operation, body)
        del body
        call = endpoint.build_context(request, dialect, params.tenant or "")
        if operation is Operation.EXTENDED_CARD and not row.tenants:
            # 0.3 has one method for both cards.
            await _respond(send, encode_result(method, dialect, agent.card(request)), [])
            return
        outcome = await endpoint.perform(operation, call, params, last_event_id(request.headers), request)
        dialect = endpoint.dialects.row_response_dialect(dialect, outcome.origin)
        headers = endpoint.headers(call, dialect, outcome) if call.extensions or outcome.repeat else []
        if isinstance(outcome.result, Stream):
            after = last_event_id(request.headers) or 0
            await MessageWriter(method, dialect, headers).write(outcome.result.batches, request, send, after)
            return
        message = encode_result(method, dialect, outcome.result)
        del outcome
        with request.covering(len(message), anyway=not operation.reads):
            await _respond(send, message, headers)

    def _choose(self, values: dict[str, Any]) -> GrpcAgent:
        """Return the agent that the tenant of a request names, and take its name out of it; else the first one."""
        tenant = values.get("tenant")
        if not isinstance(tenant, str):
            return self._default
        name, _, rest = tenant.partition("/")
        agent = self._agents.get(name)
        if agent is None:
            return self._default
        values["tenant"] = rest
        return agent


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

    async def write(self, batches: AsyncIterator[Batch], request: Request, send: Send, after: int) -> None:
        """Send the stream until it ends; `after` is the id of the last event that the caller has.

        Raises:
            A2AError: the stream cannot go on.
        """
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


async def _respond(send: Send, message: bytes, headers: Sequence[Header]) -> None:
    await send(_start(headers))
    await send({"type": "http.response.body", "body": message, "more_body": False})
    await _end(send, OK)


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
