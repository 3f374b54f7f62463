"""What becomes of tasks whose server stopped in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs
from support.login_link import handle_of, link

from dragoman import Agent, Context, User
from dragoman.engine.call import CallContext
from dragoman.engine.ports.store import Write
from dragoman.model.event import StatusUpdate
from dragoman.model.record import MAX_PROGRESS, Record
from dragoman.model.state import State
from dragoman.outputs import Ask
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


async def test_a_low_level_run_is_failed_too(start: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        await asyncio.Event().wait()
        yield

    before = await start(run)
    task = await before.send(wait=False)
    await crash(before, turns)
    after = await start(run, store=before.store)
    assert (await after.get(task)).error == INTERRUPTED


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
        yield f"{ctx.text} heard {received}"

    me = CallContext(user=User("me", permissions=frozenset({"p"})))
    before = await start(run)
    first = await before.send("first", context="c", wait=False, call=me)
    second = await before.send("second", context="c", wait=False, call=me, metadata={"k": 1})
    third = await before.send("third", context="c", wait=False, call=me)
    await before.send("told", task=second, wait=False, call=me)
    await crash(before, turns)
    after = await start(run, store=before.store)
    await after.idle()
    found = [await after.get(task, call=me) for task in (first, second, third)]
    assert [task.state for task in found] == [State.FAILED, State.COMPLETED, State.COMPLETED]
    assert found[1].text == "second heard ['told']"
    assert ran == [("first", "me", {}), ("second", "me", {"k": 1}), ("third", "me", {})]
    assert [message.text for message in found[1].history] == ["second", "told"]


async def test_waiting_tasks_stay_and_can_be_answered(start: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            yield "before "
            yield Ask("?", ref={"n": 1}, auth=True, url=link) if ctx.text == "auth" else Ask("?", ref={"n": 1})
        else:
            yield f"{ctx.resume.text} {ctx.resume.ref} in {ctx.context_id}"

    before = await start(run)
    asked, auth = await before.send("ask"), await before.send("auth")
    await crash(before, turns)
    after = await start(run, store=before.store)
    assert await after.get(asked) == asked
    assert await after.get(auth) == auth
    ended = await after.send("3", task=asked)
    assert ended.text == f"before 3 {{'n': 1}} in {asked.context_id}"
    await after.service.resume(handle_of(auth))
    assert (await after.until_state(auth, State.COMPLETED)).text.startswith("before ")


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


async def test_a_reader_goes_on_after_the_restart_without_gap_or_repetition(start: Any, turns: Any) -> None:
    work = Crashing(restart=True)
    before = await start(work.agent)
    task = await before.send(wait=False)
    reading = asyncio.create_task(before.follow(task, 0))
    await crash(before, turns)
    seen = await reading
    work.hangs = False
    after = await start(work.agent, store=before.store)
    rest = await after.follow(task, seen[-1].generation)
    numbers = [record.generation for record in (*seen, *rest)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert rest[-1].state is State.COMPLETED


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


@pytest.mark.parametrize("number", [3])
async def test_runs_of_a_conversation_follow_each_other_after_a_restart_too(
    start: Any, turns: Any, number: int
) -> None:
    log: list[str] = []

    async def run(ctx: Any) -> Any:
        if ctx.text == "block":
            await asyncio.Event().wait()
        log.append(f"{ctx.text} begins")
        await turns(3)
        log.append(f"{ctx.text} ends")
        yield "done"

    before = await start(run)
    await before.send("block", context="c", wait=False)
    for name in range(number):
        await before.send(str(name), context="c", wait=False)
    await crash(before, turns)
    after = await start(run, store=before.store)
    await after.idle()
    assert log == [f"{name} {what}" for name in range(number) for what in ("begins", "ends")]


class EarlierStore(MemoryStore):
    """A store as an earlier version wrote it: progress is not marked."""

    def write(self, write: Write) -> None:
        records = tuple(Record(each.generation, _without_mark(each)) for each in write.records)
        super().write(structs.replace(write, records=records))


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
