"""Calling an agent in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from dragoman.bus.local import LocalBus
from dragoman.engine.call import Call
from dragoman.engine.clock import SystemClock
from dragoman.engine.service import EngineSettings, Service
from dragoman.model.task import Task
from dragoman.stores.memory import MemoryStore

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock
    from dragoman.engine.ports import Runnable, Store
    from dragoman.model.message import Message
    from dragoman.model.record import Record
    from dragoman.model.request import GetTaskRequest, SendMessageRequest


class ServiceConnection:
    """The client's connection to a service beside it: no bytes, the same engine."""

    def __init__(self, service: Service, store: Store) -> None:
        self.service = service
        self._store = store
        self._call = Call()

    async def open(self) -> None:
        """Open the store and recover."""
        await self._store.open()
        await self.service.start()

    async def close(self) -> None:
        """Stop the runs and close the store."""
        await self.service.close()
        await self._store.close()

    async def send(self, request: SendMessageRequest) -> Task | Message:
        """Send a message. Raises A2AError."""
        return (await self.service.send(self._call, request)).result

    async def stream(self, request: SendMessageRequest) -> AsyncIterator[Record]:
        """Send a message and follow its task. Raises A2AError."""
        stream = await self.service.stream(self._call, request)
        async with aclosing(stream.batches) as batches:
            async for batch in batches:
                for record in batch.records:
                    yield record

    async def get_task(self, request: GetTaskRequest) -> Task:
        """Read a task. Raises A2AError."""
        result = (await self.service.get(self._call, request)).result
        assert isinstance(result, Task)
        return result


def connect(
    agent: Runnable, *, store: Store | None = None, clock: Clock | None = None, settings: EngineSettings | None = None
) -> ServiceConnection:
    """Put an engine around an agent. Runs that are left when it closes are stopped at once."""
    clock = clock or SystemClock()
    store = store or MemoryStore()
    service = Service(agent, store, LocalBus(clock), clock, settings or EngineSettings(drain=0))
    return ServiceConnection(service, store)
