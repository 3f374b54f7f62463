"""`RequestHandler`: serves the ten methods of A2A 0.3 with one executor, with or without HTTP."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.clock import SystemClock
from dragoman.compat.executor.bridge import run_of
from dragoman.compat.executor.custom.parts import CustomParts
from dragoman.compat.executor.event_queue import EventQueues
from dragoman.compat.executor.jsonrpc import (
    METHODS,
    Error,
    ErrorType,
    decode_request,
    error_map,
    is_streaming,
    request_id,
    response_map,
)
from dragoman.compat.executor.task_store import ORIGIN, TaskStore
from dragoman.compat.executor.webhooks import PushConfigStore, PushSender
from dragoman.dialects.errors import rpc_error
from dragoman.dialects.table import V0_3
from dragoman.engine.call import CallContext
from dragoman.engine.journal.follow import Stream
from dragoman.engine.operations import Service
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import A2AError, ConfigError, ExtendedAgentCardNotConfigured, InternalError, MethodNotFound
from dragoman.model.json import decode_any
from dragoman.model.operation import Operation
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.agent.agent import Agent
from dragoman.server.cards.cache import MAX_AGE, Cards
from dragoman.server.config.settings import Limits
from dragoman.server.http.address import Addresses
from dragoman.server.http.app import App
from dragoman.server.http.hosted import HostedAgent
from dragoman.server.http.limiter import Limiter
from dragoman.transports.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from types import TracebackType
    from typing import Self

    from dragoman.clock import Clock
    from dragoman.compat.executor.bridge import ExecutorSpec
    from dragoman.compat.executor.custom.interfaces import (
        PushConfigStoreInterface,
        PushSenderInterface,
        TaskStoreInterface,
    )
    from dragoman.compat.executor.jsonrpc import Request
    from dragoman.compat.executor.params import AgentCard
    from dragoman.model.user import User
    from dragoman.transports.http import Header
    from dragoman.transports.http import Request as HttpRequest

logger = logging.getLogger("dragoman.compat")

_NO_CARD = b'{"error":"agent card not configured"}'


class FixedCard(Cards):
    """Serves one fixed card at every address, or 404 when there is none."""

    def __init__(self, agent: Agent, card: AgentCard | None, started_ms: int) -> None:
        super().__init__(agent, V0_3, started_ms)
        self._body = None if card is None else msgspec.json.encode(card.to_map())

    def serve(self, request: HttpRequest, base: str, user: User | None = None) -> tuple[int, bytes, list[Header]]:
        """Return status, body and headers."""
        if self._body is None:
            return 404, _NO_CARD, []
        headers = [(b"cache-control", b"public, max-age=%d" % MAX_AGE), (b"access-control-allow-origin", b"*")]
        return 200, self._body, headers


class RequestHandler:
    """Handles requests with an executor. It starts with the first request; `close` or `async with` stops it for good.

    `agent_card` is the card that `app()` serves; `extended_card` is the result of `agent/getAuthenticatedExtendedCard`.
    With a `push_sender` webhooks are delivered, and `push_configs` is the store of their configs; without one it is
    None. `push_config_store` may be a new `PushConfigStore`, or one with the same `TaskStore`. `task_store`,
    `push_sender` and `push_config_store` may be objects of your own with the methods of `TaskStoreInterface`,
    `PushSenderInterface` and `PushConfigStoreInterface`. `clock` is for a handler without a `TaskStore`.

    Raises:
        ConfigError: `executor` is not an executor, or one of these objects lacks a method.
    """

    def __init__(
        self,
        executor: ExecutorSpec,
        *,
        task_store: TaskStoreInterface | None = None,
        agent_card: AgentCard | None = None,
        extended_card: AgentCard | None = None,
        push_sender: PushSenderInterface | None = None,
        push_config_store: PushConfigStoreInterface | PushConfigStore | None = None,
        settings: EngineSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if push_config_store is not None and push_sender is None:
            raise ConfigError("push_config_store needs a push_sender: without one webhooks are not supported")
        given_configs = push_config_store if isinstance(push_config_store, PushConfigStore) else None
        if task_store is None and given_configs is not None and given_configs.has_own_tasks:
            task_store = given_configs.task_store
        custom = CustomParts(task_store, None if given_configs is not None else push_config_store, push_sender)
        journal = task_store if isinstance(task_store, TaskStore) and custom.tasks is None else TaskStore(clock=clock)
        # Typed as the classes of this package; whoever gave objects of their own has them in their own types.
        self.task_store = journal if task_store is None else cast("TaskStore", task_store)
        self.queues = EventQueues()
        journal.attach(self.queues)
        self._extended_card = extended_card
        agent = Agent(journal.agent, run=run_of(executor, queues=self.queues, task_store=journal))
        self.push_configs: PushConfigStore | None = None
        delivery = keys = None
        if push_sender is not None:
            sender = push_sender if isinstance(push_sender, PushSender) else PushSender()
            configs = given_configs or PushConfigStore()
            configs.attach(journal, sender)
            senders = {} if custom.sender is None else {journal.agent: custom.sender}
            delivery, keys = configs.delivery(senders), sender.keys
            self.push_configs = configs if custom.configs is None else cast("PushConfigStore", push_config_store)
        refined = custom.refine(settings or EngineSettings(), journal)
        limits, addresses = Limits(), Addresses(None, ())
        limiter = Limiter(limits, SystemClock(), addresses)
        self._endpoint = Endpoint(
            Service(EngineAgent(agent), journal.engine_store, journal.bus, journal.clock, refined, delivery),
            (),
            body_limit=limits.body,
            blocking=True,
            denial_log=limiter.denials,
            extended_card=None if extended_card is None else lambda _, __: extended_card.to_model(),
        )
        hosted = HostedAgent(agent, FixedCard(agent, agent_card, journal.clock.now()), self._endpoint)
        self._app = App([hosted], journal.engine_store, addresses, limiter, delivery=delivery, keys=keys)

    # -- lifecycle -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the store and recover tasks that a crash interrupted. Does nothing when already started.

        Raises:
            ConfigError: the store cannot be opened.
        """
        await self._app.start()

    async def close(self) -> None:
        """Wait for running executors up to the drain time, then cancel them and close the store."""
        await self._app.stop()

    def app(self) -> App:
        """Return the ASGI app that serves the same executor and tasks over HTTP."""
        return self._app

    # -- requests --------------------------------------------------------------------------------------------------

    async def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Handle one request that is not a streaming one. Errors are error responses, never exceptions."""
        _, decoded = decode_request(request)
        if not isinstance(decoded, Error) and is_streaming(decoded.method):
            hint = f"{decoded.method} answers with a stream: use handle_stream"
            return error_map(Error(ErrorType.UNSUPPORTED_OPERATION, hint).to_map(), decoded.id)
        async with aclosing(self.handle_stream(request)) as responses:
            return await anext(responses)

    async def handle_stream(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the responses to a request: one per event of a stream, one for any other method.

        Errors are error responses, never exceptions.
        """
        _, decoded = decode_request(request)
        if isinstance(decoded, Error):
            yield error_map(decoded.to_map(), request_id(request))
            return
        try:
            async with aclosing(self._results(decoded)) as results:
                async for result in results:
                    yield response_map(result, decoded.id)
        except A2AError as error:
            yield error_map(rpc_error(error, ORIGIN), decoded.id)
        except Exception:
            logger.exception("a request failed unexpectedly")
            yield error_map(rpc_error(InternalError(), ORIGIN), decoded.id)

    async def _results(self, request: Request) -> AsyncGenerator[Any, None]:
        if request.method not in METHODS:
            raise MethodNotFound("unknown method")
        await self.start()
        endpoint = self._endpoint
        operation, dialect, _ = endpoint.dialects.for_method(request.method, ORIGIN)
        params = dialect.read_values(operation, request.params)
        if operation is Operation.EXTENDED_CARD:
            yield self._extended_card_map()
            return
        outcome = await endpoint.perform(operation, CallContext(origin=ORIGIN, asks=dialect.asks), params, None)
        if not isinstance(outcome.result, Stream):
            yield decode_any(dialect.write_result(operation, outcome.result))
            return
        writer = dialect.event_writer()
        async with aclosing(outcome.result.batches) as batches:
            async for records, is_end in batches:
                for index, record in enumerate(records, 1):
                    yield decode_any(writer.write_event(record, last=is_end and index == len(records)))

    def _extended_card_map(self) -> dict[str, Any]:
        if self._extended_card is None:
            raise ExtendedAgentCardNotConfigured("extended card not configured")
        return self._extended_card.to_map()
