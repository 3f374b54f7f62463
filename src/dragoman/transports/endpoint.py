"""Answers requests and performs their operations, the same for every binding.

A binding implements `Exchange`, which says how it reads a request and how it writes a response, an event and an error.
All else is here: limits, turns of large bodies, operations, dialects of responses, refusals.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.negotiate import ADK_MARK, ADK_PROGRESS, Dialects, is_from_adk
from dragoman.dialects.reading.checks import JsonLimits
from dragoman.dialects.table import EXTENSIONS_HEADERS
from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.engine.call import CallContext
from dragoman.engine.journal.follow import Stream
from dragoman.model.error import A2AError, MethodNotFound
from dragoman.model.operation import Operation
from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.http import REQUEST, Disconnected, unexpected_error
from dragoman.transports.limits import LARGE_BODY
from dragoman.transports.observed import count_refused, observe, record_failure, record_outcome
from dragoman.transports.sse import last_event_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from dragoman.dialects.dialect import CallingDialect, Dialect, Result
    from dragoman.dialects.negotiate import MethodMatch
    from dragoman.engine.journal.follow import Batch, OnEnd
    from dragoman.engine.operations import Service
    from dragoman.model.card import AgentCard, AgentExtension
    from dragoman.model.user import User
    from dragoman.transports.http import AsgiScope, Header, Receive, Request, Send
    from dragoman.transports.limits import DenialLog

    ExtendedCard = Callable[[Request, User | None], AgentCard | None]


# The default limits on the JSON of a request.
JSON_LIMITS = JsonLimits()
_NO_EXTENSIONS: frozenset[str] = frozenset()
_SENDING = (Operation.SEND, Operation.STREAM)
_STREAMING = frozenset((Operation.STREAM, Operation.SUBSCRIBE))


class PluginOperations(Protocol):
    """The operations of a plug-in: replaces `Endpoint.perform` in its dialect, and for tasks that may be its own."""

    @property
    def dialect(self) -> CallingDialect:
        """The dialect of the plug-in."""
        ...

    @property
    def needs_user(self) -> bool:
        """True when the path `/a2a` requires an authenticated caller, on a server with authentication."""
        ...

    async def perform(
        self,
        endpoint: Endpoint,
        match: MethodMatch,
        call: CallContext,
        params: Any,
        after: int | None,
        request: Request | None,
    ) -> Outcome:
        """Perform an operation in place of `Endpoint.perform`. Raises A2AError."""
        ...


class Outcome(Struct, frozen=True):
    """The result or stream of an operation, the origin of its task, and whether the message was a repeat."""

    result: Result | Stream
    origin: str
    repeat: bool = False


class Endpoint:
    """One agent as the transports see it: performs operations with the limits and dialects of the server."""

    def __init__(
        self,
        service: Service,
        extensions: Sequence[AgentExtension],
        *,
        body_limit: int,
        blocking: bool,
        strict_files: bool = False,
        limits: JsonLimits = JSON_LIMITS,
        denial_log: DenialLog | None = None,
        plugin_operations: PluginOperations | None = None,
        extended_card: ExtendedCard | None = None,
    ) -> None:
        self.service = service
        self.agent = service.agent_name
        self.body_limit = body_limit
        self.limits = limits
        self._denial_log = denial_log
        self.dialects = Dialects(
            blocking_by_default=blocking,
            legacy=V01_RPC if plugin_operations is None else plugin_operations.dialect,
            strict_files=strict_files,
        )
        self.plugin_operations = plugin_operations
        self.extensions = frozenset(extension.uri for extension in extensions)
        self._pushes: dict[Operation, Callable[[CallContext, Any], Awaitable[Result]]] = {
            Operation.CREATE_PUSH: service.create_push,
            Operation.GET_PUSH: service.get_push,
            Operation.LIST_PUSH: service.list_pushes,
            Operation.DELETE_PUSH: service.delete_push,
        }
        # Builds the card for an authenticated caller; it returns None on a server without authentication.
        self._extended_card = extended_card

    def active_extensions(self, request: Request) -> frozenset[str]:
        """Return the extensions of the agent that a request activates."""
        requested = ",".join(request.headers.get(name, "") for name in EXTENSIONS_HEADERS)
        return frozenset(uri.strip() for uri in requested.split(",")) & self.extensions

    def log_denial(self, request: Request, error: A2AError) -> None:
        """Log a request that a limit refused."""
        if self._denial_log is not None:
            self._denial_log.log(request.caller, error)

    async def perform(
        self,
        operation: Operation,
        call: CallContext,
        params: Any,
        after: int | None,
        request: Request | None = None,
        on_end: OnEnd | None = None,
    ) -> Outcome:
        """Perform an operation; while telemetry is on, observe it. Raises A2AError.

        Whoever observes it already passes an `on_end`, which is called at the end of its stream.
        """
        started = 0.0
        if (METRICS.on or TRACING.on or LOG_CONTEXT.on) and on_end is None:
            started = (0.0 if request is None else request.arrived) or perf_counter()
            if TRACING.on or LOG_CONTEXT.on or operation in _STREAMING:
                return await observe(self, started, operation, call, params, after, request)
            # Without the coroutines around it that spans and streams need: they cost more than all the rest.
        service = self.service
        caller, lease = ("", None) if request is None else (request.caller, request.lease)
        if request is not None and operation in _SENDING and is_from_adk(params.message, request.headers):
            call = _for_adk(call, operation)
        try:
            if operation is Operation.SEND:
                outcome = Outcome(*await service.send(call, params, caller, lease))
            elif operation is Operation.GET:
                outcome = Outcome(*await service.get(call, params))
            elif operation is Operation.CANCEL:
                outcome = Outcome(*await service.cancel(call, params))
            elif operation is Operation.LIST:
                outcome = Outcome(await service.list(call, params), "")
            elif operation is Operation.STREAM:
                stream = await service.stream(call, params, caller, lease, on_end)
                outcome = Outcome(stream, stream.origin, stream.repeat)
            elif operation is Operation.SUBSCRIBE:
                stream = await service.subscribe(call, params, after, caller, on_end)
                outcome = Outcome(stream, stream.origin)
            else:
                outcome = await self._perform_rare(operation, call, params, request)
        except BaseException as error:
            if started:
                record_failure(started, self.agent, operation, call, error, request)
            raise
        return record_outcome(started, self.agent, operation, call, outcome) if started else outcome

    async def _perform_rare(
        self, operation: Operation, call: CallContext, params: Any, request: Request | None
    ) -> Outcome:
        if operation is Operation.EXTENDED_CARD:
            if self._extended_card is not None and request is not None:
                card = self._extended_card(request, call.user)
                if card is not None:
                    return Outcome(card, "")
            self.service.extended_card(call, params.tenant)
            raise MethodNotFound
        return Outcome(await self._pushes[operation](call, params), call.origin)

    def headers(self, call: CallContext, dialect: Dialect, outcome: Outcome) -> list[Header]:
        """Return the response headers: activated extensions, and whether the message was a repeat."""
        headers: list[Header] = []
        name = dialect.row.extensions_header
        if call.extensions and name:
            headers.append((name.encode(), ", ".join(sorted(call.extensions)).encode()))
        if outcome.repeat:
            headers.append((b"idempotent-replayed", b"true"))
        return headers


def _for_adk(call: CallContext, operation: Operation) -> CallContext:
    call = replace(call, closing="whole")
    if operation is Operation.STREAM:
        return replace(call, task_metadata=ADK_MARK, progress_metadata=ADK_PROGRESS)
    return call


# -- answering a request -----------------------------------------------------------------------------------------------


class ParsedRequest(Struct):
    """What a request asks for. The `tenant` of a path takes precedence over that of the parameters.

    A `plugin` performs the operation in place of the endpoint. A `card` is a result that takes no operation.
    """

    match: MethodMatch
    params: Any
    tenant: str = ""
    plugin: PluginOperations | None = None
    card: AgentCard | None = None


class Exchange(Protocol):
    """One request of a binding: how it is read, and how its response, its events and its error are written.

    `endpoint` is the agent that it is for; until it is parsed, perhaps another agent of the server. `params_field` is
    what errors call the parameters as a whole. `unwrap` takes an exchange and its body, which may be that of another
    binding, and returns the exchange that reads it; it is None where that cannot be.
    """

    endpoint: Endpoint
    request: Request
    params_field: str
    unwrap: Callable[[Exchange, bytes], Exchange] | None

    def receive(self) -> Awaitable[bytes] | None:
        """Read the head of the request, and return its body to be awaited; None when it has none. Raises A2AError."""
        ...

    def parse(self, body: bytes) -> bytes:
        """Return the JSON text of the parameters in a body. Raises A2AError."""
        ...

    def read(self, params: bytes | None) -> ParsedRequest:
        """Find operation and dialect, and read the parameters; they are None without a body. Raises A2AError."""
        ...

    def write_result(self, match: MethodMatch, dialect: Dialect, result: Result) -> bytes:
        """Return the body of the response. Raises ValueError when the binding cannot express it."""
        ...

    def respond(self, send: Send, body: bytes, headers: Sequence[Header]) -> Awaitable[None]:
        """Send the response."""
        ...

    def stream(
        self, send: Send, batches: AsyncIterator[Batch], dialect: Dialect, headers: Sequence[Header], ids: Sequence[str]
    ) -> Awaitable[None]:
        """Send a stream until it ends or its caller leaves; `ids` are the artifacts that its task has already.

        Raises:
            A2AError: it fails before its first event.
        """
        ...

    def describe_refused(self) -> tuple[str, Operation | None, str]:
        """Return agent and operation of a refused request, as far as they are known, and the version of its caller."""
        ...

    def send_error(self, send: Send, error: A2AError) -> Awaitable[None]:
        """Send an error in place of the response."""
        ...


class BindingApp:
    """The ASGI app of a binding. `exchange` returns the exchange of a request."""

    def __init__(self, exchange: Callable[[Request], Exchange]) -> None:
        self._exchange = exchange

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one admitted request."""
        return answer(self._exchange(scope[REQUEST]), send)

    def send_error(self, request: Request, send: Send, error: A2AError, *, challenged: bool = False) -> Awaitable[None]:
        """Send the error of a request that was not admitted; its body has not been read."""
        return _refuse(self._exchange(request), send, error)


