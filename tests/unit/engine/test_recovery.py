"""What becomes of tasks whose server stopped in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import structs

from dragoman import Agent, Context, User
from dragoman.engine.call import CallContext
from dragoman.engine.ports.store import Write
from dragoman.model.event import StatusUpdate
from dragoman.model.record import MAX_PROGRESS, Record
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore

INTERRUPTED = "interrupted by a restart"


class Crashing:
    """A skill that says some things and then hangs until its server is gone; the next time it finishes."""

    def __init__(self, *, restart: bool) -> None:
        self.agent = Agent("test")
        self.runs = 0
        self.hangs = True
        self.agent.skill(restart=restart)(self.work)

    async def work(self, ctx: Context) -> Any:
        self.runs += 1
        yield f"run {self.runs} "
        await ctx.artifact({"run": self.runs}, name="side")
        yield {"data of": self.runs}
        if self.hangs:
            yield "lost"
            await asyncio.Event().wait()
        yield "done"


async def crash(engine: Any, turns: Any) -> None:
    """Stop an engine without letting its runs finish."""
    await turns()
    await engine.connection.close()


async def test_a_working_task_is_failed_with_a_plain_reason(start: Any, turns: Any, caplog: Any) -> None:
    work = Crashing(restart=False)
    before = await start(work.agent)
    task = await before.send(wait=False)
    await crash(before, turns)
    after = await start(work.agent, store=before.store)
    found = await after.get(task)
    assert (found.state, found.error) == (State.FAILED, INTERRUPTED)
    assert found.text.startswith("run 1 ")  # what callers have seen stays
    assert work.runs == 1
    assert "1 task was interrupted by a restart and failed" in caplog.text
    assert after.left() == {}


async def test_a_skill_that_may_restart_runs_again_and_replaces_what_it_had_streamed(start: Any, turns: Any) -> None:
    work = Crashing(restart=True)
    before = await start(work.agent)
    task = await before.send(wait=False)
    await crash(before, turns)
    assert (await before.get(task)).text == "run 1 lost"
    work.hangs = False
    after = await start(work.agent, store=before.store)
    found = await after.until_state(task, State.COMPLETED)
    assert work.runs == 2
    assert found.text == "run 2 done"
    assert [artifact.parts[0].data for artifact in found.artifacts if artifact.parts[0].kind == "data"] == [
        {"run": 2},
        {"data of": 2},
    ]
    await after.idle()
    assert after.left() == {}


async def test_what_stood_before_the_last_answer_stands_when_a_skill_runs_again(start: Any, turns: Any) -> None:
    agent, hangs = Agent("test"), asyncio.Event()

    @agent.skill(restart=True)
    async def work(ctx: Context) -> Any:
        yield "before "
        await ctx.artifact({"before": True})
        answer = await ctx.ask("?")
        yield f"{answer} "
        yield {"after": answer}
        if not hangs.is_set():
            yield "lost"
            await asyncio.Event().wait()
        yield "done"

    before = await start(agent)
    task = await before.send()
    await before.send("yes", task=task, wait=False)
    await crash(before, turns)
    hangs.set()
    after = await start(agent, store=before.store)
    found = await after.until_state(task, State.COMPLETED)
    assert found.text == "before yes done"
    data = [artifact.parts[0].data for artifact in found.artifacts if artifact.parts[0].kind == "data"]
    assert data == [{"before": True}, {"after": "yes"}]
    closing = [event for event in await after.journal(task) if getattr(event, "last_chunk", False)]
    assert closing[-1].artifact.text == "done"


async def test_a_text_from_before_the_pause_is_closed_when_the_rerun_adds_none(start: Any, turns: Any) -> None:
    agent, hangs = Agent("test"), asyncio.Event()

    @agent.skill(restart=True)
    async def work(ctx: Context) -> Any:
        yield "before"
        await ctx.ask("?")
        if not hangs.is_set():
            yield "lost"
            await asyncio.Event().wait()

    before = await start(agent)
    task = await before.send()
    await before.send("yes", task=task, wait=False)
    await crash(before, turns)
    hangs.set()
    after = await start(agent, store=before.store)
    assert (await after.until_state(task, State.COMPLETED)).text == "before"


async def test_tasks_that_never_began_run(start: Any, turns: Any) -> None:
    ran: list[tuple[str, Any]] = []

    async def run(ctx: Any) -> Any:
        ran.append((ctx.text, ctx.user and ctx.user.id, ctx.metadata))
        if ctx.text == "first":
            await asyncio.Event().wait()
        received = []
        if ctx.text == "second":
            async for message in ctx.messages():
                received.append(message.text)
                break
        yield f"{ctx.text} received {received}"

    me = CallContext(user=User("me", permissions=frozenset({"p"})))
    before = await start(run)
    first = await before.send("first", context="c", wait=False, call=me)
    second = await before.send("second", context="c", wait=False, call=me, metadata={"k": 1})
    third = await before.send("third", context="c", wait=False, call=me)
    await before.send("more", task=second, wait=False, call=me)
    await crash(before, turns)
    after = await start(run, store=before.store)
    await after.idle()
    found = [await after.get(task, call=me) for task in (first, second, third)]
    assert [task.state for task in found] == [State.FAILED, State.COMPLETED, State.COMPLETED]
    assert found[1].text == "second received ['more']"
    assert ran == [("first", "me", {}), ("second", "me", {"k": 1}), ("third", "me", {})]
    assert [message.text for message in found[1].history] == ["second", "more"]


async def test_an_effect_kept_by_once_is_not_repeated_by_a_restart(start: Any, until: Any, turns: Any) -> None:
    agent, paid, hangs = Agent("test"), [], asyncio.Event()

    @agent.skill(restart=True)
    async def pay(ctx: Context) -> Any:
        receipt = await ctx.once("pay", lambda: paid.append(1) or len(paid))
        if not hangs.is_set():
            await asyncio.Event().wait()
        return receipt

    before = await start(agent)
    task = await before.send(wait=False)
    await until(lambda: any(note.kind == "once" for note in before.store._by_id[task.id].notes))
    await crash(before, turns)
    hangs.set()
    after = await start(agent, store=before.store)
    assert (await after.until_state(task, State.COMPLETED)).value == 1
    assert paid == [1]


async def test_each_agent_recovers_its_own_tasks(start: Any, turns: Any) -> None:
    one, two = Crashing(restart=False), Crashing(restart=False)
    two.agent.name = "other"
    first = await start(one.agent)
    second = await start(two.agent, store=first.store)
    tasks = [await first.send(wait=False), await second.send(wait=False)]
    await crash(first, turns)
    await crash(second, turns)
    after = await start(one.agent, store=first.store)
    assert (await after.get(tasks[0])).state is State.FAILED
    assert (await first.states(tasks[1]))[-1] is State.WORKING


class EarlierStore(MemoryStore):
    """A store as an earlier version wrote it: progress is not marked."""

    def queue(self, write: Write) -> None:
        records = tuple(Record(each.generation, _without_mark(each)) for each in write.records)
        super().queue(structs.replace(write, records=records))


def _without_mark(record: Record) -> bytes:
    event = record.event
    if not isinstance(event, StatusUpdate) or event.status.message is None:
        return record.body
    message = structs.replace(event.status.message, metadata=None)
    return Record.of(
        record.generation, structs.replace(event, status=structs.replace(event.status, message=message))
    ).body


async def test_progress_in_the_journal_of_an_earlier_version_is_progress(start: Any, turns: Any) -> None:
    agent, hangs = Agent("test"), [True]

    @agent.skill(restart=True)
    async def work(ctx: Context) -> None:
        if hangs:
            for number in range(MAX_PROGRESS + 10):
                await ctx.progress(str(number))
            await asyncio.Event().wait()

    before = await start(agent, store=EarlierStore())
    task = await before.send(wait=False)
    await crash(before, turns)
    hangs.clear()
    after = await start(agent, store=before.store)
    ended = await after.until_state(task, State.COMPLETED)
    assert [message.text for message in ended.history] == ["go", *map(str, range(10, MAX_PROGRESS + 10))]
    assert ended.text == ""
