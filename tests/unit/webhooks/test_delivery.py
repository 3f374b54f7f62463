"""Webhooks are brought in order, again until they arrive, and to nobody else."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from typing import Any

import pytest
from msgspec import structs

from dragoman.engine.call import CallContext
from dragoman.engine.ports.store import WOKEN, PushState, Write
from dragoman.keys.ring import KeyRing
from dragoman.model.error import CannotConnect, ServerError
from dragoman.model.operation import AuthenticationInfo, CancelTaskRequest, TaskPushNotificationConfig
from dragoman.net.guard import AddressForbidden
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock
from dragoman.webhooks import backoff, delivery, service
from dragoman.webhooks import request as request_module
from dragoman.webhooks.delivery import LOST_KEY

OTHER = "https://other.example.com/in"
DAY = 86_400


async def arrived(world: Any, count: int) -> list[Any]:
    await world.pass_time(1, step=0.1)
    assert len(world.receiver.accepted) == count, world.receiver.accepted
    return world.receiver.accepted


# -- what arrives ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-29")
async def test_every_status_and_every_finished_artifact_arrives_once_and_in_order(world: Any) -> None:
    task = await world.send("echo", "hi")
    deliveries = await arrived(world, 3)
    assert [each.number for each in deliveries] == [2, 3, 4]
    assert [each.state for each in deliveries] == ["TASK_STATE_WORKING", None, "TASK_STATE_COMPLETED"]
    assert deliveries[1].json["artifactUpdate"]["artifact"]["parts"] == [{"text": "hi"}]
    assert {each.task for each in deliveries} == {task.id}
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]
    assert world.sender.open_count == 0


async def test_without_a_webhook_or_without_a_task_no_request_is_sent(world: Any) -> None:
    await world.send("echo", push=None)
    answer = await world.send("reply", "hi")
    await arrived(world, 0)
    assert answer.text == "hi"
    assert world.sender.open_count == 0
    assert await world.store.undelivered_pushes() == []


async def test_a_waiting_task_reports_again_after_the_answer(world: Any) -> None:
    task = await world.send("plan")
    await arrived(world, 2)
    assert world.receiver.accepted[-1].state == "TASK_STATE_INPUT_REQUIRED"
    assert world.sender.open_count == 1
    await world.send("", "3", None, task=task.id)
    deliveries = await arrived(world, 5)
    assert [each.number for each in deliveries] == [2, 3, 4, 5, 6]
    assert deliveries[-1].state == "TASK_STATE_COMPLETED"


async def test_a_canceled_task_says_so(world: Any) -> None:
    task = await world.send("plan")
    await world.service.cancel(CallContext(), CancelTaskRequest(task.id))
    deliveries = await arrived(world, 3)
    assert deliveries[-1].state == "TASK_STATE_CANCELED"


async def test_a_webhook_of_a_waiting_task_gets_only_later_events(world: Any) -> None:
    task = await world.send("plan", push=None)
    await world.hook(task)
    await arrived(world, 0)
    await world.send("", "3", None, task=task.id)
    assert [each.number for each in await arrived(world, 3)] == [4, 5, 6]


async def test_a_webhook_of_an_ended_task_is_kept_and_gets_nothing(world: Any) -> None:
    task = await world.send("echo", push=None)
    await world.hook(task)
    await arrived(world, 0)
    assert world.sender.open_count == 0
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]


async def test_a_webhook_registered_with_an_answer_gets_only_later_events(world: Any) -> None:
    task = await world.send("plan", push=None)
    await world.send("", "3", OTHER, task=task.id)
    deliveries = await arrived(world, 2)
    assert [each.number for each in deliveries] == [5, 6]
    assert {each.url for each in deliveries} == {OTHER}


async def test_the_same_webhook_with_every_message_is_one_webhook(world: Any) -> None:
    task = await world.send("plan")
    await arrived(world, 2)
    await world.send("", "3", task=task.id)
    assert [each.number for each in await arrived(world, 5)] == [2, 3, 4, 5, 6]
    assert len(await world.pushes(task)) == 1


async def test_replacing_a_webhook_keeps_undelivered_events(world: Any) -> None:
    world.receiver.down = True
    task = await world.send("plan", push=TaskPushNotificationConfig("https://hooks.example.com/", id="p", token="old"))
    await world.settle()
    # Three times, and nothing is lost: by the same, with another token, and at another place.
    await world.send(
        "", "3", TaskPushNotificationConfig("https://hooks.example.com/", id="p", token="old"), task=task.id
    )
    await world.settle()
    await world.hook(task, "https://hooks.example.com/", id="p", token="new")
    await world.settle()
    world.receiver.down = False
    await world.hook(task, OTHER, id="p", token="new")
    deliveries = await arrived(world, 5)
    assert [each.number for each in deliveries] == [2, 3, 4, 5, 6]
    assert {(each.url, each.headers["x-a2a-notification-token"]) for each in deliveries} == {(OTHER, "new")}


async def test_several_webhooks_of_a_task_are_independent(world: Any) -> None:
    task = await world.send("plan", push=None)
    await world.hook(task, "https://down.example.com/", id="a")
    await world.hook(task, OTHER, id="b")

    async def one_is_down(delivery: Any) -> int:
        return 500 if "down" in delivery.url else 200

    world.receiver.does = one_is_down
    await world.send("", "3", None, task=task.id)
    assert {each.url for each in await arrived(world, 3)} == {OTHER}
    world.receiver.does = None
    await world.pass_time(10)
    assert [each.number for each in world.receiver.accepted if "down" in each.url] == [4, 5, 6]


async def test_after_a_restart_a_webhook_gets_only_what_it_missed(make: Any) -> None:
    store = MemoryStore()
    first = await make(store, closes=False)

    async def only_one(delivery: Any) -> int:
        return 200 if delivery.number == 2 else 503

    first.receiver.does = only_one
    await first.send("echo")
    await first.settle()
    await first.drop()
    assert [each.number for each in first.receiver.accepted] == [2]
    second = await make(store, keys=first.keys)
    await second.pass_time(10)
    assert [each.number for each in second.receiver.accepted] == [3, 4]


# -- failing ---------------------------------------------------------------------------------------------------------


async def test_back_off_grows_to_minutes_and_is_jittered(world: Any) -> None:
    world.receiver.down = True
    task = await world.send("echo")
    await world.settle()
    pauses: list[float] = []
    for _ in range(14):
        (push,) = await world.pushes(task)
        pauses.append((push.due_ms - world.clock.now()) / 1000)
        await world.pass_time(pauses[-1] + 0.001, step=1000)
    for number, pause in enumerate(pauses):
        whole = min(300.0, 2.0**number)
        assert whole / 2 <= pause <= whole
    assert world.receiver.tries == 15


async def test_a_webhook_that_fails_for_a_day_is_dead_and_left_alone(world: Any, caplog: Any) -> None:
    world.receiver.down = True
    with caplog.at_level(logging.INFO, "dragoman.push"):
        task = await world.send("echo", push="https://hooks.example.com/T0K3N?key=S3CR3T")
        await world.pass_time(DAY - 3600, step=300)
        assert [push.state for push in await world.pushes(task)] == [PushState.OPEN]
        await world.pass_time(7200, step=300)
    (push,) = await world.pushes(task)
    assert (push.state, push.error) == (PushState.DEAD, "CANNOT_CONNECT")
    assert world.sender.open_count == 0
    tries = world.receiver.tries
    await world.pass_time(DAY, step=3600)
    assert world.receiver.tries == tries
    assert "given up" in caplog.text
    assert "S3CR3T" not in caplog.text
    assert "T0K3N" not in caplog.text


async def crashed(make: Any, **options: Any) -> tuple[Any, Any]:
    """A server that crashed while its receiver was down, and its task."""
    push = options.pop("push", "https://hooks.example.com/in")
    world = await make(MemoryStore(), closes=False, **options)
    world.receiver.down = True
    task = await world.send("echo", push=push)
    await world.settle()
    await world.drop()
    return world, task


async def test_a_clock_set_forward_and_a_server_that_was_away_kill_nobody(make: Any) -> None:
    first, task = await crashed(make)
    clock = Clock(first.clock.now() + 3 * DAY * 1000)
    second = await make(first.store, keys=first.keys, clock=clock, receiver=first.receiver)
    await second.settle()
    assert [push.state for push in await second.pushes(task)] == [PushState.OPEN]
    second.receiver.down = False
    await second.pass_time(10)
    assert [each.number for each in second.receiver.accepted] == [2, 3, 4]


async def test_a_clock_set_back_delays_by_an_hour_at_most(make: Any) -> None:
    first, _ = await crashed(make)
    second = await make(first.store, keys=first.keys, clock=Clock(first.clock.now() - 30 * DAY * 1000))
    await second.pass_time(backoff.MAX_RETRY_AFTER + 1, step=600)
    assert [each.number for each in second.receiver.accepted] == [2, 3, 4]


@pytest.mark.parametrize("status", [301, 302, 307, 408, 425, 429, 500, 503])
async def test_a_temporary_failure_is_tried_again(world: Any, status: int) -> None:
    world.receiver.status = status
    world.receiver.headers = {"Location": "http://169.254.169.254/"}
    task = await world.send("echo")
    await world.settle()
    assert [push.error for push in await world.pushes(task)] == [f"HTTP {status}"]
    world.receiver.status = 204
    await world.pass_time(10)
    assert [each.number for each in world.receiver.accepted] == [2, 3, 4]
    assert {each.url for each in world.receiver.accepted} == {"https://hooks.example.com/in"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422, 451, 499])
async def test_an_event_that_is_refused_is_recorded_and_skipped_and_later_ones_go_on(
    world: Any, caplog: Any, status: int
) -> None:
    async def refuses_the_artifact(delivery: Any) -> int | None:
        return status if delivery.number == 3 else None

    world.receiver.does = refuses_the_artifact
    task = await world.send("echo", push="https://hooks.example.com/T0K3N")
    await world.pass_time(3600)
    assert [each.number for each in world.receiver.accepted] == [2, 4]
    assert world.receiver.tries == 3
    (push,) = await world.pushes(task)
    record = f"event 3 was refused with HTTP {status} and skipped"
    assert (push.state, push.cursor, push.error) == (PushState.DONE, 4, record)
    assert f"{task.id}: {record}" in caplog.text
    assert "T0K3N" not in caplog.text


async def test_a_receiver_that_refuses_everything_is_asked_once_for_each_event_and_warned_of_once(
    world: Any, caplog: Any
) -> None:
    world.receiver.status = 404
    task = await world.send("echo")
    await world.pass_time(3600)
    assert world.receiver.tries == 3
    (push,) = await world.pushes(task)
    assert (push.state, push.error) == (PushState.DONE, "event 4 was refused with HTTP 404 and skipped")
    assert [record.levelname for record in caplog.records if record.name == "dragoman.push"] == ["WARNING"]


async def test_a_skipped_event_is_not_forgotten_when_a_later_one_fails(make: Any) -> None:
    store = MemoryStore()
    first = await make(store, closes=False)
    statuses = {2: 404, 3: 503}

    async def answers(delivery: Any) -> int | None:
        return statuses.get(delivery.number)

    first.receiver.does = answers
    task = await first.send("echo")
    await first.settle()
    (push,) = await first.pushes(task)
    skipped = "event 2 was refused with HTTP 404 and skipped"
    assert (push.cursor, push.error) == (2, f"{skipped}; HTTP 503")
    await first.drop()
    second = await make(store, keys=first.keys, receiver=first.receiver, clock=first.clock)
    statuses[3] = 410
    await second.pass_time(10)
    assert [(push.state, push.error) for push in await second.pushes(task)] == [
        (PushState.DEAD, f"{skipped}; HTTP 410")
    ]
    # Somebody wakes it: the rest arrives, and what was skipped still stands there.
    del statuses[3]
    await wake(second, task)
    await second.pass_time(10)
    assert [each.number for each in second.receiver.accepted] == [3, 4]
    assert [(push.state, push.error) for push in await second.pushes(task)] == [(PushState.DONE, skipped)]


async def test_410_ends_it_at_once(world: Any) -> None:
    world.receiver.status = 410
    task = await world.send("echo")
    await world.pass_time(3600)
    (push,) = await world.pushes(task)
    assert (push.state, push.error, world.receiver.tries) == (PushState.DEAD, "HTTP 410", 1)


@pytest.mark.parametrize(("header", "seconds"), [("120", 120), ("86400", 3600), ("soon", 1)])
async def test_retry_after_is_respected_up_to_an_hour(world: Any, header: str, seconds: int) -> None:
    world.receiver.status = 503
    world.receiver.headers = {"Retry-After": header}
    task = await world.send("echo")
    await world.settle()
    (push,) = await world.pushes(task)
    wait = (push.due_ms - world.clock.now()) / 1000
    assert seconds / 2 <= wait <= seconds


async def test_an_address_that_turns_out_to_be_private_ends_it_with_the_reason(world: Any) -> None:
    async def rebound(_: Any) -> None:
        raise AddressForbidden(
            "hooks.example.com is in a private network", host="hooks.example.com", address="10.0.0.1"
        )

    world.receiver.does = rebound
    task = await world.send("echo")
    await world.settle()
    (push,) = await world.pushes(task)
    assert (push.state, push.error) == (PushState.DEAD, "hooks.example.com is in a private network")
    assert "10.0.0.1" not in push.error


async def test_an_unexpected_exception_is_logged_and_tried_again(world: Any, caplog: Any) -> None:
    async def breaks(_: Any) -> None:
        raise RuntimeError("nobody thought of this")

    world.receiver.does = breaks
    task = await world.send("echo")
    await world.settle()
    assert [push.error for push in await world.pushes(task)] == ["RuntimeError"]
    assert "nobody thought of this" in caplog.text
    world.receiver.does = None
    await world.pass_time(10)
    assert len(world.receiver.accepted) == 3


async def test_an_endless_response_is_closed(world: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(request_module, "DISCARD_SECONDS", 0.01)

    class Endless:
        status = 200
        closed = False

        def __init__(self) -> None:
            self.headers: dict[str, str] = {}

        async def read(self, limit: int) -> bytes:
            assert limit <= 64 * 1024
            await asyncio.Event().wait()
            return b""

        async def close(self) -> None:
            self.closed = True

    answers: list[Endless] = []

    async def send(request: Any) -> Endless:
        answers.append(Endless())
        return answers[-1]

    world.receiver.send = send
    task = await world.send("echo")
    await world.settle()
    assert [answer.closed for answer in answers] == [True] * 3
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]


async def test_a_slow_response_times_out(world: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(delivery, "_REQUEST_TIMEOUT", 0.01)

    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    world.receiver.does = never
    task = await world.send("echo")
    await world.settle()
    assert [push.error for push in await world.pushes(task)] == ["TIMED_OUT"]


# -- slow places -----------------------------------------------------------------------------------------------------


async def test_a_slow_host_delays_no_other(make: Any) -> None:
    world = await make(max_per_host=2, max_total=4)
    go = asyncio.Event()

    async def slow(delivery: Any) -> None:
        if "slow" in delivery.url:
            await go.wait()

    world.receiver.does = slow
    for _ in range(20):
        await world.send("echo", push="https://slow.example.com/")
    task = await world.send("echo", push=OTHER)
    for _ in range(50):
        await asyncio.sleep(0)
    assert [each.task for each in world.receiver.accepted] == [task.id] * 3
    assert world.receiver.tries == 2 + 3
    go.set()
    await world.settle()
    assert len(world.receiver.accepted) == 21 * 3
    for deliveries in world.receiver.by_task().values():
        assert [each.number for each in deliveries] == [2, 3, 4]


# -- changes in the middle -------------------------------------------------------------------------------------------


class Held:
    """A receiver's work that waits in the middle."""

    def __init__(self, world: Any) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        world.receiver.does = self

    async def __call__(self, _: Any) -> None:
        self.entered.set()
        await self.go.wait()


