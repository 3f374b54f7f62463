"""An agent in front of another stops, crashes and begins again: the work behind is done once, and told once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.polling import until_async

from dragoman import Agent, Client, Context, State, Task
from dragoman.errors import CannotConnect, ServerError
from dragoman.model.event import ArtifactUpdate
from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
from dragoman.outputs import Reply
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import served

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Write

VERSIONS = ["0.1", "0.3", "1.0", "1.1"]
ANSWERS = {"How many days?": "3", "Sure?": "yes"}


class Behind:
    """An agent, and what it has done."""

    def __init__(self) -> None:
        self.agent = Agent("behind")
        self.begun: list[str] = []
        self.received: list[str] = []
        self.ended: list[str] = []
        self.halfway = threading.Event()
        self.go_on = threading.Event()
        for skill in (self.wait, self.trip, self.hello, self.listen):
            self.agent.skill(skill)

    async def wait(self, text: str = "") -> Any:
        """Say something, and the rest when the test says so."""
        self.begun.append(text)
        try:
            yield "one "
            yield "two "
            self.halfway.set()
            await asyncio.to_thread(self.go_on.wait)
            yield "three "
            yield "four"
            self.ended.append("done")
        except asyncio.CancelledError:
            self.ended.append("canceled")
            raise

    async def trip(self, ctx: Context, city: str = "Porto") -> Any:
        self.received.append(ctx.text)
        await ctx.artifact({"city": city}, name="side")
        yield f"{city}: "
        days = await ctx.ask("How many days?", type=int)
        yield f"{days} days, "
        yield str(await ctx.ask("Sure?"))

    async def hello(self, ctx: Context) -> Reply:
        self.begun.append(ctx.text)
        return Reply("hello")

    async def listen(self, ctx: Context) -> Any:
        try:
            async for message in ctx.messages():
                self.received.append(message.text)
                yield f"{message.text} "
                if message.text == "enough":
                    return
        except asyncio.CancelledError:
            self.ended.append("canceled")
            raise

    @contextmanager
    def served(self, app: Any = None) -> Generator[str]:
        with served(app or self.agent) as url:
            yield url
            self.go_on.set()


class Crashing(MemoryStore):
    """A store that forgets what it is told from the n-th write on, as a crash does."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after
        self.crashed = asyncio.Event()

    def queue(self, write: Write) -> None:
        self.left -= 1
        if self.left < 0:
            self.crashed.set()
        else:
            super().queue(write)

    def mend(self) -> None:
        self.left = 1_000_000


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture
def address(behind: Behind) -> Generator[str]:
    with behind.served() as url:
        yield url


@pytest.fixture
def restart(start: Any, tmp_path: Path) -> Callable[..., Awaitable[Any]]:
    """One server in front after the other on one file."""
    engines: list[Any] = []

    async def restart(target: str, **options: Any) -> Any:
        if engines:
            await engines[-1].connection.close()
        engines.append(await start(Agent.from_a2a(target, **options), store=SqliteStore(tmp_path / "tasks.db")))
        return engines[-1]

    return restart


