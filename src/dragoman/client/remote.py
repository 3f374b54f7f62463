"""The connection to an agent over a network: resolves its card, picks the interface that works, retries where safe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from dragoman.auth.outbound.choose import credential_of
from dragoman.client.connection import LIMIT_HINT, ByteBudget, with_response
from dragoman.client.event import NumberedEvent, TaskAssembler
from dragoman.client.interface import interfaces_of, transport_name
from dragoman.client.streams.backoff import Backoff, Outage, SendBackoff, interrupted_task, may_send_again
from dragoman.client.streams.observed import observe_call
from dragoman.client.streams.response import ResponseEvents
from dragoman.dialects.table import GRPC
from dragoman.model.card import AgentCard
from dragoman.model.error import (
    A2AError,
    BadResponse,
    CannotConnect,
    ConfigError,
    DragomanError,
    MethodNotFound,
    Overloaded,
    ResponseTooLarge,
    ServerError,
    TaskGenerationMismatch,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
    as_received,
)
from dragoman.model.operation import GetTaskRequest, Operation, SendMessageRequest
from dragoman.net.exchange import MAX_RESPONSE, HttpRequest, origin_of, redact_url
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.binding import not_json_error

if TYPE_CHECKING:
    from dragoman.client.cards import CardReader
    from dragoman.client.connection import Sender, StreamEvent
    from dragoman.client.interface import Interface
    from dragoman.client.options import ClientOptions
    from dragoman.clock import Clock
    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Request, SubscribeToTaskRequest
    from dragoman.net.exchange import HttpResponse
    from dragoman.transports.binding import Binding

T = TypeVar("T")
R = TypeVar("R", bound="Request")


# The timeout of operations that do no work, such as reading a task. Sending and streaming have none by default.
QUERY_TIMEOUT = 60.0
_PROBE_TIMEOUT = 10.0
# How much is read of a body that is not of the binding.
_MAX_OTHER = 64 * 1024
_LONG_RUNNING = (Operation.SEND, Operation.STREAM, Operation.SUBSCRIBE)
_SENDS = (Operation.SEND, Operation.STREAM)
_NOT_FOUND = (404, 405)
_REFUSED = (MethodNotFound, UnsupportedOperation)
_TASK_OPERATIONS = (Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE)


class RemoteConnection:
    """A `Connection` to an agent over HTTP or gRPC. `target` is a URL or a card."""

    def __init__(
        self,
        target: str | AgentCard,
        sender: Sender,
        cards: CardReader,
        clock: Clock,
        options: ClientOptions,
    ) -> None:
        self.clock = clock
        self.reconnect = options.reconnect
        # One response, or one event of a stream, must fit into memory, whatever the limit of a task is.
        self._max_bytes = MAX_RESPONSE if options.limit is None else options.limit
        self._target = target
        self._sender = sender
        self._cards = cards
        self._protocol = options.protocol
        self._transport = options.transport
        self._connect_timeout = options.connect_timeout
        self._idle_timeout = idle = options.idle_timeout
        self._query_timeout = QUERY_TIMEOUT if idle is None else min(QUERY_TIMEOUT, idle)
        self._retries = options.retries
        self.cached_card: AgentCard | None = target if isinstance(target, AgentCard) else None
        self._interfaces: list[Interface] = []
        self._choosing: asyncio.Task[list[Interface]] | None = None
        # While it is False nothing is retried: a wrong address is more likely than a restart.
        self.reached = False
        # Some agents stream and refuse to send; None until that is known.
        self._only_streams: bool | None = None
        # Whether the card was shown only to the credentials of this connection; and the connection it was made of.
        self._is_card_private = False
        self._parent: RemoteConnection | None = None

    def with_auth(self, auth: object) -> RemoteConnection:
        """Return this connection with other credentials. Of the agent's card, it shares what is public.

        Raises:
            ConfigError: these are no credentials, or a certificate, which belongs to the connection itself.
        """
        credential = credential_of(auth)
        assert credential is not None
        other = copy(self)
        other._sender = self._sender.with_credential(credential)
        other._cards = self._cards.with_sender(other._sender)
        other._choosing, other._parent = None, self
        if self._is_card_private:
            other.cached_card, other._interfaces, other._is_card_private = None, [], False
        return other

    async def open(self) -> None:
        """Do nothing: the card is fetched when it is first needed."""

    async def close(self) -> None:
        """Close the HTTP client."""
        if self._choosing is not None:
            self._choosing.cancel()
        await self._sender.http.close()

    async def card(self) -> AgentCard:
        """Return the given card, or fetch it. Raises BadCard or CannotConnect."""
        if isinstance(self._target, AgentCard):
            return self._target
        backoff = Backoff(self._retries, self.clock)
        while True:
            try:
                resolved = await self._cards.find(self._target)
            except DragomanError as error:
                await self._pause_or_raise(backoff, error, Operation.GET)
                continue
            self.reached = True
            self.cached_card, self._is_card_private = resolved.card, resolved.is_private
            return resolved.card

    @property
    def protocol(self) -> str | None:
        """The version of A2A of the interface in use, or of the first to be tried; None before the card is read."""
        interface = self._first_interface()
        return None if interface is None else interface.binding.dialect.version

    @property
    def transport(self) -> str | None:
        """The transport of the interface in use, or of the first to be tried; None before the card is read."""
        interface = self._first_interface()
        return None if interface is None else transport_name(interface.binding.name)

    def _first_interface(self) -> Interface | None:
        if self._interfaces:
            return self._interfaces[0]
        if self.cached_card is not None:
            with contextlib.suppress(DragomanError):  # a call says what is wrong with the card
                return self._interfaces_of(self.cached_card)[0]
        return None

    def _interfaces_of(self, card: AgentCard) -> list[Interface]:
        source = self._target if isinstance(self._target, str) else None
        return interfaces_of(card, self._protocol, self._transport, source=source)

    @property
    def can_resubscribe(self) -> bool:
        """What the dialect of the interface says; True while no interface is chosen."""
        return not self._interfaces or self._interfaces[0].binding.dialect.row.subscribes_again

    async def fetch_same_origin(self, url: str, limit: int) -> bytes:
        """Fetch a URL named by the card, from the agent's own origin only, without retries.

        Raises:
            BadResponse: the URL is of another origin, its status is not 200, or it has more than `limit` bytes.
            CannotConnect: the server cannot be reached.
            AuthError: the credentials cannot be obtained.
        """
        if self._sender.origin not in (None, origin_of(url)):
            raise BadResponse(f"{redact_url(url)} is on another origin: nothing is read from there")
        headers, timeout = {"Accept": "application/json"}, self._connect_timeout
        request = HttpRequest("GET", url, headers, connect_timeout=timeout, read_timeout=self._query_timeout)
        response = await self._sender.send(request, self.cached_card)
        if response.status != 200:
            await response.close()
            raise BadResponse(f"HTTP {response.status} at {redact_url(url)}", status=response.status)
        return await response.read(limit)

    async def perform(self, operation: Operation, request: Request, backoff: Backoff | None = None) -> Result:
        """Perform an operation over the interface that works, retrying where that is safe.

        A card in its response is verified like the public one. Raises BadCard when it is not trusted.
        """
        if METRICS.on or TRACING.on:
            result = await observe_call(self._perform(operation, request, backoff), self, operation, request)
        else:
            result = await self._perform(operation, request, backoff)
        return await self._cards.trusted(result, str(self._target)) if isinstance(result, AgentCard) else result

    async def _perform(self, operation: Operation, request: Request, backoff: Backoff | None) -> Result:
        request = await self._with_context(request)
        if isinstance(request, SendMessageRequest) and request.configuration.return_immediately:
            task_id = await self._start_without_waiting(request)
            if task_id is not None:
                operation, request = Operation.GET, GetTaskRequest(task_id)
        sent_ms, may_have_arrived = self.clock.now(), False
        while True:
            if self._only_streams and isinstance(request, SendMessageRequest):
                return await self._send_by_stream(request)
            try:
                if may_have_arrived and (task := await self._find_started_task(request)) is not None:
                    return task
                result = await self._exchange(operation, request, None, self._read_result)
                if operation is Operation.SEND:
                    self._only_streams = False
            except DragomanError as error:
                if isinstance(request, SendMessageRequest) and self._may_stream(error, request):
                    return await self._send_by_stream(request, error)
                if operation is Operation.SEND and self.reconnect and (task_id := interrupted_task(error)) is not None:
                    operation, request = Operation.GET, GetTaskRequest(task_id)
                    backoff = Outage(self.reconnect, self.clock)
                    await backoff.pause(error)
                    continue
                backoff = backoff or self._backoff(operation, sent_ms)
                may_have_arrived |= isinstance(error, CannotConnect) and error.arrived is not False
                await self._pause_or_raise(backoff, error, operation)
            else:
                if backoff is not None:
                    backoff.reset()
                return result

    def _may_stream(self, error: DragomanError, request: SendMessageRequest) -> bool:
        """True when the agent has no operation that sends, and says that it streams: nothing was begun."""
        card = self.cached_card
        if self._only_streams is False or card is None or not card.capabilities.streaming:
            return False
        # What is refused may also be what the message asks of a task that there is.
        if isinstance(error, UnsupportedOperation) and request.message.task_id:
            return False
        return isinstance(error, _REFUSED) and "taskId" not in error.metadata

    async def _send_by_stream(self, request: SendMessageRequest, refusal: DragomanError | None = None) -> Result:
        """Send a message as a stream, and return what it has become at its end. Raises `refusal` if that is refused."""
        assembler = TaskAssembler(context_id=request.message.context_id or "")
        is_enough = request.configuration.return_immediately
        budget = ByteBudget(self._max_bytes)
        try:
            async with contextlib.aclosing(self.open_stream(Operation.STREAM, request, None, budget)) as batches:
                async for item in (item async for batch in batches for item in batch):
                    assembler.add(item)
                    state = assembler.state
                    self._only_streams = True
                    if state is not None and (is_enough or state.final or state.waiting):
                        break
        except DragomanError as error:
            if refusal is not None and isinstance(error, _REFUSED):
                self._only_streams = False
                raise refusal from None
            if assembler.task_id is None or not isinstance(error, CannotConnect):
                raise
            # The task is known: whoever waits for it follows it from here.
        if (result := assembler.result) is None:
            raise BadResponse("the agent took the message and ended the stream without an event")
        return result

    async def _find_started_task(self, request: Request) -> Result | None:
        """Return the task of a message that may have arrived, where the server cannot recognize the message itself."""
        if not isinstance(request, SendMessageRequest) or request.new_task_id is None:
            return None
        if not (self._interfaces and self._interfaces[0].binding.dialect.row.chooses_ids):
            return None
        try:
            return await self._exchange(Operation.GET, GetTaskRequest(request.new_task_id), None, self._read_result)
        except TaskNotFound:
            return None

    async def _with_context(self, request: R) -> R:
        """Return a message to a task with the context of the task: not every server looks it up."""
        if not isinstance(request, SendMessageRequest):
            return request
        message = request.message
        if message.task_id is None or message.context_id is not None:
            return request
        try:
            task = await self._perform(Operation.GET, GetTaskRequest(message.task_id, 0), None)
        except DragomanError:
            # What is wrong with the task, the server says of the message too. It may allow to send, but not to read.
            return request
        context_id = getattr(task, "context_id", "")
        return replace(request, message=replace(message, context_id=context_id)) if context_id else request

    async def _start_without_waiting(self, request: SendMessageRequest) -> str | None:
        """Start a task without waiting, where the version has no option for that: open its stream and leave it.

        Returns the id of the task; None where an ordinary request can be sent.
        """
        first = (self._interfaces or await self._choose_interfaces())[0]
        streams = self.cached_card is None or bool(self.cached_card.capabilities.streaming)
        if first.binding.dialect.row.returns_at_once or not streams:
            return None
        async with contextlib.aclosing(self.open_stream(Operation.STREAM, request, None)) as batches:
            await anext(batches, None)
        return request.message.task_id or request.new_task_id

    async def open_stream(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        budget: ByteBudget | None = None,
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Open an event stream and yield its batches; a response that is not a stream is yielded as one event."""
        request = await self._with_context(request)
        binding, response, body = await self._exchange(operation, request, after, self._read_stream_head)
        if body is not None:
            # A plain response: the agent does not stream, or reports an error.
            if budget is not None:
                budget.add(len(body))
            answer = binding.read_result(operation, response.status, response.headers, body)
            yield [NumberedEvent(0, answer)]  # pyright: ignore[reportArgumentType] - a send answers with these two
            return
        events = ResponseEvents(binding, response, self._max_bytes, budget)
        try:
            async with contextlib.aclosing(
                events.read(partial(self._probe, binding, operation, received=True))
            ) as batches:
                async for batch in batches:
                    yield batch
        except CannotConnect as error:
            with_response(error, response.status, response.headers, self.clock)
            raise

    # -- one exchange ------------------------------------------------------------------------------------------------

    async def _exchange(
        self,
        operation: Operation,
        request: Request,
        after: int | None,
        read: Callable[[Binding, HttpResponse, Operation], Awaitable[T]],
    ) -> T:
        """Send a request to the first interface that works, and return what `read` makes of the response."""
        first: DragomanError | None = None
        for interface in self._interfaces or await self._choose_interfaces():
            response: HttpResponse | None = None
            try:
                http = self._build_request(interface, operation, request, after)
                if http.body and await self._probe(interface.binding, operation, http.body, received=False):
                    http = self._build_request(interface, operation, request, after)
                response = await self._sender.send(http, self.cached_card)
                if response.status == 405 and interface.binding.switch_method(operation):
                    await response.close()
                    response = await self._sender.send(
                        self._build_request(interface, operation, request, after), self.cached_card
                    )
                self.reached = True
                result = await read(interface.binding, response, operation)
            except DragomanError as error:
                problem = _refine_error(error, operation, interface)
                if response is not None:
                    with_response(problem, response.status, response.headers, self.clock)
                if not self._should_try_next(interface, problem, operation):
                    raise problem from (error if problem is not error else error.__cause__)
                first = first or problem
            else:
                if not interface.proven:
                    self._select(interface)
                return result
        assert first is not None
        raise first

    def _build_request(
        self, interface: Interface, operation: Operation, request: Request, after: int | None
    ) -> HttpRequest:
        if interface.tenant:
            request = replace(request, tenant=interface.tenant)
        http = interface.binding.build_request(operation, request, after)
        http.connect_timeout = self._connect_timeout
        http.read_timeout = self._idle_timeout if operation in _LONG_RUNNING else self._query_timeout
        return http

    async def _probe(self, binding: Binding, operation: Operation, body: bytes, *, received: bool) -> bool:
        """Find out how the server wants a body that is to be sent, or means one that was received; True if it asked."""
        probe = binding.build_probe(operation, body, received=received)
        if probe is None:
            return False
        probe.connect_timeout = self._connect_timeout
        probe.read_timeout = min(_PROBE_TIMEOUT, self._query_timeout)
        with contextlib.suppress(DragomanError):
            # It is only a question: whatever is wrong with the server, the request itself will show.
            response = await self._sender.send(probe, self.cached_card)
            binding.read_probe(response.headers, await self._read_body(binding, response))
        return True

    async def _read_result(self, binding: Binding, response: HttpResponse, operation: Operation) -> Result:
        body = await self._read_body(binding, response)
        await self._probe(binding, operation, body, received=True)
        return binding.read_result(operation, response.status, response.headers, body)

    async def _read_stream_head(
        self, binding: Binding, response: HttpResponse, operation: Operation
    ) -> tuple[Binding, HttpResponse, bytes | None]:
        """Return the binding, the response, and its body if it is not a stream. Raises DragomanError on an error."""
        if binding.is_stream(response.status, response.headers):
            return binding, response, None
        body = await self._read_body(binding, response)
        await self._probe(binding, operation, body, received=True)
        if response.status == 200 and not binding.is_answer(response.headers):
            raise not_json_error(body, 200, response.headers, binding.url)
        binding.read_result(Operation.SEND, response.status, response.headers, body)
        return binding, response, body

    async def _read_body(self, binding: Binding, response: HttpResponse) -> bytes:
        is_answer = binding.is_answer(response.headers)
        try:
            return await response.read(self._max_bytes if is_answer else _MAX_OTHER)
        except BadResponse as error:
            what = response.headers.get("Content-Type", "").partition(";")[0] or "nothing it names"
            text = f"HTTP {response.status}, {what}: {error}"
            if isinstance(error, ResponseTooLarge) and is_answer:
                raise ResponseTooLarge(f"{text}. {LIMIT_HINT}", limit=error.limit) from None
            raise BadResponse(text) from None

    # -- choosing the interface --------------------------------------------------------------------------------------

    async def _choose_interfaces(self) -> list[Interface]:
        """Return the interfaces to try. Concurrent callers share one fetch of the card."""
        choosing = self._choosing
        if choosing is None or choosing.done() or choosing.get_loop() is not asyncio.get_running_loop():
            choosing = self._choosing = asyncio.ensure_future(self._load_interfaces())
            # If every caller was canceled, nobody retrieves the exception.
            choosing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(choosing)

    async def _load_interfaces(self) -> list[Interface]:
        interfaces = self._interfaces_of(await self.card())
        if not self._interfaces:
            self._interfaces = interfaces
        return self._interfaces

    def _select(self, interface: Interface) -> None:
        interface.proven = True
        self._interfaces = [interface]
        parent = self._parent
        if parent is not None and not self._is_card_private and not parent._is_card_private:
            # The next call with other credentials need not find out again.
            parent._interfaces, parent.cached_card, parent.reached = self._interfaces, self.cached_card, True

    def _should_try_next(self, interface: Interface, error: DragomanError, operation: Operation) -> bool:
        """True when the next interface may work. A message the agent may have received is not sent to another one."""
        if interface.proven:
            return False
        if isinstance(error, (MethodNotFound, VersionNotSupported)) and "taskId" not in error.metadata:
            return True
        if isinstance(error, ConfigError):  # gRPC cannot do what the caller wants of the connection
            return interface.binding.name == GRPC
        if isinstance(error, CannotConnect):
            if error.arrived is not False and operation in _SENDS:
                # A retry must go to this interface, even if it no longer answers.
                self._interfaces = [interface]
            return error.arrived is False
        if isinstance(error, BadResponse) and not isinstance(error, A2AError):
            return operation not in _SENDS or error.status in _NOT_FOUND
        if isinstance(error, A2AError) and not isinstance(error, (Overloaded, ServerError)):
            self._select(interface)
        return False

    def _backoff(self, operation: Operation, sent_ms: int) -> Backoff:
        if operation is Operation.SEND:
            return SendBackoff(self._retries, self.reconnect, self.clock, sent_ms)
        return Backoff(self._retries, self.clock)

    async def _pause_or_raise(self, backoff: Backoff, error: DragomanError, operation: Operation) -> None:
        """Wait before a retry. Raises `error` when a retry is pointless or unsafe."""
        is_safe = may_send_again(error) if operation in _SENDS else backoff.covers(error)
        if not is_safe or (isinstance(error, CannotConnect) and not self.reached):
            raise error
        await backoff.pause(error)


def _refine_error(error: DragomanError, operation: Operation, interface: Interface) -> DragomanError:
    """Return the error that an ambiguous status means for this operation."""
    is_bare_404 = isinstance(error, MethodNotFound) and error.status == 404
    if isinstance(error, TaskGenerationMismatch) and error.details is None and operation is Operation.CANCEL:
        # REST before 1.0: the only conflict that a cancel can cause.
        return TaskNotCancelable()
    # REST before 1.0: a missing task is a bare 404.
    return as_received(TaskNotFound()) if is_bare_404 and interface.proven and operation in _TASK_OPERATIONS else error