async def test_a_webhook_deleted_in_the_middle_gets_nothing_more(world: Any) -> None:
    held = Held(world)
    task = await world.send("plan", push=TaskPushNotificationConfig("https://hooks.example.com/", id="p"))
    await held.entered.wait()
    from dragoman.model.operation import GetPushConfigRequest

    await world.service.delete_push(CallContext(), GetPushConfigRequest(task.id, "p"))
    held.go.set()
    await world.pass_time(3600)
    assert world.receiver.accepted == []
    assert world.receiver.tries == 1
    assert await world.pushes(task) == []
    assert world.sender.open_count == 0


async def test_a_webhook_replaced_in_the_middle_continues_at_its_new_address(world: Any) -> None:
    held = Held(world)
    task = await world.send("plan", push=TaskPushNotificationConfig("https://hooks.example.com/", id="p"))
    await held.entered.wait()
    await world.hook(task, OTHER, id="p")
    held.go.set()
    await world.send("", "3", None, task=task.id)
    deliveries = await arrived(world, 5)
    assert {each.url for each in deliveries} == {OTHER}
    assert [each.number for each in deliveries] == [2, 3, 4, 5, 6]
    (push,) = await world.pushes(task)
    assert (push.url, push.state, push.cursor) == (OTHER, PushState.DONE, 6)


