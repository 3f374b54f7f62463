"""One call of A2A in every version and binding: the request of each, and if they are given, its response and events.

The requests are those that our own client sends, made by the same code; responses are what our server would send. The
messages of gRPC are shown as ProtoJSON, which tools such as grpcurl take; the extra `grpc` is not needed for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dragoman.client.interface import Interface
from dragoman.client.message import build_send_request
from dragoman.dialects.negotiate import dialect_of
from dragoman.dialects.reading.checks import JsonLimits
from dragoman.dialects.reading.invalid import invalid_params, parse_error, quoted
from dragoman.dialects.table import GRPC, JSONRPC, REST, ROWS, VERSIONS, no_operation
from dragoman.model.error import A2AError, BadCard, BadResponse, InvalidParams, MethodNotFound
from dragoman.model.json import UNREADABLE
from dragoman.model.message import Message
from dragoman.model.operation import Operation, SendMessageRequest
from dragoman.model.record import Record
from dragoman.net.grpc.address import grpc_url
from dragoman.net.grpc.frames import read_frames
from dragoman.transports.grpc.method import METHODS
from dragoman.transports.grpc.serve import encode_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dragoman.console.access import Viewer
    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.dialects.table import Row
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Request
    from dragoman.net.exchange import HttpRequest
    from dragoman.transports.grpc.method import GrpcMethod
    from dragoman.transports.http import Request as HttpApiRequest

# Anybody may ask, and every version is written, which takes about a microsecond per value and version. So a call is
# small, and that of a stranger smaller.
MAX_BODY, MAX_STRANGERS_BODY = 262_144, 65_536
MAX_EVENTS = 200
_LIMITS = JsonLimits(nesting=100, values=20_000)
_STRANGERS_LIMITS = JsonLimits(nesting=100, values=2000)
# The newest version reads all that the canonical form has, generations included.
_CANONICAL: CallingDialect = dialect_of(VERSIONS[-1], JSONRPC)  # pyright: ignore[reportAssignmentType] - it has a row
_BINDINGS = (JSONRPC, REST, GRPC)
# By version, oldest first.
CALL_ROWS = tuple(ROWS[key] for version in VERSIONS for name in _BINDINGS if (key := (version, name)) in ROWS)
_NULL = Raw(b"null")
_JSON_RPC = b'{"jsonrpc":"2.0","id":"1","result":%b}'


class CallAddress(NamedTuple):
    """Where an agent is called: `url` over HTTP, and `grpc`, host and port, if that is served.

    Over gRPC, `tenant` tells the agents of a server apart; it is empty for the first one.
    """

    url: str
    grpc: str | None = None
    tenant: str = ""


def address_of(base: str, name: str, names: Sequence[str], grpc: str | None) -> CallAddress:
    """Return where the agent of that name is called on a server with this base URL and these agents."""
    return CallAddress(f"{base}/agents/{quote(name, safe='')}", grpc, "" if name == names[0] else name)


class CallsView:
    """`POST console/api/calls`. `agents` are the names, the first one first.

    `base` returns the URL of the server for a request, and `grpc` the address of gRPC for callers who use that URL;
    None if it is not served.
    """

    def __init__(
        self, agents: Sequence[str], base: Callable[[HttpApiRequest], str], grpc: Callable[[str], str | None]
    ) -> None:
        self._agents = agents
        self._base = base
        self._grpc = grpc

    async def show(self, viewer: Viewer, request: HttpApiRequest, segments: Sequence[str]) -> dict[str, Any]:
        """Return the call of the body in every version and binding.

        Raises:
            InvalidParams: a value is missing or wrong, or there are too many; the error names its field.
            ParseError: the body is not JSON.
            TooLarge: it has more than `MAX_BODY` bytes, or of who is not known more than `MAX_STRANGERS_BODY`.
        """
        is_stranger = viewer.user is None and not viewer.token
        body = await request.body(MAX_STRANGERS_BODY if is_stranger else MAX_BODY)
        await request.wait_for_turn()
        call = read_call(body, self._agents, _STRANGERS_LIMITS if is_stranger else _LIMITS)
        base = self._base(request)
        address = address_of(base, call.agent, self._agents, self._grpc(base))
        written: list[WireCall] = []
        for row in CALL_ROWS:
            # Each takes as long as a request of that size, and other callers are served in between.
            await request.wait_for_turn()
            written.append(write_call(call, row, address))
        return {"calls": written}


class CallToWrite(NamedTuple):
    """A call in the canonical form: what it asks, and if they are known, its result and the events of its stream."""

    agent: str
    operation: Operation
    request: Request
    result: Result = None
    has_result: bool = False
    events: tuple[StreamResponse, ...] = ()


class WireCall(Struct, rename="camel"):
    """A call in one version and binding. The bodies are as on the wire; those of gRPC are ProtoJSON.

    Over gRPC, `rpc` is the name of the method, and `headers` are metadata.

    `missing` says why this version cannot express it. `served` is False where this server does not listen.
    """

    version: str
    binding: str
    method: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    body: Any = None
    service: str | None = None
    rpc: str | None = None
    response: Any = None
    events: list[Any] | None = None
    missing: str | None = None
    served: bool = True


class _Body(Struct):
    agent: str
    operation: str
    params: Raw = Raw(b"{}")
    result: Raw = _NULL
    events: list[Raw] | None = None


_decode_body = msgspec.json.Decoder(_Body).decode


def read_call(body: bytes, agents: Sequence[str], limits: JsonLimits = _LIMITS) -> CallToWrite:
    """Read the body of a request for a call, whose parts have the form of the newest version.

    Raises:
        InvalidParams: a value is missing or wrong, or there are too many; the error names its field.
        ParseError: it is not JSON.
    """
    limits.check(body)
    try:
        given = _decode_body(body)
    except msgspec.ValidationError as error:
        raise invalid_params(error) from None
    except UNREADABLE as error:
        raise parse_error(error) from None
    if given.agent not in agents:
        raise InvalidParams(f"agent {quoted(given.agent)} is not here", field="agent")
    operation = _read_operation(given.operation)
    result = None if given.result == _NULL else given.result
    events = given.events or []
    if len(events) > MAX_EVENTS:
        raise InvalidParams(f"events has more than {MAX_EVENTS} entries", field="events")
    if operation.streams and result is not None:
        raise InvalidParams(f"result: {operation} has a stream of events, not a result", field="result")
    if events and not operation.streams:
        raise InvalidParams(f"events: {operation} has a result, not a stream of events", field="events")
    return CallToWrite(
        given.agent,
        operation,
        _read_params(operation, bytes(given.params)),
        None if result is None else _read_result(operation, bytes(result)),
        result is not None,
        tuple(_read_event(bytes(each), f"events[{index}]") for index, each in enumerate(events)),
    )


def _read_operation(name: str) -> Operation:
    try:
        return Operation(name)
    except ValueError:
        names = ", ".join(Operation)
        raise InvalidParams(f"operation cannot be {quoted(name)}: it is one of {names}", field="operation") from None


def _read_params(operation: Operation, params: bytes) -> Request:
    try:
        request = _CANONICAL.read_request(operation, params)
    except InvalidParams as error:
        field = f"params.{error.field}" if error.field else "params"
        raise InvalidParams(f"params: {error.message}", field=field) from None
    if isinstance(request, SendMessageRequest):
        # As a client chooses it for versions in which clients do.
        return replace(request, new_task_id=build_send_request(request.message, wait=True).new_task_id)
    return request


def _read_result(operation: Operation, data: bytes) -> Result:
    try:
        return _CANONICAL.read_result(operation, data)
    except (BadResponse, BadCard) as error:
        raise InvalidParams(f"result: {error}", field="result") from None


def _read_event(data: bytes, field: str) -> StreamResponse:
    try:
        return _CANONICAL.read_event(data)
    except BadResponse as error:
        raise InvalidParams(f"{field}: {error}", field=field) from None


# -- writing -----------------------------------------------------------------------------------------------------------


def write_call(call: CallToWrite, row: Row, address: CallAddress) -> WireCall:
    """Write a call in one version and binding."""
    written = WireCall(row.version, row.binding, served=row.binding != GRPC or address.grpc is not None)
    try:
        if row.binding == GRPC:
            _write_grpc(call, row, address, written)
        else:
            _write_http(call, row, address, written)
    except A2AError as error:
        written.missing = error.message
    return written


def _write_http(call: CallToWrite, row: Row, address: CallAddress, written: WireCall) -> None:
    dialect, http = _build_request(row, address.url + row.card_path, call.operation, call.request)
    written.method, written.url, written.headers = http.method, http.url, http.headers
    written.body = None if http.body is None else Raw(http.body)
    envelope = _JSON_RPC if row.binding == JSONRPC else b"%b"
    if call.has_result:
        written.response = Raw(envelope % dialect.write_result(call.operation, call.result))
    if call.events:
        written.events = [Raw(envelope % event) for event in _write_events(call, dialect)]


def _write_grpc(call: CallToWrite, row: Row, address: CallAddress, written: WireCall) -> None:
    request = call.request
    if address.tenant:
        if not row.tenants:
            what = f"A2A {row.version} has no tenants, by which gRPC tells the agents of a server apart"
            raise MethodNotFound(f"{what}: only the first agent can be called")
        # As the server reads it: the name of the agent, then the caller's own tenant.
        request = replace(request, tenant=f"{address.tenant}/{request.tenant}" if request.tenant else address.tenant)
    dialect, http = _build_request(row, _grpc_address(address), call.operation, request)
    path = urlsplit(http.url).path
    method = METHODS[path]
    written.method, written.url = http.method, http.url
    # Tools choose the content type themselves: it is not that of JSON.
    written.headers = {name: value for name, value in http.headers.items() if name != "Content-Type"}
    written.service, written.rpc = row.service, row.methods[call.operation]
    (frame,) = read_frames(http.body or b"")
    try:
        written.body = _to_json(method, method.request, frame.data)
        if call.has_result:
            written.response = _to_json(method, method.response, encode_result(method, dialect, call.result))
        if call.events:
            events = map(msgspec.json.decode, _write_events(call, dialect))
            messages = (method.codec.encode(method.response, event) for event in events)
            written.events = [_to_json(method, method.response, each) for each in messages]
    except ValueError as error:
        raise InvalidParams(f"this cannot be sent over gRPC: {error}") from None


def _grpc_address(address: CallAddress) -> str:
    place = urlsplit(address.url)
    try:
        return grpc_url(address.grpc or place.netloc.rpartition("@")[2], secure=place.scheme == "https")
    except ValueError as error:  # a caller chooses the Host, by which a server without gRPC is named
        raise InvalidParams(str(error)) from None


def _build_request(row: Row, url: str, operation: Operation, request: Request) -> tuple[CallingDialect, HttpRequest]:
    """Build the request as a client does. Raises A2AError when this version cannot express it."""
    dialect = dialect_of(row.version, row.binding)
    assert dialect is not None
    if operation not in row.methods:
        raise no_operation(operation, row.version)
    if request.tenant and not row.tenants:
        raise MethodNotFound(f"A2A {row.version} has no tenants")
    binding = Interface(url, row.binding, dialect, None).binding
    return dialect, binding.build_request(operation, request)


def _write_events(call: CallToWrite, dialect: CallingDialect) -> Iterator[bytes]:
    writer = dialect.event_writer()
    for number, event in enumerate(call.events, 1):
        payload = event.payload
        record = Record.of(getattr(payload, "generation", None) or number, payload)
        state = record.state
        ends = isinstance(payload, Message) or (state is not None and (state.final or state.waiting))
        yield writer.write_event(record, last=ends and number == len(call.events))


def _to_json(method: GrpcMethod, message: str, data: bytes) -> dict[str, Any]:
    return method.codec.decode(message, data)
