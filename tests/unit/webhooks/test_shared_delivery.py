"""Webhooks of a store that two processes share: one of them delivers, and the other takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec import structs

from dragoman.engine.ports.ownership import OwnershipLost
from dragoman.engine.ports.sole import SoleOwner
from dragoman.engine.ports.store import WOKEN, Push, PushState, TaskRow, Write
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock


class SharedStore(MemoryStore):
    """Which process has a webhook, as the shared store keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[tuple[int, str], str] = {}
        self.epochs: dict[tuple[int, str], int] = {}
        self.dead: set[str] = set()


class ViewOfStore:
    """The store as one process sees it."""

    def __init__(self, store: SharedStore, name: str) -> None:
        self._store = store
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, write: Write) -> None:
        store = self._store
        for push in write.pushes:
            key = push.task, push.id
            store.owners[key], store.epochs[key] = self.name, push.epoch
        progress = tuple(push for push in write.push_progress if self._is_mine(push))
        store.write(structs.replace(write, push_progress=progress))

    def _is_mine(self, push: Push) -> bool:
        key = push.task, push.id
        return self._store.owners.get(key) == self.name and self._store.epochs[key] == push.epoch

    async def pushes(self, number: int) -> list[Push]:
        epochs = self._store.epochs
        return [structs.replace(push, epoch=epochs[number, push.id]) for push in await self._store.pushes(number)]

    async def undelivered_pushes(self, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        store, found = self._store, []
        for push, row in await store.undelivered_pushes():
            key = push.task, push.id
            if woken and push.state is PushState.OPEN and store.owners.get(key) in (None, *store.dead):
                store.owners[key] = self.name
                store.epochs[key] += 1
                store.write(Write(row, lambda _: None, push_progress=(structs.replace(push, due_ms=WOKEN),)))
        await asyncio.sleep(0)
        for push, row in await store.undelivered_pushes(woken=woken):
            key = push.task, push.id
            if store.owners.get(key) == self.name:
                found.append((structs.replace(push, epoch=store.epochs[key]), row))
        return found


class Lease(SoleOwner):
    """The lease of one process."""

    shared = True

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.listeners: list[Any] = []
        self.renewed: asyncio.Future[None] | None = None

    @property
    def expired(self) -> bool:  # type: ignore[override]
        return self.renewed is not None and not self.renewed.done()

    async def wait_renewed(self) -> None:
        assert self.renewed is not None
        await self.renewed

    def subscribe(self, listener: Any) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def lose_all(self) -> None:
        for listener in self.listeners:
            listener.on_lost(None)

    def announce(self) -> None:
        for listener in self.listeners:
            listener.on_work()


class Pair:
    """Two processes on one store, one receiver and one clock."""

    def __init__(self, make: Any) -> None:
        self.store = SharedStore()
        self.clock = Clock()
        self.receiver: Any = None
        self._make = make
        self.worlds: list[Any] = []

    async def join(self, name: str) -> tuple[Any, Lease]:
        view = ViewOfStore(self.store, name)
        lease = Lease(view)
        # The engine has the tasks to itself here: only webhooks are shared.
        first = self.worlds[0] if self.worlds else None
        shared = {} if first is None else {"receiver": first.receiver, "keys": first.keys}
        world = await self._make(store=view, ownership=lease, clock=self.clock, **shared)
        self.receiver = world.receiver
        if first is not None:
            world.bus.listeners = first.bus.listeners  # a bus that reaches both
        self.worlds.append(world)
        return world, lease

    @property
    def numbers(self) -> list[int]:
        return [delivery.number for delivery in self.receiver.accepted]


@pytest.fixture
def pair(make: Any) -> Pair:
    return Pair(make)


async def settle(worlds: Iterable[Any]) -> None:
    for _ in range(3):
        for world in worlds:
            await world.settle()


async def test_only_the_process_that_stored_a_webhook_delivers(pair: Pair) -> None:
    one, _ = await pair.join("one")
    two, _ = await pair.join("two")
    task = await one.send("plan")
    await settle(pair.worlds)
    assert (one.sender.open_count, two.sender.open_count) == (1, 0)
    await one.send("", "3", None, task=task.id)
    await pair.clock.advance(60)
    await settle(pair.worlds)
    assert pair.numbers == sorted(set(pair.numbers))
    assert pair.receiver.accepted[-1].state == "TASK_STATE_COMPLETED"


async def test_the_webhooks_of_a_dead_process_are_taken_over_with_the_same_keys(pair: Pair) -> None:
    one, _ = await pair.join("one")
    two, lease = await pair.join("two")
    pair.receiver.down = True
    task = await one.send("echo")
    await settle(pair.worlds)
    tried = pair.receiver.tries
    assert tried
    await one.drop()
    pair.store.dead.add("one")
    pair.receiver.down = False
    lease.announce()  # a process is gone
    await two.pass_time(2, step=1)
    assert {delivery.key for delivery in pair.receiver.accepted} >= {
        f"{task.id}/{(await two.pushes(task))[0].id}/{pair.numbers[-1]}"
    }
    assert pair.numbers == sorted(set(pair.numbers))
    assert pair.receiver.accepted[-1].state == "TASK_STATE_COMPLETED"
    assert two.sender.open_count == 0


async def test_without_any_word_they_are_taken_over_by_the_next_look(pair: Pair) -> None:
    one, _ = await pair.join("one")
    two, _ = await pair.join("two")
    pair.receiver.down = True
    await one.send("echo")
    await settle(pair.worlds)
    await one.drop()
    pair.store.dead.add("one")
    pair.receiver.down = False
    await two.pass_time(6, step=1)
    assert pair.receiver.accepted[-1].state == "TASK_STATE_COMPLETED"


async def test_nothing_is_posted_while_the_lease_is_not_renewed(pair: Pair) -> None:
    one, lease = await pair.join("one")
    lease.renewed = asyncio.get_running_loop().create_future()
    await one.send("echo")
    for _ in range(50):
        await asyncio.sleep(0)
    assert pair.receiver.tries == 0
    lease.renewed.set_result(None)
    await one.settle()
    assert pair.receiver.accepted[-1].state == "TASK_STATE_COMPLETED"


async def test_a_process_that_others_declared_dead_leaves_its_webhooks_to_them(pair: Pair) -> None:
    one, lease = await pair.join("one")
    two, _ = await pair.join("two")
    lease.renewed = asyncio.get_running_loop().create_future()
    await one.send("echo")
    for _ in range(50):
        await asyncio.sleep(0)
    pair.store.dead.add("one")
    lease.renewed.set_exception(OwnershipLost("declared dead"))
    lease.lose_all()
    await one.settle()
    assert (pair.receiver.tries, one.sender.open_count) == (0, 0)
    await two.pass_time(6, step=1)
    assert pair.receiver.accepted[-1].state == "TASK_STATE_COMPLETED"
    assert pair.numbers == sorted(set(pair.numbers))


async def test_a_webhook_that_a_process_has_claimed_again_is_delivered_although_its_creation_is_confirmed_late(
    pair: Pair,
) -> None:
    one, _ = await pair.join("one")
    task = await one.send("plan")
    await settle(pair.worlds)
    created = (await one.pushes(task))[0]
    pair.store.epochs[created.task, created.id] += 1  # as a process does that was declared dead, and goes on as another
    stored = await pair.store.task(task.id)
    one.sender.follow(stored.row, (await one.pushes(task))[0])
    one.sender.follow(stored.row, created)
    await one.send("", "3", None, task=task.id)
    await settle(pair.worlds)
    assert pair.receiver.accepted[-1].state == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("how", ["claimed", "replaced", "deleted"])
async def test_a_delivery_stops_when_its_webhook_was_taken_away(pair: Pair, how: str) -> None:
    one, _ = await pair.join("one")
    two, _ = await pair.join("two")
    task = await one.send("plan")
    await settle(pair.worlds)
    push = (await one.pushes(task))[0]
    before = len(pair.receiver.accepted)
    if how == "claimed":
        pair.store.owners[push.task, push.id] = "two"
        pair.store.epochs[push.task, push.id] += 1
    elif how == "replaced":
        await two.hook(task, "https://hooks.example.com/other", id=push.id)
    else:
        stored = await pair.store.task(task.id)
        assert stored is not None
        pair.store.write(Write(stored.row, lambda _: None, deleted_pushes=(push.id,)))
    await one.send("", "3", None, task=task.id)
    await settle(pair.worlds)
    assert one.sender.open_count == 0
    deliveries = pair.receiver.accepted[before:]
    assert {each.url for each in deliveries} <= {"https://hooks.example.com/other"}
    assert bool(deliveries) == (how == "replaced")
    if how == "replaced":
        assert deliveries[-1].state == "TASK_STATE_COMPLETED"
