"""Webhooks of a simulated cluster: their receiver, which fails now and then, and what each of them has to receive."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from cluster.world import World, WorldClock

from dragoman.clock import sleep
from dragoman.model.error import CannotConnect
from dragoman.model.operation import TaskPushNotificationConfig
from dragoman.net.exchange import HttpRequest
from dragoman.net.guard import AddressGuard
from dragoman.webhooks.service import DeliveryService

URL = "https://hooks.example.com/in"


class Response(NamedTuple):
    """A response without a body."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int = 0) -> bytes:
        """The empty body."""
        return b""

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class Receiver:
    """The receiver of all webhooks, and the client that reaches it. `arrived` are the events by task and webhook."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.down_until = 0.0
        self.arrived: dict[tuple[str, str], list[int]] = {}

    async def send(self, request: HttpRequest) -> Response:
        """Receive an event. Whether it arrived is not always known to who sent it."""
        random, clock = self._random, WorldClock(self._world)
        await sleep(clock, random.random() * 0.02)
        if self._world.now < self.down_until and random.random() < 0.7:
            raise CannotConnect("nobody answers", arrived=False)
        task_id, webhook, generation = request.headers["Idempotency-Key"].split("/")
        self.arrived.setdefault((task_id, webhook), []).append(int(generation))
        await sleep(clock, random.random() * 0.02)
        is_failing = self._world.now < self.down_until
        return Response(503 if is_failing and random.random() < 0.5 else 200, {})

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class PlainSealer:
    """Seals nothing: the secrets of these webhooks are none."""

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Return the data."""
        return data

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Return the data."""
        return sealed


class SimulatedDelivery(DeliveryService):
    """The deliveries of a node. All events are sent, also the chunks of an artifact."""

    def __init__(self, store: Any, bus: Any, clock: WorldClock, receiver: Any, **options: Any) -> None:
        super().__init__(store, bus, clock, receiver, PlainSealer(), AddressGuard(), chunks=True, **options)

    async def ready(self) -> None:
        """Do nothing: there are no keys to load in a thread."""


def webhook() -> TaskPushNotificationConfig:
    """The webhook that a message brings."""
    return TaskPushNotificationConfig(URL)
