"""An engine with its deliveries, a receiver that does what a test wants, and time that a test moves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.webhook_receiver import Delivery

from dragoman import Agent, Context
from dragoman.bus.local import LocalBus
from dragoman.engine.call import CallContext
from dragoman.engine.operations import Service
from dragoman.engine.ports.store import Push, Store
from dragoman.engine.settings import EngineSettings
from dragoman.keys.ring import KeyRing
from dragoman.model.error import CannotConnect
from dragoman.model.message import Message
from dragoman.model.operation import SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.model.task import Task
from dragoman.net.exchange import HttpRequest
from dragoman.net.guard import AddressGuard
from dragoman.outputs import Reply
from dragoman.server.agent.adapter import EngineAgent
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock
from dragoman.webhooks.service import DeliveryService

URL = "https://hooks.example.com/in"


class SentDelivery(Delivery):
    """A webhook as it was sent, with its whole address."""

    @property
    def url(self) -> str:
        return self.path


class Answer:
    """What the receiver answers."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.closed = False
        self.was_read = False

    async def read(self, limit: int = 0) -> bytes:
        self.was_read = True
        return b""

    def chunks(self) -> AsyncIterator[bytes]:
        raise AssertionError("nobody streams an answer")

    async def close(self) -> None:
        self.closed = True


class Receiver:
    """An HttpClient that is the receiver too. `does` may wait, raise, or say a status."""

    def __init__(self) -> None:
        self.accepted: list[SentDelivery] = []
        self.tries = 0
        self.down = False
        self.status = 200
        self.headers: dict[str, str] = {}
        self.does: Callable[[SentDelivery], Any] | None = None
        self.answers: list[Answer] = []
        self.closed = False

    async def send(self, request: HttpRequest) -> Answer:
        self.tries += 1
        assert request.method == "POST"
        headers = {name.lower(): value for name, value in request.headers.items()}
        delivery = SentDelivery(request.method, request.url, headers, request.body or b"")
        if self.down:
            raise CannotConnect("nobody answers", arrived=False)
        status = self.status
        if self.does is not None:
            status = await self.does(delivery) or status
        if 200 <= status < 300:
            self.accepted.append(delivery)
        self.answers.append(answer := Answer(status, self.headers))
        return answer

    async def close(self) -> None:
        self.closed = True

    def by_task(self) -> dict[str, list[SentDelivery]]:
        found: dict[str, list[SentDelivery]] = defaultdict(list)
        for delivery in self.accepted:
            found[delivery.task].append(delivery)
        return found


def make_agent(**options: Any) -> Agent:
    agent = Agent("pusher", description="Does things of which webhooks are notified", **options)

    @agent.skill
    async def echo(text: str) -> str:
        return text

    @agent.skill
    async def talk(text: str):
        for word in ("one ", "two ", "three"):
            yield word

    @agent.skill
    async def plan(ctx: Context) -> str:
        days = await ctx.ask("How many days?")
        return f"{days} days"

    @agent.skill
    async def wait_for_go(ctx: Context, text: str):
        yield "begun "
        message = await ctx.messages().__anext__()
        yield message.text

    @agent.skill
    async def reply(text: str) -> Reply:
        return Reply(text)

    return agent


class World:
    """One server's inside."""

    def __init__(self, store: Store, clock: Clock, receiver: Receiver, agent: Agent, keys: KeyRing, **options: Any):
        self.store = store
        self.clock = clock
        self.receiver = receiver
        self.keys = keys
        self.bus = LocalBus(clock)
        self.guard = options.pop("guard", None) or AddressGuard()
        signer = options.pop("signer", keys.signer())
        self.sender = DeliveryService(store, self.bus, clock, receiver, keys, self.guard, signer=signer, **options)
        settings = EngineSettings(drain=0)
        self.service = Service(EngineAgent(agent), store, self.bus, clock, settings, self.sender)

    async def open(self) -> World:
        await self.store.open()
        await self.service.start()
        await self.sender.start()
        return self

    async def close(self) -> None:
        await self.service.close()
        await self.sender.close()
        await self.store.close()

    async def drop(self) -> None:
        """End as a crash would: nobody drains, nobody tells anybody."""
        for live in list(self.service._tasks.live.values()):
            if live.worker is not None:
                live.worker.cancel()
        self.service._reaper.close()
        workers = list(self.sender.workers)
        self.sender._closed = True
        for delivery in self.sender._deliveries.values():
            delivery.stop()
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)
        await self.store.close()

    # -- calling ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        skill: str,
        text: str = "hello",
        push: TaskPushNotificationConfig | str | None = URL,
        *,
        wait: bool = True,
        origin: str = "1.0",
        task: str | None = None,
        message_id: str = "m",
    ) -> Any:
        config = TaskPushNotificationConfig(push) if isinstance(push, str) else push
        metadata = {"skillId": skill} if skill else None
        message = Message(message_id, Role.USER, (Part(text=text),), task_id=task, metadata=metadata)
        configuration = SendMessageConfiguration(return_immediately=not wait, task_push_notification_config=config)
        answer = await self.service.send(CallContext(origin=origin), SendMessageRequest(message, configuration))
        return answer.result

    async def hook(self, task: Task | str, url: str = URL, origin: str = "1.0", **more: Any) -> Any:
        task_id = task if isinstance(task, str) else task.id
        config = TaskPushNotificationConfig(url, task_id=task_id, **more)
        return await self.service.create_push(CallContext(origin=origin), config)

    async def pushes(self, task: Task) -> list[Push]:
        stored = await self.store.task(task.id)
        assert stored is not None
        return await self.store.pushes(stored.row.number)

    # -- time ------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until no delivery is under way, however many threads that takes."""
        await asyncio.sleep(0)
        while workers := [*self.sender.workers]:
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float, step: float = 30.0) -> None:
        left = seconds
        await self.settle()
        while left > 0:
            self.clock.move(min(step, left))
            left -= step
            await self.settle()


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Any]]:
    """Makes a world; the one before may go on with another on the same store."""
    async with AsyncExitStack() as stack:

        async def make_world(
            store: Store | None = None,
            *,
            clock: Clock | None = None,
            receiver: Receiver | None = None,
            agent: Agent | None = None,
            keys: KeyRing | None = None,
            closes: bool = True,
            **options: Any,
        ) -> World:
            world = World(
                store or MemoryStore(),
                clock or Clock(),
                receiver or Receiver(),
                agent or make_agent(),
                keys or KeyRing.random(),
                **options,
            )
            await world.open()
            if closes:
                stack.push_async_callback(world.close)
            return world

        yield make_world


@pytest.fixture
async def world(make: Any) -> World:
    return await make()


@pytest.fixture
def agents() -> Callable[..., Agent]:
    """Makes the agent that worlds have, with options of its own."""
    return make_agent