async def test_one_replaced_within_a_millisecond_is_not_taken_for_the_other(world: Any) -> None:
    task = await world.send("plan", push=None)
    await world.hook(task, id="p")
    (old,) = await world.pushes(task)
    await world.hook(task, OTHER, id="p")
    (new,) = await world.pushes(task)
    assert world.clock.now() <= old.created_ms < new.created_ms
    stored = await world.store.task(task.id)
    done = structs.replace(old, state=PushState.DEAD)
    world.store.write(Write(stored.row, lambda _: None, push_progress=(done,)))
    assert await world.pushes(task) == [new]


async def test_closing_in_the_middle_leaves_it_to_the_next_server(make: Any) -> None:
    store = MemoryStore()
    first = await make(store, closes=False)
    held = Held(first)
    await first.send("echo")
    await held.entered.wait()
    await first.close()
    assert first.receiver.closed
    assert first.receiver.accepted == []
    second = await make(store, keys=first.keys, clock=first.clock)
    await second.settle()
    assert [each.number for each in second.receiver.accepted] == [2, 3, 4]


# -- the store -------------------------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store that may refuse to write how far webhooks have come, or to be read."""

    full = False
    unreadable = False

    def queue(self, write: Write) -> None:
        if self.full and write.push_progress:
            asyncio.get_running_loop().call_soon(self.report, write, OSError(28, "No space left on device"))
            return
        super().queue(write)

    async def records(self, number: int, after: int, limit: int) -> Any:
        if self.unreadable:
            raise ServerError("the store cannot be read now")
        return await super().records(number, after, limit)