async def answer(exchange: Exchange, send: Send) -> None:
    """Answer one admitted request; every error is sent to its caller."""
    request = exchange.request
    try:
        is_large, params = False, None
        receiving = exchange.receive()
        if receiving is not None:
            body = await receiving
            if exchange.unwrap is not None:
                exchange = exchange.unwrap(exchange, body)
            is_large = len(body) > LARGE_BODY
            if is_large:
                await request.wait_for_turn()
            params = exchange.parse(body)
            # What is not needed any more is not held while others take their turns.
            del body
            if is_large:
                await request.wait_for_turn()
            request.charge(params, exchange.endpoint.limits.check(params, exchange.params_field))
            if is_large:
                await request.wait_for_turn()
        parsed = exchange.read(params)
        del params
        if is_large:
            await request.wait_for_turn()
        endpoint, match = exchange.endpoint, parsed.match
        if parsed.card is not None:
            await exchange.respond(send, exchange.write_result(match, match.dialect, parsed.card), ())
            return
        call = CallContext(
            user=request.user,
            tenant=parsed.tenant or parsed.params.tenant or "",
            extensions=endpoint.active_extensions(request) if endpoint.extensions else _NO_EXTENSIONS,
            origin=match.dialect.origin,
            asks=match.dialect.asks,
            lists=request.may_list,
            closing="last" if match.dialect.appends else "whole",
        )
        after = last_event_id(request.headers) if "last-event-id" in request.headers else None
        performing = (
            endpoint.perform(match.operation, call, parsed.params, after, request)
            if parsed.plugin is None
            else parsed.plugin.perform(endpoint, match, call, parsed.params, after, request)
        )
        await _respond(exchange, send, match, call, await performing, is_large=is_large)
    except A2AError as error:
        exchange.endpoint.log_denial(request, error)
        await _refuse(exchange, send, error)
    except (Disconnected, OSError):
        return
    except Exception as error:  # noqa: BLE001 - it is logged there
        await _refuse(exchange, send, unexpected_error(error))


