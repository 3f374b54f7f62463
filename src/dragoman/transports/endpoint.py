"""Runs operations on the engine, the same for every binding."""

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
from dragoman.model.error import MethodNotFound
from dragoman.model.operation import Operation
from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.observed import observe, record_failure, record_outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dragoman.dialects.dialect import CallingDialect, Dialect, Result
    from dragoman.dialects.negotiate import MethodMatch
    from dragoman.engine.journal.follow import OnEnd
    from dragoman.engine.operations import Service
    from dragoman.model.card import AgentCard, AgentExtension
    from dragoman.model.error import A2AError
    from dragoman.model.user import User
    from dragoman.transports.http import Header, Request
    from dragoman.transports.limits import DenialLog

    ExtendedCard = Callable[[Request, User | None], AgentCard]


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
        self._extensions = {extension.uri for extension in extensions}
        self._pushes: dict[Operation, Callable[[CallContext, Any], Awaitable[Result]]] = {
            Operation.CREATE_PUSH: service.create_push,
            Operation.GET_PUSH: service.get_push,
            Operation.LIST_PUSH: service.list_pushes,
            Operation.DELETE_PUSH: service.delete_push,
        }
        # Builds the card for an authenticated caller; None on a server without authentication.
        self._extended_card = extended_card

    def build_context(self, request: Request, dialect: Dialect, tenant: str = "") -> CallContext:
        """Build the call context of a request."""
        return CallContext(
            user=request.user,
            tenant=tenant,
            extensions=self._active_extensions(request) if self._extensions else _NO_EXTENSIONS,
            origin=dialect.origin,
            asks=dialect.asks,
            lists=request.may_list,
            closing="last" if dialect.appends else "whole",
        )

    def _active_extensions(self, request: Request) -> frozenset[str]:
        requested = ",".join(request.headers.get(name, "") for name in EXTENSIONS_HEADERS)
        return frozenset(uri.strip() for uri in requested.split(",")) & self._extensions

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
                return Outcome(self._extended_card(request, call.user), "")
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