async def test_a_full_disk_costs_repetitions_and_nothing_else(make: Any, caplog: Any) -> None:
    store = Failing()
    first = await make(store, closes=False)
    store.full = True
    await first.send("echo")
    await first.settle()
    assert [each.number for each in first.receiver.accepted] == [2, 3, 4]
    assert "could not be saved" in caplog.text
    await first.drop()
    store.full = False
    second = await make(store, keys=first.keys, clock=first.clock)
    await second.settle()
    assert [each.key for each in second.receiver.accepted] == [each.key for each in first.receiver.accepted]


async def test_a_store_that_cannot_be_read_is_asked_again(make: Any) -> None:
    store = Failing()
    world = await make(store)
    store.unreadable = True
    await world.send("echo")
    await world.settle()
    assert world.receiver.tries == 0
    store.unreadable = False
    await world.pass_time(10)
    assert [each.number for each in world.receiver.accepted] == [2, 3, 4]


async def test_a_webhook_that_cannot_be_stored_is_refused_and_not_followed(make: Any) -> None:
    class Full(MemoryStore):
        full = False

        def queue(self, write: Write) -> None:
            if self.full:
                asyncio.get_running_loop().call_soon(self.report, write, OSError(28, "No space left on device"))
            else:
                super().queue(write)

    store = Full()
    world = await make(store)
    task = await world.send("plan", push=None)
    store.full = True
    with pytest.raises(ServerError, match="cannot take writes"):
        await world.hook(task)
    with pytest.raises(ServerError):
        await world.send("echo")
    store.full = False
    assert world.sender.open_count == 0
    assert await world.pushes(task) == []


