"""The metrics of webhooks: what was delivered, what is owed, late or dead."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from unit.webhooks.conftest import Receiver, World, make_agent

from dragoman.keys.ring import KeyRing
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

from .conftest import Recorded


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(MemoryStore(), Clock(), Receiver(), make_agent(), KeyRing.random())
    await world.open()
    yield world
    await world.close()


def gauges(recorded: Recorded, world: World) -> tuple[float, float]:
    world.sender.sample()
    metrics = recorded.metrics
    return recorded.counts(metrics.webhooks_owed)[()], recorded.counts(metrics.webhooks_late)[()]


async def test_deliveries_are_counted(recorded: Recorded, world: World) -> None:
    await world.send("echo")
    await world.settle()
    assert recorded.counts(recorded.metrics.deliveries) == {("delivered",): len(world.receiver.accepted)}
    assert gauges(recorded, world) == (0, 0)


async def test_a_webhook_whose_receiver_is_down_is_owed_and_late_until_it_is_back(
    recorded: Recorded, world: World
) -> None:
    world.receiver.down = True
    await world.send("echo")
    await world.settle()
    assert gauges(recorded, world) == (1, 1)
    assert recorded.counts(recorded.metrics.deliveries) == {("failed",): 1}
    world.receiver.down = False
    await world.pass_time(600)
    assert gauges(recorded, world) == (0, 0)
    delivered = recorded.counts(recorded.metrics.deliveries)["delivered",]
    assert delivered == len(world.receiver.accepted) > 0
    assert not recorded.counts(recorded.metrics.webhooks_dead)


async def test_a_webhook_that_is_being_delivered_is_owed_and_not_late(recorded: Recorded, world: World) -> None:
    seen: list[tuple[float, float]] = []

    async def look(_: object) -> None:
        seen.append(gauges(recorded, world))

    world.receiver.does = look
    await world.send("echo")
    await world.settle()
    assert set(seen) == {(1, 0)}


async def test_an_event_that_its_receiver_refuses_is_counted(recorded: Recorded, world: World) -> None:
    world.receiver.status = 400
    await world.send("echo")
    await world.settle()
    assert set(recorded.counts(recorded.metrics.deliveries)) == {("refused",)}
    assert gauges(recorded, world) == (0, 0)


@pytest.mark.parametrize("gone", [True, False])
async def test_a_webhook_that_is_given_up_is_dead(recorded: Recorded, world: World, gone: bool) -> None:
    world.receiver.status = 410 if gone else 500
    await world.send("echo")
    await world.settle()
    if not gone:
        assert gauges(recorded, world) == (1, 1)
        await world.pass_time(3 * 86_400, 3600)
    assert recorded.counts(recorded.metrics.webhooks_dead) == {(): 1}
    assert gauges(recorded, world) == (0, 0)


async def test_a_late_webhook_is_late_after_a_restart(recorded: Recorded, world: World) -> None:
    world.receiver.down = True
    await world.send("echo")
    await world.settle()
    await world.drop()
    after = World(world.store, world.clock, world.receiver, make_agent(), world.keys)
    await after.open()
    assert gauges(recorded, after) == (1, 1)
    await after.close()