async def until_text(engine: Any, task: Task, text: str) -> None:
    async with asyncio.timeout(10):
        while (await engine.get(task)).text != text:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_noted(engine: Any, task: Task, key: str) -> None:
    number = (await engine.store.task(task.id)).row.number
    async with asyncio.timeout(10):
        while not any(key.encode() in note.body for note in await engine.store.notes(number)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def chunks_of(engine: Any, task: Task) -> list[str]:
    events = [event for event in await engine.journal(task) if isinstance(event, ArtifactUpdate)]
    return [event.artifact.text for event in events]


def tool(name: str) -> dict[str, Any]:
    return {"metadata": {"skillId": name}}


# Stopping


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("meanwhile", [False, True], ids=["goes on later", "has ended meanwhile"])
async def test_work_that_goes_on_behind_is_taken_up_where_it_is(
    behind: Behind, address: str, restart: Any, version: str, meanwhile: bool
) -> None:
    engine = await restart(address, protocol=version)
    task = await engine.send("go", wait=False)
    await until_async(behind.halfway.is_set)
    await until_text(engine, task, "one two ")
    await engine.connection.close()
    assert behind.ended == []  # a server that stops cancels nothing
    if meanwhile:
        behind.go_on.set()
        await until_async(lambda: behind.ended)
    engine = await restart(address, protocol=version)
    behind.go_on.set()
    await engine.idle()
    ended = await engine.get(task)
    assert (ended.state, ended.text) == (State.COMPLETED, "one two three four")
    assert len(ended.artifacts) == 1
    assert behind.begun == ["go"]
    # Every word is in the journal once; the whole text that closes it may stand beside them.
    halfway = await chunks_of(engine, task)
    assert halfway[:2] == ["one ", "two "]
    rest = halfway[2:-1] if halfway[-1] == "one two three four" else halfway[2:]
    assert "".join(rest) in ("three four", "")
    # What callers had read stays as it was, and what came later can be resumed.
    records = await engine.follow(task, 3)
    assert [record.generation for record in records] == list(range(4, len(records) + 4))


async def test_work_that_waited_behind_when_it_was_lost_fails_with_a_plain_reason(
    behind: Behind, address: str, restart: Any
) -> None:
    engine = await restart(address)
    working = await engine.send("go", wait=False)
    waiting = await engine.send("Faro", **tool("trip"))
    await until_async(behind.halfway.is_set)
    await engine.connection.close()
    other = Behind()
    with other.served() as elsewhere:

        async def moved(request: HttpRequest, call_next: CallNext) -> HttpResponse:
            request.url = request.url.replace(address, elsewhere)
            return await call_next(request)

        engine = await restart(address, interceptors=[moved])
        await engine.idle()
        lost = await engine.get(working)
        reason = "the agent behind this one does not know the task any more"
        assert (lost.state, lost.error) == (State.FAILED, reason)
        answered = await engine.send("3", task=waiting)
        assert (answered.state, answered.error) == (State.FAILED, reason)


@pytest.mark.parametrize("returns", [False, True], ids=["stays away", "comes back"])
async def test_an_agent_that_is_away_after_a_restart_is_waited_for_a_while(
    behind: Behind, address: str, restart: Any, returns: bool
) -> None:
    engine = await restart(address)
    task = await engine.send("go", wait=False)
    await until_async(behind.halfway.is_set)
    asked = 0

    async def away(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        nonlocal asked
        asked += 1
        if asked == 1 or (returns and asked > 3):  # first the card, when the agent in front is made
            return await call_next(request)
        raise CannotConnect("nobody", arrived=False)

    engine = await restart(address, interceptors=[away], **({} if returns else {"retries": 2}))
    behind.go_on.set()
    await engine.idle()
    found = await engine.get(task)
    assert asked > 3
    if returns:
        assert (found.state, found.text) == (State.COMPLETED, "one two three four")
    else:
        assert (found.state, found.error) == (State.FAILED, "the agent behind this one cannot be reached")


# In the middle of sending


async def test_a_message_that_was_never_sent_is_sent_after_the_restart(
    behind: Behind, address: str, restart: Any
) -> None:
    reached = asyncio.Event()

    async def hang(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        if request.method == "POST":
            reached.set()
            await asyncio.Event().wait()
        return await call_next(request)

    engine = await restart(address, interceptors=[hang])
    task = await engine.send("go", wait=False)
    await reached.wait()
    engine = await restart(address)
    behind.go_on.set()
    await engine.idle()
    assert (await engine.get(task)).text == "one two three four"
    assert behind.begun == ["go"]


@pytest.mark.parametrize("is_taken", [False, True], ids=["not sent before", "taken before"])
async def test_an_answer_during_whose_sending_the_front_ends_answers_its_question_once(
    behind: Behind, address: str, restart: Any, is_taken: bool
) -> None:
    reached = asyncio.Event()

    async def hang(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        if request.operation == "SendStreamingMessage":
            if is_taken:
                await (await call_next(request)).read()
            reached.set()
            await asyncio.Event().wait()
        return await call_next(request)

    engine = await restart(address)
    task = await engine.send("Faro", **tool("trip"))
    engine = await restart(address, interceptors=[hang])
    await engine.send("4", task=task, wait=False)
    await reached.wait()
    engine = await restart(address)
    await engine.idle()
    found = await engine.get(task)
    assert (found.question, found.artifacts[1].text) == ("Sure?", "Faro: 4 days, ")


@pytest.mark.parametrize("version", VERSIONS)
async def test_words_for_a_task_at_work_are_passed_on_once(
    behind: Behind, address: str, restart: Any, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.agents.remote.run._REFUSAL_TIMEOUT", 0.2)
    engine = await restart(address, protocol=version)
    task = await engine.send("go", wait=False, **tool("listen"))
    await engine.send("one", task=task, wait=False)
    await until_async(lambda: behind.received == ["one"])
    await until_text(engine, task, "one ")
    # In 0.1 nobody says that a message was taken in: it counts as heard after a while.
    await until_noted(engine, task, "remote message")
    engine = await restart(address, protocol=version)
    await engine.send("enough", task=task, wait=False)
    await engine.idle()
    assert (await engine.get(task)).text == "one enough "
    assert behind.received == ["one", "enough"]


# At every write


async def _all_through(engine: Any, task_id: str, *, begin: bool = False) -> Task:
    """Answer whatever a task asks, until it ends."""
    if begin:
        await engine.send("Faro", wait=False, new_task_id=task_id, **tool("trip"))
    while True:
        await engine.idle()
        task = await engine.get(task_id)
        if not task.state.waiting:
            return task
        await engine.send(ANSWERS[task.question], task=task)


@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_a_crash_at_any_write_loses_nothing_and_doubles_nothing(
    behind: Behind, address: str, start: Any, version: str
) -> None:
    crashes = 0
    while True:
        store, task_id = Crashing(after=crashes + 1), f"task-{crashes}"
        engine = await start(Agent.from_a2a(address, protocol=version), store=store)
        behind.received.clear()
        whole = asyncio.create_task(_all_through(engine, task_id, begin=True))
        crash = asyncio.create_task(store.crashed.wait())
        async with asyncio.timeout(10):
            await asyncio.wait((whole, crash), return_when=asyncio.FIRST_COMPLETED)
        whole.cancel()
        crash.cancel()
        await asyncio.gather(whole, crash, return_exceptions=True)
        await engine.connection.close()
        over = not store.crashed.is_set()
        store.mend()
        engine = await start(Agent.from_a2a(address, protocol=version), store=store)
        task = await _all_through(engine, task_id)
        assert task.state is State.COMPLETED
        assert [artifact.name for artifact in task.artifacts] == ["side", "trip-result"]
        assert task.artifacts[1].text == "Faro: 3 days, yes"
        # The agent behind starts its skill anew after each answer: three times in one task, and there is one.
        assert len(behind.received) == 3
        if over:
            break
        crashes += 1
    assert crashes > 10


async def test_a_crash_between_an_answer_without_a_task_and_its_keeping_asks_nobody_twice(
    behind: Behind, address: str, start: Any
) -> None:
    for after in range(1, 3):  # the task with its status, what was answered; the answer itself is the next
        store = Crashing(after)
        behind.begun.clear()
        engine = await start(Agent.from_a2a(address), store=store)
        task = await engine.send("hi", wait=False, **tool("hello"))
        await store.crashed.wait()
        await engine.connection.close()
        store.mend()
        engine = await start(Agent.from_a2a(address), store=store)
        await engine.idle()
        ended = await engine.get(task)
        assert (ended.state, ended.text) == (State.COMPLETED, "hello")
        assert behind.begun == ["hi"], after


async def test_after_a_store_that_failed_for_a_while_the_work_behind_is_followed_again(
    behind: Behind, address: str, start: Any, failing_store: Any
) -> None:
    engine = await start(Agent.from_a2a(address), store=failing_store)
    task = await engine.send("go", wait=False, **tool("listen"))
    await engine.send("one", task=task, wait=False)
    await until_text(engine, task, "one ")
    failing_store.refuses = bool
    with pytest.raises(ServerError):
        await engine.send("two", task=task, wait=False)
    await engine.idle()
    failing_store.refuses = lambda write: False
    await engine.clock.advance(1)
    await until_async(lambda: engine.service.running)
    await engine.send("three", task=task, wait=False)
    async with asyncio.timeout(10):  # "two" may have been passed on before it was refused
        while not (await engine.get(task)).text.endswith("three "):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert behind.ended == []


async def test_a_store_that_refuses_every_try_cancels_the_work_behind_when_it_takes_the_end_of_the_task(
    behind: Behind, address: str, start: Any, failing_store: Any
) -> None:
    engine = await start(Agent.from_a2a(address), store=failing_store)
    task = await engine.send("go", wait=False, **tool("listen"))
    await engine.send("one", task=task, wait=False)
    await until_text(engine, task, "one ")
    failing_store.refuses = lambda write: write.records and write.previous_state is None
    await engine.send("two", task=task, wait=False)
    for _ in range(3):
        await until_async(lambda: not engine.service.running)
        async with Client(address) as client:
            [theirs] = [each async for each in client.list_tasks()]
            assert theirs.state is State.WORKING  # the journal does not say yet that our task has ended
        await engine.clock.advance(1)
    await until_async(lambda: behind.ended)
    assert (behind.ended, (await engine.get(task)).state) == (["canceled"], State.FAILED)