async def test_a_task_that_ends_while_its_new_webhook_is_looked_up_is_reported(make: Any) -> None:
    class Slow(MemoryStore):
        """A store whose first read after a webhook was stored takes long."""

        stored: asyncio.Event | None = None
        resumed = asyncio.Event()

        async def task(self, task_id: str) -> Any:
            found = await super().task(task_id)
            if self.stored is not None and await self.pushes(1) and not self.stored.is_set():
                self.stored.set()
                await self.resumed.wait()
            return found

    store = Slow()
    world = await make(store)
    task = await world.send("plan", push=None)
    store.stored = asyncio.Event()
    registering = asyncio.create_task(world.hook(task))
    await store.stored.wait()
    await world.send("", "3", push=None, task=task.id, message_id="answer")
    store.resumed.set()
    await registering
    await world.settle()
    assert [each.number for each in world.receiver.accepted] == [4, 5, 6]


async def test_a_task_that_fails_because_its_reply_was_refused_is_reported(make: Any) -> None:
    class Full(MemoryStore):
        full = True

        def queue(self, write: Write) -> None:
            if self.full and write.delete:
                asyncio.get_running_loop().call_soon(self.report, write, OSError(28, "No space left on device"))
            else:
                super().queue(write)

    store = Full()
    world = await make(store)
    with pytest.raises(ServerError, match="cannot take writes"):
        await world.send("reply")
    store.full = False
    await world.pass_time(10)
    working, failed = world.receiver.accepted
    assert (working.number, failed.number) == (2, 3)
    assert b"TASK_STATE_FAILED" in failed.body


