"""Any node answers any request: two engines on one real PostgreSQL, and an agent that waits for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from login_link import handle_of, link

from dragoman import Agent, Context
from dragoman.bus.postgres import PostgresBus
from dragoman.clock import SystemClock
from dragoman.engine.call import CallContext
from dragoman.engine.operations import EngineSettings, Service
from dragoman.engine.ports.agent import ForeignTasks
from dragoman.model.error import InvalidParams, ServerError, TaskNotCancelable, UnsupportedOperation
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task
from dragoman.outputs import Ask, Reply
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.agent.base import Backend
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes
from dragoman.stores.postgres.store import PostgresStore

ME = CallContext()
SECONDS = 15  # what hangs fails


class Gates:
    """Where the skills of the test wait, and what they have done, whichever node they ran on."""

    def __init__(self) -> None:
        self.entered: dict[str, asyncio.Event] = {}
        self.opened: dict[str, asyncio.Event] = {}
        self.log: list[str] = []

    def enter(self, name: str) -> asyncio.Event:
        return self.entered.setdefault(name, asyncio.Event())

    def open(self, name: str) -> asyncio.Event:
        return self.opened.setdefault(name, asyncio.Event())

    async def __call__(self, name: str) -> None:
        self.log.append(f"begin {name}")
        self.enter(name).set()
        await self.open(name).wait()
        self.log.append(f"end {name}")


def build_agent(gates: Gates) -> Agent:
    agent = Agent("test")

    @agent.skill
    async def work(name: str) -> AsyncIterator[str]:
        yield "before "
        await gates(name)
        yield "after"

    @agent.skill
    async def ask(name: str, ctx: Context) -> str:
        answer = await ctx.ask("which?")
        await gates(name)
        return f"took {answer}; then {[message.text async for message in _at_once(ctx)]}"

    @agent.skill
    async def listen(name: str, ctx: Context) -> AsyncIterator[str]:
        await gates(name)
        async for message in ctx.messages():
            yield message.text
            if message.text == "stop":
                return

    @agent.skill
    async def log_in(name: str, ctx: Context) -> str:
        login = await ctx.ask_auth("Log in", url=link)
        gates.log.append(f"{name} {login}")
        return f"{login}; then {[message.text async for message in _at_once(ctx)]}"

    @agent.skill(replies=True)
    async def greet(name: str) -> Reply:
        await gates(name)
        return Reply(f"hello {name}")

    return agent


async def _at_once(ctx: Context) -> AsyncIterator[Message]:
    """The messages that are there already."""
    async with aclosing(ctx.messages()) as messages:
        while True:
            try:
                async with asyncio.timeout(0.5):
                    yield await anext(messages)
            except TimeoutError:
                return


class Node:
    """One engine with its store and bus."""

    def __init__(self, url: str, agent: Agent, name: str, runs_limit: int | None = None) -> None:
        clock = SystemClock()
        self.store = PostgresStore(PostgresDatabase(url), PostgresNodes(url), name=name, runs_limit=runs_limit)
        ownership = self.store.ownership
        self.bus = PostgresBus(
            clock, url, self.store.generations, on_foreign=ownership.on_touched, on_work=ownership.on_work
        )
        ownership.connect(self.bus.announce_work, self.bus.notify)
        self.service = Service(
            EngineAgent(agent), self.store, self.bus, clock, EngineSettings(drain=0), ownership=ownership
        )

    async def open(self) -> None:
        await self.store.open()
        await self.bus.open()
        await self.service.start()

    async def close(self) -> None:
        await self.service.close()
        await self.bus.close()
        await self.store.close()

    async def send(
        self,
        skill: str,
        name: str,
        *,
        task: Task | None = None,
        context: str | None = None,
        wait: bool = True,
        message_id: str | None = None,
        new_task_id: str | None = None,
    ) -> Any:
        part = Part(data={"name": name}) if task is None else Part(text=name)
        task_id = None if task is None else task.id
        message = Message(message_id or str(uuid4()), Role.USER, (part,), context, task_id)
        configuration = SendMessageConfiguration(return_immediately=not wait)
        metadata = {"skillId": skill}
        request = SendMessageRequest(message, configuration, metadata, new_task_id=new_task_id)
        async with asyncio.timeout(SECONDS):
            return (await self.service.send(ME, request)).result

    async def get(self, task: Task) -> Task:
        result = (await self.service.get(ME, GetTaskRequest(task.id))).result
        assert isinstance(result, Task)
        return result


class Pair:
    """Two nodes, and the gates of their agents."""

    def __init__(self, gates: Gates, one: Node, two: Node) -> None:
        self.gates, self.one, self.two = gates, one, two

    async def until(self, task: Task, *states: State) -> Task:
        """Wait until the other node sees one of these states."""
        async with asyncio.timeout(SECONDS):
            generation = -1
            while True:
                request = GetTaskRequest(task.id, current_generation=generation)
                task = (await self.two.service.get(ME, request)).result
                if task.state in states:
                    return task
                generation = task.generation or 0

    async def until_messages(self, task: Task, number: int) -> None:
        """Wait until the other node sees so many messages in the history."""
        async with asyncio.timeout(SECONDS):
            while len((await self.two.get(task)).history) < number:
                pass


@asynccontextmanager
async def nodes(url: str, *limits: int | None) -> AsyncIterator[Pair]:
    gates = Gates()
    pair = [
        Node(url, build_agent(gates), f"node-{number}", limit) for number, limit in enumerate(limits or (None, None))
    ]
    for node in pair:
        await node.open()
    try:
        yield Pair(gates, *pair)
    finally:
        for gate in gates.opened.values():
            gate.set()
        for node in pair:
            await node.close()


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[Pair]:
    async with nodes(postgres_url) as pair:
        yield pair


async def test_a_task_is_read_and_listed_anywhere(pair: Pair) -> None:
    pair.gates.open("a").set()
    task = await pair.one.send("work", "a")
    assert (task.state, task.text) == (State.COMPLETED, "before after")
    assert await pair.two.get(task) == await pair.one.get(task)
    listed = await pair.two.service.list(ME, ListTasksRequest())
    assert [one.id for one in listed.tasks] == [task.id] and listed.total_size == 1


async def test_a_stream_of_another_nodes_task_has_every_event_once(pair: Pair) -> None:
    task = await pair.one.send("work", "a", wait=False)
    await pair.gates.enter("a").wait()
    stream = await pair.two.service.subscribe(ME, SubscribeToTaskRequest(task.id))
    generations: list[int] = []
    async with asyncio.timeout(SECONDS), aclosing(stream.batches):
        async for batch in stream.batches:
            generations += [record.generation for record in batch.records]
            pair.gates.open("a").set()
    ended = await pair.one.get(task)
    assert generations == list(range(generations[0], (ended.generation or 0) + 1))


async def test_a_waiting_task_is_answered_on_another_node(pair: Pair) -> None:
    pair.gates.open("q").set()
    task = await pair.one.send("ask", "q")
    assert task.state is State.INPUT_REQUIRED
    task = await pair.two.send("ask", "this one", task=task)
    assert (task.state, task.text) == (State.COMPLETED, "took this one; then []")


async def test_of_two_answers_at_once_one_is_the_answer_and_the_other_a_message_for_the_run(pair: Pair) -> None:
    task = await pair.one.send("ask", "q")
    sends = [
        asyncio.ensure_future(node.send("ask", word, task=task)) for node, word in ((pair.one, "a"), (pair.two, "b"))
    ]
    await pair.gates.enter("q").wait()
    await pair.until_messages(task, 3)
    pair.gates.open("q").set()
    ended = [await send for send in sends]
    assert ended[0].text == ended[1].text
    assert ended[0].text in ("took a; then ['b']", "took b; then ['a']")
    assert pair.gates.log == ["begin q", "end q"]


async def test_no_message_is_a_login_wherever_it_is_sent_and_of_two_logins_one_counts(pair: Pair) -> None:
    task = await pair.one.send("log_in", "l")
    kept = [await node.send("log_in", word, task=task) for node, word in ((pair.one, "a"), (pair.two, "b"))]
    assert [(one.state, one.generation) for one in kept] == [(State.AUTH_REQUIRED, task.generation)] * 2
    assert [message.text for message in kept[1].history[1:]] == ["Log in", "a", "b"]
    repeated = await pair.one.send("log_in", "b", task=task, message_id=kept[1].history[-1].message_id)
    assert repeated.history == kept[1].history
    for handle in (task.id, handle_of(task)[:-1], handle_of(task).swapcase()):
        with pytest.raises(InvalidParams):
            await pair.two.service.resume(handle, "Administrator")
    assert pair.gates.log == []
    logins = [node.service.resume(handle_of(task), word) for node in (pair.one, pair.two) for word in ("Ann", "Bea")]
    results = await asyncio.gather(*logins, return_exceptions=True)
    assert [isinstance(each, InvalidParams) for each in results].count(True) == 3
    ended = await pair.until(task, State.COMPLETED)
    assert ended.text in ("Ann; then ['a', 'b']", "Bea; then ['a', 'b']")
    assert len(pair.gates.log) == 1
    assert [message.text for message in ended.history[1:]] == ["Log in", "a", "b"]


class Foreign:
    """A foreign task that goes on in the moment in which two nodes look at it, and the runs of the task in front."""

    def __init__(self) -> None:
        self.runs: list[bool] = []
        self._looks = asyncio.Barrier(2)
        self.agent = Agent("front", Backend(self.run, foreign=ForeignTasks("there", self.has_moved)))

    async def run(self, ctx: Any) -> AsyncIterator[Any]:
        self.runs.append(ctx.resume is not None)
        yield "it went on" if ctx.resume is not None else Ask("?", ref={"n": 1}, forwards=True)

    async def has_moved(self, ref: Any) -> bool:
        assert ref == {"n": 1}
        await self._looks.wait()
        return True


async def test_a_foreign_task_that_two_nodes_watch_continues_the_task_in_front_once(postgres_url: str) -> None:
    foreign = Foreign()
    one, two = (Node(postgres_url, foreign.agent, name) for name in ("one", "two"))
    async with AsyncExitStack() as opened:
        for node in (one, two):
            opened.push_async_callback(node.close)
        await one.open()
        task = await one.send("", "go")
        assert task.state is State.INPUT_REQUIRED
        await two.open()  # it takes up the watch of a task that waits already
        ended = await Pair(Gates(), one, two).until(task, State.COMPLETED)
    assert ended.text == "it went on"
    assert sum(message.role == Role.USER for message in ended.history) == 1  # nobody answered
    assert foreign.runs == [False, True]


async def test_words_for_a_working_task_reach_its_run_from_anywhere(pair: Pair) -> None:
    task = await pair.one.send("listen", "l", wait=False)
    pair.gates.open("l").set()
    first = asyncio.ensure_future(pair.two.send("listen", "one ", task=task))
    await pair.until(task, State.WORKING)
    await pair.until_messages(task, 2)
    ended = await pair.one.send("listen", "stop", task=task)
    assert (ended.state, ended.text) == (State.COMPLETED, "one stop")
    assert (await first).id == task.id
    assert [message.text for message in (await pair.two.get(task)).history][1:] == ["one ", "stop"]


async def test_a_cancel_from_another_node_stops_the_run_and_whoever_waits_learns_of_it(pair: Pair) -> None:
    waiting = asyncio.ensure_future(pair.one.send("work", "a"))
    await pair.gates.enter("a").wait()
    (task,) = (await pair.two.service.list(ME, ListTasksRequest())).tasks
    canceled = (await pair.two.service.cancel(ME, CancelTaskRequest(task.id))).result
    assert canceled.state is State.CANCELED
    assert (await waiting).state is State.CANCELED
    async with asyncio.timeout(SECONDS):
        while pair.one.service.running:  # noqa: ASYNC110 - the run has no event for its end
            await asyncio.sleep(0)
    assert pair.gates.log == ["begin a"]
    with pytest.raises(TaskNotCancelable):
        await pair.one.service.cancel(ME, CancelTaskRequest(task.id))


async def test_the_runs_of_one_context_are_in_order_wherever_their_messages_arrive(pair: Pair) -> None:
    context = str(uuid4())
    for number in range(6):
        node = (pair.one, pair.two)[number % 2]
        await node.send("work", str(number), context=context, wait=False)
    for number in range(6):
        async with asyncio.timeout(SECONDS):
            await pair.gates.enter(str(number)).wait()
        assert len([line for line in pair.gates.log if line.startswith("begin")]) == number + 1
        pair.gates.open(str(number)).set()
    tasks = (await pair.two.service.list(ME, ListTasksRequest(context_id=context))).tasks
    for task in tasks:
        await pair.until(task, State.COMPLETED)
    assert pair.gates.log == [f"{verb} {number}" for number in range(6) for verb in ("begin", "end")]


async def test_a_repeat_on_another_node_runs_nothing_and_gets_the_task(pair: Pair) -> None:
    pair.gates.open("a").set()
    message_id = str(uuid4())
    one, two = await asyncio.gather(
        pair.one.send("work", "a", message_id=message_id), pair.two.send("work", "a", message_id=message_id)
    )
    assert one.id == two.id and two.state is State.COMPLETED
    assert (await pair.one.send("work", "a", message_id=message_id)).id == one.id
    assert pair.gates.log == ["begin a", "end a"]


async def test_a_repeat_of_what_is_about_to_be_answered_elsewhere_gets_the_same_reply(pair: Pair) -> None:
    message_id = str(uuid4())
    first = asyncio.ensure_future(pair.one.send("greet", "you", message_id=message_id))
    await pair.gates.enter("you").wait()
    second = asyncio.ensure_future(pair.two.send("greet", "you", message_id=message_id))
    await asyncio.wait((second,), timeout=0.05)
    pair.gates.open("you").set()
    assert isinstance(await first, Message)
    assert await second == await first
    assert pair.gates.log == ["begin you", "end you"]


async def test_an_id_that_a_caller_has_chosen_is_given_once(pair: Pair) -> None:
    pair.gates.open("a").set()
    results = await asyncio.gather(
        *(node.send("work", "a", new_task_id="chosen") for node in (pair.one, pair.two)), return_exceptions=True
    )
    ended = [result for result in results if isinstance(result, Task)]
    assert len(ended) >= 1 and {task.id for task in ended} == {"chosen"}
    refused = [result for result in results if not isinstance(result, Task)]
    # That of a task which has ended meanwhile cannot be used either.
    assert all(isinstance(error, (InvalidParams, ServerError, UnsupportedOperation)) for error in refused)


async def test_a_front_leaves_the_work_to_others_and_answers_with_it(postgres_url: str) -> None:
    async with nodes(postgres_url, 0, None) as pair:
        waiting = asyncio.ensure_future(pair.one.send("work", "a"))
        await pair.gates.enter("a").wait()
        assert (pair.one.service.running, pair.two.service.running) == (0, 1)
        pair.gates.open("a").set()
        assert (await waiting).text == "before after"
        question = await pair.one.send("ask", "q")
        pair.gates.open("q").set()
        assert (await pair.one.send("ask", "now", task=question)).text == "took now; then []"


async def test_a_node_with_no_room_leaves_tasks_in_the_queue_until_it_has_some(postgres_url: str) -> None:
    async with nodes(postgres_url, 1, 0) as pair:
        tasks = [await pair.one.send("work", str(number), wait=False) for number in range(3)]
        for number in range(3):
            await pair.gates.enter(str(number)).wait()
            assert len(pair.gates.log) == 2 * number + 1
            pair.gates.open(str(number)).set()
            await pair.until(tasks[number], State.COMPLETED)


async def test_a_node_that_stops_hands_over_what_it_has_not_begun(postgres_url: str) -> None:
    async with nodes(postgres_url, 1, 1) as pair:
        busy = await pair.two.send("work", "busy", wait=False)
        first = await pair.one.send("work", "a", wait=False)
        await pair.gates.enter("a").wait()
        second = await pair.one.send("work", "b", wait=False)
        await pair.one.close()
        pair.gates.open("busy").set()
        await pair.until(busy, State.COMPLETED)
        assert (await pair.until(first, State.FAILED)).status.message.text == "the server that ran it is gone"
        await pair.gates.enter("b").wait()
        pair.gates.open("b").set()
        assert (await pair.until(second, State.COMPLETED)).text == "before after"
        assert pair.gates.log == ["begin busy", "begin a", "end busy", "begin b", "end b"]
        await pair.one.open()
