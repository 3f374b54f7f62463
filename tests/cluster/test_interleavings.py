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

    def send(self, node: SimulatedNode, text: str, context: str | None = None, task: Task | None = None) -> Task:
        """Create a task, or send a message to one, and do not wait for its end."""
        return self.call(node, self.sending(node, text, context, task)).result

    def sending(
        self, node: SimulatedNode, text: str, context: str | None = None, task: Task | None = None, caller: str = ""
    ) -> Any:
        """The request that does so."""
        message = new_message(str(uuid4()), text, None if task is None else task.id, context)
        request = SendMessageRequest(message, SendMessageConfiguration(return_immediately=True))
        return node.services["serial"].send(ANYBODY, request, caller)

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
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    scene = Scene(getattr(request, "param", 1))
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


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_who_gives_up_while_his_answer_is_accepted_leaves_the_task_to_others(scene: Scene) -> None:
    one, two = scene.nodes
    task = scene.send(one, "once ask chunk")
    scene.cluster.run(1)
    scene.delay_once(one, "notes", 8)
    answering = scene.start(one, scene.sending(one, "a", task=task))
    scene.cluster.run(0.5)
    one.loop.call_soon(answering.cancel)
    scene.cluster.run(0.5)
    started = scene.cluster.world.now
    assert scene.send(two, "b", task=task).state is State.WORKING
    assert scene.cluster.world.now - started < 0.2, "it had to wait"
    scene.cluster.run(1)
    assert scene.get(one, task).state is State.COMPLETED