async def test_a_compacted_task_is_reported_by_its_end(make: Any) -> None:
    from dragoman.engine.ports.store import Sweep

    for origin, state in (("1.0", "TASK_STATE_COMPLETED"), ("0.3", "completed"), ("0.1", "completed")):
        world = await make()
        world.receiver.down = True
        task = await world.send("echo", origin=origin)
        await world.settle()
        assert await world.store.sweep(Sweep(compact_before_ms=world.clock.now() + 1)) == 1
        world.receiver.down = False
        await world.pass_time(10)
        (delivery,) = world.receiver.accepted
        assert (delivery.number, delivery.state) == (4, state)
        assert [push.state for push in await world.pushes(task)] == [PushState.DONE]


async def test_a_task_deleted_meanwhile_is_forgotten(world: Any) -> None:
    world.receiver.down = True
    task = await world.send("echo")
    await world.settle()
    stored = await world.store.task(task.id)
    world.store.write(Write(stored.row, lambda _: None, delete=True))
    world.receiver.down = False
    await world.pass_time(10)
    assert world.receiver.accepted == []
    assert world.sender.open_count == 0


# -- keys ------------------------------------------------------------------------------------------------------------

SECRETS = TaskPushNotificationConfig(
    "https://hooks.example.com/", token="T0K3N", authentication=AuthenticationInfo("Basic", "S3CR3T")
)


async def test_secrets_are_sealed_in_the_store_and_out_of_every_log(world: Any, caplog: Any) -> None:
    world.receiver.down = True
    with caplog.at_level(logging.DEBUG):
        task = await world.send("echo", push=SECRETS)
        await world.settle()
    (push,) = await world.pushes(task)
    for secret in (b"T0K3N", b"S3CR3T", b"Basic"):
        assert secret not in push.secrets
    assert "S3CR3T" not in caplog.text
    assert "T0K3N" not in caplog.text


async def test_rotated_keys_still_open_what_the_old_ones_sealed(make: Any) -> None:
    old, new = "an old secret of a server", "a new secret of a server"
    first, _ = await crashed(make, keys=KeyRing.from_text(old), push=SECRETS)
    second = await make(first.store, keys=KeyRing.from_text(f"{new},{old}"), clock=first.clock)
    await second.pass_time(10)
    assert len(second.receiver.accepted) == 3
    assert {each.headers["authorization"] for each in second.receiver.accepted} == {"Basic S3CR3T"}


async def test_a_lost_key_ends_it_with_a_reason(make: Any) -> None:
    first, task = await crashed(make, push=SECRETS)
    second = await make(first.store, clock=first.clock)
    await second.pass_time(10)
    (push,) = await second.pushes(task)
    assert (push.state, push.error, second.receiver.tries) == (PushState.DEAD, LOST_KEY, 0)
    from dragoman.model.operation import GetPushConfigRequest

    shown = await second.service.get_push(CallContext(), GetPushConfigRequest(task.id, ""))
    assert (shown.url, shown.token, shown.authentication) == ("https://hooks.example.com/", None, None)


# -- woken by hand ---------------------------------------------------------------------------------------------------


async def wake(world: Any, task: Any) -> None:
    """What `dragoman push retry` does to the file."""
    stored = await world.store.task(task.id)
    (push,) = await world.pushes(task)
    fresh = structs.replace(push, state=PushState.OPEN, tries=0, failing_ms=0, due_ms=WOKEN)
    world.store.write(Write(stored.row, lambda _: None, push_progress=(fresh,)))


@pytest.mark.parametrize(("status", "headers"), [(410, {}), (503, {"Retry-After": "3600"})], ids=["dead", "failing"])
async def test_a_webhook_that_is_woken_gets_all_it_missed_at_once(
    world: Any, status: int, headers: dict[str, str]
) -> None:
    world.receiver.status, world.receiver.headers = status, headers
    task = await world.send("echo")
    await world.settle()
    world.receiver.status = 200
    await wake(world, task)
    await world.pass_time(service.WAKE_POLL_INTERVAL + 1, step=1)
    assert [each.number for each in world.receiver.accepted] == [2, 3, 4]
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]