async def _refuse(exchange: Exchange, send: Send, error: A2AError) -> None:
    """Send the error of a request that has failed or was not admitted, and count it."""
    if METRICS.on or TRACING.on:
        count_refused(exchange.request, error, *exchange.describe_refused())
    await exchange.send_error(send, error)


async def _respond(
    exchange: Exchange, send: Send, match: MethodMatch, call: CallContext, outcome: Outcome, *, is_large: bool
) -> None:
    """Send the result of an operation, or its stream. Raises A2AError before anything is sent."""
    request, endpoint = exchange.request, exchange.endpoint
    dialect = endpoint.dialects.response_dialect(match, outcome.origin) if match.by_origin else match.dialect
    headers = endpoint.headers(call, dialect, outcome) if call.extensions or outcome.repeat else ()
    result = outcome.result
    if isinstance(result, Stream):
        read_ids = result.artifacts if dialect.row.counts_artifacts else None
        ids = () if read_ids is None else await read_ids()
        await exchange.stream(send, result.batches, dialect, headers, ids)
        return
    if is_large:
        await request.wait_for_turn()
    body = exchange.write_result(match, dialect, result)
    del outcome, result
    if len(body) <= LARGE_BODY:
        await exchange.respond(send, body, headers)
        return
    with request.covering(len(body), anyway=not match.operation.reads):
        await exchange.respond(send, body, headers)
