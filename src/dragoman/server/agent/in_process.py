"""In-process connections: a client calls an agent's engine directly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.bus.local import LocalBus
from dragoman.clock import SystemClock
from dragoman.dialects.table import V1_0
from dragoman.engine.call import CallContext
from dragoman.engine.journal.follow import Stream
from dragoman.engine.operations import Service
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import A2AError, ConfigError, as_received
from dragoman.model.operation import Operation
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.agent.agent import Agent
from dragoman.server.agent.base import BareAgent
from dragoman.server.cards.cache import build_card
from dragoman.server.plugins import refine_settings
from dragoman.stores.memory import MemoryStore
from dragoman.transports.endpoint import Endpoint

if TYPE_CHECKING:
    from dragoman.client.connection import ByteBudget, StreamEvent
    from dragoman.client.streams.backoff import Backoff
    from dragoman.clock import Clock
    from dragoman.dialects.dialect import Result
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.store import Store
    from dragoman.model.card import AgentCard
    from dragoman.model.operation import Request, SendMessageRequest, SubscribeToTaskRequest

ADDRESS = "http://in-process"


class ServiceConnection:
    """Implements the client's `Connection` on an engine in this process, without serialization."""

    reached = True
    reconnect = 0.0
    # The engine is called directly: there is no transport.
    protocol, transport = V1_0, None
    can_resubscribe = True

    def __init__(self, agent: Any, runnable: Runnable, service: Service, store: Store, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self._agent = agent
        self._runnable = runnable
        self._store = store
        self._endpoint = Endpoint(service, (), body_limit=0, blocking=True)
        self._call = CallContext(origin=V1_0)

    def with_auth(self, auth: object) -> ServiceConnection:
        """Refuse credentials, which nobody would check. Raises ConfigError."""
        raise ConfigError("an agent in the same process checks no credentials: omit auth=, or call agent.app(auth=…)")

    async def open(self) -> None:
        """Open the store and the agent, and recover interrupted tasks."""
        await self._store.open()
        open_agent = getattr(self._runnable, "open", None)
        if open_agent is not None:
            await open_agent()
        await self.service.start()

    async def close(self) -> None:
        """Stop the runs, and close the store and the agent."""
        await self.service.close()
        await self._store.close()
        close = getattr(self._runnable, "close", None)
        if close is not None:
            await close()

    @property
    def cached_card(self) -> AgentCard:
        """The agent's card, with a placeholder URL."""
        return build_card(self._agent, ADDRESS)

    async def card(self) -> AgentCard:
        return self.cached_card

    async def perform(self, operation: Operation, request: Request, backoff: Backoff | None = None) -> Result:
        try:
            result = (await self._endpoint.perform(operation, self._call, request, None)).result
        except A2AError as error:
            raise as_received(error)  # noqa: B904 - it is the same error
        assert not isinstance(result, Stream)
        return result

    async def open_stream(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        budget: ByteBudget | None = None,
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Stream batches of events. `budget` is not used, because no bytes are transferred."""
        try:
            stream = (await self._endpoint.perform(operation, self._call, request, after)).result
        except A2AError as error:
            raise as_received(error)  # noqa: B904 - it is the same error
        assert isinstance(stream, Stream)
        async with aclosing(stream.batches) as batches:
            async for batch in batches:
                if batch.records:
                    yield batch.records


def connect(
    agent: BareAgent | Runnable,
    *,
    store: Store | None = None,
    clock: Clock | None = None,
    settings: EngineSettings | None = None,
) -> ServiceConnection:
    """Create an engine for an agent and connect to it.

    By default it has a store in memory, and runs that are active when it closes are stopped at once.
    """
    clock = clock or SystemClock()
    store = store or MemoryStore(clock)
    runnable = EngineAgent(agent) if isinstance(agent, BareAgent) else agent
    settings = settings or EngineSettings(drain=0)
    if isinstance(agent, Agent) and agent.task_store is not None:
        settings = refine_settings(agent, store, clock, settings)
    service = Service(runnable, store, LocalBus(clock), clock, settings)
    return ServiceConnection(agent, runnable, service, store, clock)