async def test_a_webhook_woken_by_the_server_itself_is_delivered_soon(world: Any) -> None:
    world.receiver.status = 410
    task = await world.send("echo")
    await world.settle()
    (push,) = await world.pushes(task)
    assert push.state is PushState.DEAD
    world.receiver.status = 200
    assert await world.store.wake_pushes(task.id, push.id) == 1
    world.sender.wake()
    await world.pass_time(service.WAKE_POLL_INTERVAL / 2, step=0.5)
    assert [each.number for each in world.receiver.accepted] == [2, 3, 4]
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]


class Hesitant(MemoryStore):
    """Tells what is owed as it was a moment ago: something has happened since it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Any = None

    async def undelivered_pushes(self, *, woken: bool = False) -> Any:
        found = await super().undelivered_pushes(woken=woken)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


async def test_events_that_happen_while_a_webhook_is_taken_up_are_delivered_too(make: Any) -> None:
    world = await make(Hesitant())
    task = await world.send("plan")
    await world.settle()
    before = len(world.receiver.accepted)
    (push,) = await world.pushes(task)
    world.sender.unfollow(push.task, push.id)

    async def answered() -> None:
        await world.send("", "3", None, task=task.id)
        await world.settle()

    world.store.meanwhile = answered
    await world.sender.start()
    await world.settle()
    assert [each.state for each in world.receiver.accepted[before:]][-1] == "TASK_STATE_COMPLETED"
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]


async def test_polling_continues_after_the_store_could_not_be_read(make: Any) -> None:
    class Unreadable(MemoryStore):
        unreadable = False

        async def undelivered_pushes(self, *, woken: bool = False) -> Any:
            if self.unreadable:
                raise ServerError("the store cannot be read now")
            return await super().undelivered_pushes(woken=woken)

    store = Unreadable()
    world = await make(store)
    world.receiver.status = 410
    task = await world.send("echo")
    await world.settle()
    await wake(world, task)
    world.receiver.status = 200
    store.unreadable = True
    await world.pass_time(60, step=1)
    assert world.receiver.accepted == []
    store.unreadable = False
    await world.pass_time(10, step=1)
    assert len(world.receiver.accepted) == 3


# -- many ------------------------------------------------------------------------------------------------------------


async def test_ten_thousand_webhooks_of_parked_tasks_are_little(make: Any) -> None:
    number = 10_000
    store = MemoryStore()
    world = await make(store, signer=None)
    task = await world.send("plan")
    await world.settle()
    stored = await store.task(task.id)
    (push,) = await world.pushes(task)
    rows = [
        structs.replace(stored.row, number=stored.row.number + each, id=f"{stored.row.id}-{each}")
        for each in range(1, number + 1)
    ]
    pushes = [structs.replace(push, task=row.number, secrets=bytes(push.secrets)) for row in rows]
    gc.collect()
    tracemalloc.start()
    for row, each in zip(rows, pushes, strict=True):
        world.sender.follow(row, each)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert world.sender.open_count == number + 1
    assert world.sender.busy_count == 0
    assert used / number < 1500, f"{used / number:.0f} bytes each"


async def test_a_stream_whose_chunks_are_not_brought_is_not_looked_at_with_each_of_them(make: Any) -> None:
    class Counting(MemoryStore):
        looks = 0

        async def records(self, number: int, after: int, limit: int) -> Any:
            self.looks += 1
            return await super().records(number, after, limit)

    from dragoman import Agent

    agent = Agent("streamer")

    @agent.skill
    async def stream(text: str):
        for _ in range(500):
            yield "word "
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    store = Counting()
    world = await make(store, agent=agent)
    await world.send("stream")
    await world.pass_time(1, step=0.1)
    assert [each.state for each in world.receiver.accepted] == ["TASK_STATE_WORKING", None, "TASK_STATE_COMPLETED"]
    assert store.looks < 20


async def test_the_reason_of_cannot_connect_holds_no_secret() -> None:
    assert CannotConnect("nobody at https://hooks.example.com/S3CR3T").reason == "CANNOT_CONNECT"
