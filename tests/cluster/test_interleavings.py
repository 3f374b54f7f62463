"""Interleavings that chance hardly ever finds: one statement of a node takes long, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from cluster.callers import ANYBODY, get_request, new_message
from cluster.machine import Cluster
from cluster.node import SimulatedNode

from dragoman.clock import sleep
from dragoman.model.operation import SendMessageConfiguration, SendMessageRequest
from dragoman.model.state import State
from dragoman.model.task import Task


class Scene:
    """A cluster without chance: requests that are made one by one."""

    def __init__(self, nodes: int = 1) -> None:
        self.cluster = Cluster(1, nodes=nodes)
        self.nodes = self.cluster.living

    def call(self, node: SimulatedNode, work: Any) -> Any:
        """Make a request, and wait for its answer."""
        task = self.start(node, work)
        assert self.cluster.run(60, task.done), "no answer"
        return task.result()

    def start(self, node: SimulatedNode, work: Any) -> Any:
        """Make a request."""
        return node.loop.spawn(work)

    def send(self, node: SimulatedNode, script: str, context: str | None = None) -> Task:
        """Create a task, and do not wait for its end."""
        message = new_message(str(uuid4()), script, None, context)
        request = SendMessageRequest(message, SendMessageConfiguration(return_immediately=True))
        return self.call(node, node.services["serial"].send(ANYBODY, request)).result

    def get(self, node: SimulatedNode, task: Task) -> Task:
        return self.call(node, node.services["serial"].get(ANYBODY, get_request(task.id))).result

    def delay_once(self, node: SimulatedNode, statement: str, seconds: float) -> None:
        """Let the next statement of this kind take long, as on a connection that is dead and does not show it."""
        fast, clock = getattr(node.link, statement), self.cluster.world

        async def slow(*args: Any, **options: Any) -> Any:
            setattr(node.link, statement, fast)
            await sleep(_LoopClock(clock, node), seconds)
            return await fast(*args, **options)

        setattr(node.link, statement, slow)


class _LoopClock:
    def __init__(self, world: Any, node: SimulatedNode) -> None:
        self._world, self._node = world, node

    def now(self) -> int:
        return self._world.now_ms()

    def call_later(self, seconds: float, callback: Any) -> Any:
        return self._node.loop.call_later(seconds, callback)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.cluster.close()


def test_a_task_that_takes_long_to_load_is_not_recovered_twice(scene: Scene) -> None:
    (node,) = scene.nodes
    first = scene.send(node, "once slow", "c")
    second = scene.send(node, "once long chunk", "c")
    scene.delay_once(node, "notes", 7)  # the second is loaded when the first has ended
    scene.cluster.run(30)
    assert scene.get(node, first).state is State.COMPLETED
    assert scene.get(node, second).state is State.COMPLETED
