"""Interleavings that chance hardly ever finds: one statement of a node takes long, and everything else goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from cluster.callers import ANYBODY, get_request, new_message
from cluster.machine import Cluster
from cluster.node import SimulatedNode

from dragoman.clock import sleep
from dragoman.engine.call import CallContext
from dragoman.engine.ports.agent import Plan
from dragoman.engine.quota import caller_of
from dragoman.model.error import ServerError
from dragoman.model.operation import CancelTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.record import fold
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.model.user import User


class Scene:
    """A cluster without chance: requests that are made one by one."""

    def __init__(self, nodes: int = 1) -> None:
        self.cluster = Cluster(1, nodes=nodes)
        self.nodes = self.cluster.living
        self.awaited: set[str] = set()  # statements that are to take long and were not sent yet

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
        self,
        node: SimulatedNode,
        text: str,
        context: str | None = None,
        task: Task | None = None,
        *,
        wait: bool = False,
        agent: str = "serial",
    ) -> Any:
        """The request that does so."""
        message = new_message(str(uuid4()), text, None if task is None else task.id, context)
        request = SendMessageRequest(message, SendMessageConfiguration(return_immediately=not wait))
        return node.services[agent].send(ANYBODY, request)

    def get(self, node: SimulatedNode, task: Task) -> Task:
        return self.call(node, node.services["serial"].get(ANYBODY, get_request(task.id))).result

    def delay(self, node: SimulatedNode, statement: str, *seconds: float) -> None:
        """Let the next statements of this kind take long, as on a connection that is dead and does not show it."""
        fast, clock = getattr(node.link, statement), self.cluster.world
        delays = list(seconds)
        self.awaited.add(statement)

        async def slow(*args: Any, **options: Any) -> Any:
            self.awaited.discard(statement)
            delay = delays.pop(0)
            if not delays:
                setattr(node.link, statement, fast)
            await sleep(_LoopClock(clock, node), delay)
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
    assert not scene.awaited


def test_a_task_that_takes_long_to_load_is_not_recovered_twice(scene: Scene) -> None:
    (node,) = scene.nodes
    first = scene.send(node, "once slow", "c")
    second = scene.send(node, "once long chunk", "c")
    scene.delay(node, "notes", 7)  # the second is loaded when the first has ended
    scene.cluster.run(30)
    assert scene.get(node, first).state is State.COMPLETED
    assert scene.get(node, second).state is State.COMPLETED


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_who_gives_up_while_his_answer_is_accepted_leaves_the_task_to_others(scene: Scene) -> None:
    one, two = scene.nodes
    task = scene.send(one, "once ask chunk")
    scene.cluster.run(1)
    scene.delay(one, "notes", 8)
    answering = scene.start(one, scene.sending(one, "a", task=task))
    scene.cluster.run(0.5)
    one.loop.call_soon(answering.cancel)
    scene.cluster.run(0.5)
    started = scene.cluster.world.now
    assert scene.send(two, "b", task=task).state is State.WORKING
    assert scene.cluster.world.now - started < 0.2, "it had to wait"
    scene.cluster.run(1)
    assert scene.get(one, task).state is State.COMPLETED


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_a_session_goes_on_at_its_node_if_the_one_that_got_the_answer_cannot_leave_it_soon(scene: Scene) -> None:
    one, two = scene.nodes
    task = scene.call(one, scene.sending(one, "once ask chunk", agent="pinned")).result
    scene.cluster.run(1)
    scene.delay(two, "release", 60)
    scene.call(two, scene.sending(two, "a", task=task, agent="pinned"))
    scene.cluster.run(10)  # the audit sees where it runs
    found = scene.call(one, one.services["pinned"].get(ANYBODY, get_request(task.id))).result
    assert found.state is State.COMPLETED


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_a_message_that_another_node_has_accepted_is_not_refused_because_its_task_has_just_ended(scene: Scene) -> None:
    one, two = scene.nodes
    task = scene.send(one, "once slow")
    message = new_message(str(uuid4()), "more", task.id, None)
    request = SendMessageRequest(message, SendMessageConfiguration(return_immediately=True))
    fast = one.link.duplicate_of

    async def answer_late(*args: Any) -> Any:
        one.link.duplicate_of = fast
        answer = await fast(*args)
        await sleep(_LoopClock(scene.cluster.world, one), 7)
        return answer

    one.link.duplicate_of = answer_late
    sending = scene.start(one, one.services["serial"].send(ANYBODY, request))
    scene.cluster.run(0.1)
    assert scene.call(two, two.services["serial"].send(ANYBODY, request)).result.id == task.id
    assert scene.cluster.run(30, sending.done)
    assert scene.get(two, task).state is State.COMPLETED
    assert sending.result().result.id == task.id


def reply_slowly(node: SimulatedNode) -> None:
    """Let an agent promise a reply, and take so long that its draft becomes a task; its runs may be repeated."""
    tries = count(1)

    async def run(ctx: Any) -> AsyncIterator[str]:
        number = next(tries)
        await sleep(ctx.clock, 2)
        yield f"try {number}, "
        await sleep(ctx.clock, 10)
        yield f"end {number}"

    agent: Any = node.services["serial"]._agent  # pyright: ignore[reportPrivateUsage]
    agent.plan = lambda _: Plan(run, replies=True, restarts=True)  # pyright: ignore[reportUnknownLambdaType]


def lose_draft(scene: Scene, node: SimulatedNode) -> None:
    """Let the lease end while the change that makes a task of a draft is on its way, and stays there."""
    scene.cluster.run(0.5)
    node.beat_link.break_network(9)
    scene.delay(node, "commit", 60, 14)
    scene.cluster.run(60)


def test_a_draft_whose_run_was_given_up_goes_on_under_a_new_claim(scene: Scene) -> None:
    (node,) = scene.nodes
    reply_slowly(node)
    sending = scene.start(node, scene.sending(node, "x", wait=True))
    lose_draft(scene, node)
    assert sending.exception() is not None  # the caller was told to try again
    ((number, row),) = scene.cluster.audit.rows.items()
    task = scene.call(node, node.services["serial"].get(ANYBODY, get_request(row.id))).result
    assert (task.state, task.text) == (State.COMPLETED, "try 2, end 2")
    records = scene.call(node, node.store.records(number, 0, 99))
    assert fold(records[0].event, [record.event for record in records[1:]]).text == task.text


def test_a_stream_of_a_draft_that_was_given_up_is_refused_and_not_empty(scene: Scene) -> None:
    (node,) = scene.nodes
    reply_slowly(node)
    request = SendMessageRequest(new_message(str(uuid4()), "x"))
    streaming = scene.start(node, node.services["serial"].stream(ANYBODY, request))
    lose_draft(scene, node)
    with pytest.raises(ServerError, match="try again"):
        streaming.result()


def test_runs_count_for_their_caller_who_gave_up_and_wherever_they_come_from(scene: Scene) -> None:
    (node,) = scene.nodes
    service = node.services["serial"]
    counts = service._quota.tasks.counts  # pyright: ignore[reportPrivateUsage]
    ann = User("ann")

    def start(context: str | None) -> Any:
        message = new_message(str(uuid4()), "once slow", None, context)
        request = SendMessageRequest(message, SendMessageConfiguration(return_immediately=True))
        return scene.start(node, service.send(CallContext(user=ann), request, caller_of(ann)))

    sending = start("c")
    scene.cluster.run(0)
    node.loop.call_soon(sending.cancel)  # while it is being accepted
    scene.cluster.run(0.5)
    assert counts == {"user ann": 1}
    start("c")
    scene.cluster.run(2.5)  # the second is taken when the first has ended
    assert len(scene.cluster.audit.rows) == 2
    assert counts == {"user ann": 1}
    scene.cluster.run(5)
    assert counts == {}


def test_a_message_that_arrives_while_a_task_is_loaded_is_passed_to_its_run_once(scene: Scene) -> None:
    (node,) = scene.nodes
    texts: list[str] = []

    async def run(ctx: Any) -> AsyncIterator[str]:
        await sleep(ctx.clock, 2)
        if ctx.text == "listen":
            async for message in ctx.messages():
                texts.append(message.text)
                if message.text == "stop":
                    break
        yield "done"

    agent: Any = node.services["serial"]._agent  # pyright: ignore[reportPrivateUsage]
    agent.plan = lambda _: Plan(run)  # pyright: ignore[reportUnknownLambdaType]
    scene.send(node, "first", "c")
    task = scene.send(node, "listen", "c")
    scene.delay(node, "notes", 0.01, 5)  # when its turn comes: its history, and what its runs have left
    scene.cluster.run(4)
    scene.send(node, "news", task=task)
    scene.cluster.run(10)
    scene.send(node, "stop", task=task)
    scene.cluster.run(4)
    assert texts == ["news", "stop"]
    assert [message.text for message in scene.get(node, task).history] == ["listen", "news", "stop"]


def use(scene: Scene, run: Any, *, restarts: bool = False) -> None:
    """Let the agent of all nodes run this."""
    for node in scene.nodes:
        agent: Any = node.services["serial"]._agent  # pyright: ignore[reportPrivateUsage]
        agent.plan = lambda _: Plan(run, restarts=restarts)  # pyright: ignore[reportUnknownLambdaType]


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_a_task_finds_what_the_one_before_it_in_the_conversation_saved_on_another_node(scene: Scene) -> None:
    one, two = scene.nodes

    async def run(ctx: Any) -> AsyncIterator[str]:
        await sleep(ctx.clock, 1)
        ctx.state["texts"] = [*ctx.state.get("texts", ()), ctx.message.text]
        yield " ".join(ctx.state["texts"])

    use(scene, run)
    first = scene.send(one, "a", "c")
    scene.delay(two, "commit", 0, 2)  # the second asks for its turn while the first is at work, and gets it afterwards
    second = scene.send(two, "b", "c")
    scene.cluster.run(10)
    assert [scene.get(two, task).text for task in (first, second)] == ["a", "a b"]


def test_an_effect_that_is_under_way_outlasts_a_lease_that_cannot_be_renewed(scene: Scene) -> None:
    (node,) = scene.nodes
    effects: list[str] = []

    async def charge(clock: Any) -> str:
        effects.append("charged")
        await sleep(clock, 12)
        return "paid"

    async def run(ctx: Any) -> AsyncIterator[str]:
        yield await ctx.once("charge", charge, ctx.clock)

    use(scene, run, restarts=True)
    task = scene.send(node, "pay")
    scene.cluster.run(0.5)
    scene.cluster.network.restart(20)
    scene.cluster.run(40)
    task = scene.get(node, task)
    assert (task.state, task.text, effects) == (State.COMPLETED, "paid", ["charged"])


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_a_task_whose_cancel_takes_long_is_not_recovered_meanwhile(scene: Scene) -> None:
    one, two = scene.nodes
    task = scene.send(one, "once chunk long long")
    scene.cluster.run(1)
    scene.delay(two, "commit", 9, 9)
    canceled = scene.call(two, two.services["serial"].cancel(ANYBODY, CancelTaskRequest(task.id))).result
    assert canceled.state is State.CANCELED
    assert scene.get(one, task).state is State.CANCELED
    assert scene.call(two, two.store.task(task.id)).epoch == 2, "it was claimed again"
