"""A webhook that is woken while the server runs is delivered at once, and does not wait for the next look."""

from __future__ import annotations

from typing import Any

from dragoman.engine.ports.store import PushState
from dragoman.webhooks import service


async def test_a_webhook_woken_by_the_server_itself_is_delivered_soon(world: Any) -> None:
    world.receiver.status = 410
    task = await world.send("echo")
    await world.settle()
    (push,) = await world.pushes(task)
    assert push.state is PushState.DEAD
    world.receiver.status = 200
    assert await world.store.wake_pushes(task.id, push.id) == 1
    world.courier.wake()
    await world.pass_time(service.WAKE_POLL_INTERVAL / 2, step=0.5)
    assert [each.number for each in world.receiver.came] == [2, 3, 4]
    assert [push.state for push in await world.pushes(task)] == [PushState.DONE]
