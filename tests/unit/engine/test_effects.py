"""Effects happen once: when code is called, what a crash leaves, and what repeats find."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent, Context, Failed
from dragoman.engine.call import CallContext
from dragoman.engine.journal.phase import Phase
from dragoman.engine.quota import Lease, MemoryQuota
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import TaskNotFound
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.outputs import Reply

INTERRUPTED = "interrupted by a restart"


class Counting:
    """An agent that counts how often its code was called, and hangs until a test lets it go on."""

    def __init__(self, **options: Any) -> None:
        self.agent = Agent("test")
        self.calls: list[str] = []
        self.go_on = asyncio.Event()
        self.agent.skill(**options)(self.work)

    async def work(self, ctx: Context) -> str:
        self.calls.append(ctx.text)
        await self.go_on.wait()
        return "done"


async def crash(engine: Any) -> Any:
    """Kill a process. Gives the store that the next one finds."""
    left = engine.store.crash()
    await engine.connection.close()
    return left


# -- when the code is called ---------------------------------------------------------------------------------------


async def test_code_is_not_called_before_it_is_durable_that_it_begins(start: Any, disk: Any, turns: Any) -> None:
    work = Counting()
    engine = await start(work.agent, store=disk)
    disk.holding = True
    sending = engine.sending("go")
    await turns()
    assert work.calls == []
    # The task and that it is at work, in one go: one commit is enough.
    assert [record.state for write in disk.held for record in write.records] == [State.SUBMITTED, State.WORKING]
    assert len(disk.held) == 1
    disk.release()
    await turns()
    assert work.calls == ["go"]
    work.go_on.set()
    assert (await sending).state is State.COMPLETED


async def test_a_run_that_is_canceled_before_that_is_durable_never_begins(start: Any, disk: Any, turns: Any) -> None:
    work = Counting()
    engine = await start(work.agent, store=disk)
    disk.holding = True
    sending = engine.sending("go", wait=False)
    await turns()
    disk.release(1)
    (task,) = engine.service._tasks.live
    canceling = asyncio.create_task(engine.cancel(task))
    await turns()
    disk.release()
    assert (await canceling).state is State.CANCELED
    await sending
    await engine.idle()
    assert work.calls == []


@pytest.mark.parametrize("durable", [True, False])
async def test_what_may_run_again_and_what_is_kept_in_memory_begins_at_once(
    start: Any, turns: Any, disk: Any, held_store: Any, durable: bool
) -> None:
    work = Counting(restart=durable)
    store = disk if durable else held_store
    engine = await start(work.agent, store=store)
    store.holding = True
    sending = engine.sending("go")
    await turns()
    assert work.calls == ["go"]
    store.release()
    work.go_on.set()
    assert (await sending).state is State.COMPLETED


async def test_an_answer_starts_the_code_again_only_when_it_is_durable(start: Any, disk: Any, turns: Any) -> None:
    agent, calls = Agent("test"), []

    @agent.skill
    async def work(ctx: Context) -> str:
        calls.append(len(ctx.answers))
        return str(await ctx.ask("Which?"))

    engine = await start(agent, store=disk)
    task = await engine.send("go")
    assert task.state is State.INPUT_REQUIRED
    disk.holding = True
    answering = engine.sending("this", task=task)
    await turns()
    assert calls == [0]
    disk.release()
    assert (await answering).state is State.COMPLETED
    assert calls == [0, 1]


# -- after a crash -------------------------------------------------------------------------------------------------


async def test_no_crash_makes_code_run_twice(start: Any, disk: Any, turns: Any) -> None:
    """Whatever the disk had when the process was killed: each accepted message starts the code at most once."""
    for committed in range(3):
        work = Counting()
        disk = type(disk)(durable=True)
        engine = await start(work.agent, store=disk)
        disk.holding = True
        sending = engine.sending("go", message_id=(message_id := str(uuid4())), wait=False)
        await turns()
        disk.release(committed)
        await turns()
        left = await crash(engine)
        await asyncio.gather(sending, return_exceptions=True)
        work.go_on.set()
        after = await start(work.agent, store=left)
        await after.idle()
        again = await after.answer("go", message_id=message_id)
        assert again.repeat == (committed > 0)
        assert work.calls == ["go"], f"after {committed} commits"
        began = committed >= 1  # the first commit says that the task is there, and at work
        assert again.result.state is (State.FAILED if began else State.COMPLETED)
        assert again.result.error == (INTERRUPTED if began else None)
        assert len((await after.list()).tasks) == 1


async def test_a_run_that_kills_its_process_is_given_up_after_three_attempts(start: Any, disk: Any, turns: Any) -> None:
    work = Counting(restart=True)
    engine = await start(work.agent, store=disk)
    task = await engine.send("go", wait=False)
    for attempt in range(1, 4):
        await turns()
        assert len(work.calls) == attempt
        engine = await start(work.agent, store=await crash(engine))
    await turns()
    assert len(work.calls) == 3
    found = await engine.get(task)
    assert found.state is State.FAILED
    assert found.error == "the server stopped during each of 3 attempts: it is not tried again"


async def test_how_many_attempts_there_are_is_a_setting(start: Any, disk: Any, turns: Any) -> None:
    work, settings = Counting(restart=True), EngineSettings(drain=0, attempts=1)
    engine = await start(work.agent, store=disk, settings=settings)
    task = await engine.send("go", wait=False)
    await turns()
    engine = await start(work.agent, store=await crash(engine), settings=settings)
    await turns()
    assert work.calls == ["go"]
    assert (await engine.get(task)).state is State.FAILED


async def test_a_server_that_is_stopped_in_order_costs_no_attempt(start: Any, disk: Any, turns: Any) -> None:
    work = Counting(restart=True)
    engine = await start(work.agent, store=disk)
    task = await engine.send("go", wait=False)
    for attempt in range(1, 6):
        await turns()
        assert len(work.calls) == attempt
        await engine.connection.close()
        engine = await start(work.agent, store=engine.store)
    work.go_on.set()
    assert (await engine.until_state(task, State.COMPLETED)).text == "done"


async def test_an_answer_gives_new_attempts(start: Any, disk: Any, turns: Any) -> None:
    agent, calls, go_on = Agent("test"), [], asyncio.Event()

    @agent.skill(restart=True)
    async def work(ctx: Context) -> str:
        calls.append(len(ctx.answers))
        if len(calls) == 2 or ctx.answers:
            await go_on.wait() if len(calls) > 4 else await asyncio.Event().wait()
        elif len(calls) == 1:
            await asyncio.Event().wait()
        return await ctx.ask("Which?")

    engine = await start(agent, store=disk)
    task = await engine.send("go", wait=False)
    for _ in range(2):
        await turns()
        engine = await start(agent, store=await crash(engine))
    task = await engine.until_state(task, State.INPUT_REQUIRED)
    await engine.send("this", task=task, wait=False)
    for _ in range(2):
        await turns()
        engine = await start(agent, store=await crash(engine))
    go_on.set()
    await engine.until_state(task, State.COMPLETED)
    assert calls == [0, 0, 0, 1, 1, 1]


# -- once ----------------------------------------------------------------------------------------------------------


class Paying:
    """A skill with an effect that can be stopped in the middle."""

    def __init__(self, *, restart: bool, retry: bool = False) -> None:
        self.agent = Agent("test")
        self.paid: list[int] = []
        self.hangs = True
        self.retry = retry
        self.agent.skill(restart=restart)(self.work)

    async def work(self, ctx: Context) -> str:
        return f"receipt {await ctx.once('pay', self.pay, retry=self.retry)}"

    async def pay(self) -> int:
        self.paid.append(1)
        if self.hangs:
            await asyncio.Event().wait()
        return len(self.paid)


async def test_an_effect_does_not_begin_before_that_is_durable(start: Any, disk: Any, turns: Any) -> None:
    work = Paying(restart=True)
    work.hangs = False
    engine = await start(work.agent, store=disk)
    disk.holding = True
    sending = engine.sending("go")
    await turns()
    assert work.paid == []
    disk.release()
    assert (await sending).text == "receipt 1"
    assert work.paid == [1]


async def test_an_effect_that_a_crash_cut_off_fails_the_task_and_says_what_is_not_known(
    start: Any, disk: Any, turns: Any
) -> None:
    work = Paying(restart=True)
    engine = await start(work.agent, store=disk)
    task = await engine.send("go", wait=False)
    await turns()
    assert work.paid == [1]
    work.hangs = False
    after = await start(work.agent, store=await crash(engine))
    found = await after.until_state(task, State.FAILED)
    assert found.error == "`pay` may or may not have happened: the server stopped in the middle of it"
    assert work.paid == [1]


async def test_a_task_that_does_not_run_again_says_so_too(start: Any, disk: Any, turns: Any) -> None:
    work = Paying(restart=False)
    engine = await start(work.agent, store=disk)
    task = await engine.send("go", wait=False)
    await turns()
    after = await start(work.agent, store=await crash(engine))
    found = await after.get(task)
    assert (found.state, work.paid) == (State.FAILED, [1])
    assert found.error == (f"{INTERRUPTED}; `pay` may or may not have happened: the server stopped in the middle of it")


async def test_an_effect_that_may_happen_twice_is_tried_again(start: Any, disk: Any, turns: Any) -> None:
    work = Paying(restart=True, retry=True)
    engine = await start(work.agent, store=disk)
    task = await engine.send("go", wait=False)
    await turns()
    work.hangs = False
    after = await start(work.agent, store=await crash(engine))
    assert (await after.until_state(task, State.COMPLETED)).text == "receipt 2"


async def test_an_effect_that_raised_is_not_in_doubt(start: Any, disk: Any) -> None:
    agent, tries = Agent("test"), []

    @agent.skill(restart=True)
    async def work(ctx: Context) -> str:
        def pay() -> int:
            tries.append(1)
            if len(tries) == 1:
                raise Failed("declined")
            return len(tries)

        try:
            return f"receipt {await ctx.once('pay', pay)}"
        except Failed:
            answer = await ctx.ask("Another card?")
            return f"{answer}: {await ctx.once('pay', pay)}"

    engine = await start(agent, store=disk)
    task = await engine.send("go")
    assert task.state is State.INPUT_REQUIRED
    # The function starts again from the top, where it pays now.
    done = await engine.send("yes", task=task)
    assert done.state is State.FAILED  # and so never asks what was answered
    assert "before asking what had been answered" in done.error
    assert len(tries) == 2


async def test_a_question_within_an_effect_leaves_no_doubt(start: Any, disk: Any) -> None:
    agent, begun = Agent("test"), []

    @agent.skill
    async def work(ctx: Context) -> str:
        async def pay() -> str:
            begun.append(1)
            return await ctx.ask("Which card?")

        return await ctx.once("pay", pay)

    engine = await start(agent, store=disk)
    task = await engine.send("go")
    assert (await engine.send("gold", task=task)).text == "gold"
    assert begun == [1, 1]


# -- replies -------------------------------------------------------------------------------------------------------


class Replying:
    """A skill that answers with a bare message, as soon as it may."""

    def __init__(self, **options: Any) -> None:
        self.agent = Agent("test")
        self.calls = 0
        self.go_on = asyncio.Event()
        self.agent.skill(**options)(self.work)

    async def work(self, ctx: Context) -> Reply:
        self.calls += 1
        await self.go_on.wait()
        return Reply(f"hi {self.calls}")


async def test_a_draft_is_durable_before_the_code_is_called_and_the_reply_before_it_is_given(
    start: Any, disk: Any, turns: Any
) -> None:
    work = Replying()
    engine = await start(work.agent, store=disk)
    disk.holding = True
    sending = engine.sending("hello")
    await turns()
    assert (work.calls, len(disk.held)) == (0, 1)
    disk.release(1)
    await turns()
    assert work.calls == 1
    work.go_on.set()
    await turns()
    assert not sending.done()
    disk.release()
    reply = await sending
    assert isinstance(reply, Message)
    assert reply.text == "hi 1"


async def test_a_draft_is_nowhere_to_be_seen(start: Any, disk: Any, turns: Any) -> None:
    work = Replying()
    engine = await start(work.agent, store=disk)
    sending = engine.sending("hello")
    await turns()
    (draft,) = engine.service._tasks.live
    assert (await engine.list()).total_size == 0
    with pytest.raises(TaskNotFound):
        await engine.get(draft)
    with pytest.raises(TaskNotFound):
        await engine.cancel(draft)
    work.go_on.set()
    await sending


async def test_a_repeat_is_answered_with_the_same_reply_also_after_a_restart(start: Any, disk: Any) -> None:
    work = Replying()
    work.go_on.set()
    engine = await start(work.agent, store=disk)
    message_id = str(uuid4())
    first = await engine.send("hello", message_id=message_id)
    again = await engine.answer("hello", message_id=message_id)
    assert (again.repeat, again.result) == (True, first)
    after = await start(work.agent, store=await crash(engine))
    later = await after.answer("hello", message_id=message_id)
    assert (later.repeat, later.result) == (True, first)
    (streamed,) = await after.stream("hello", message_id=message_id)
    assert streamed.event == first
    assert work.calls == 1


async def test_a_crash_makes_a_draft_a_failed_task_that_a_repeat_finds(start: Any, disk: Any, turns: Any) -> None:
    work = Replying()
    engine = await start(work.agent, store=disk)
    message_id = str(uuid4())
    sending = engine.sending("hello", message_id=message_id)
    await turns()
    left = await crash(engine)
    await asyncio.gather(sending, return_exceptions=True)
    after = await start(work.agent, store=left)
    (task,) = (await after.list()).tasks
    assert (task.state, task.error) == (State.FAILED, INTERRUPTED)
    again = await after.answer("hello", message_id=message_id)
    assert (again.repeat, again.result.id) == (True, task.id)
    assert work.calls == 1
    assert await left.drafts("test") == []


async def test_a_reply_that_takes_long_completes_a_task(start: Any, disk: Any, clock: Any, turns: Any) -> None:
    work = Replying()
    engine = await start(work.agent, store=disk)
    sending, streaming = engine.sending("hello"), asyncio.create_task(engine.stream("hello"))
    await turns()
    await clock.advance(0.9)
    assert (await engine.list()).total_size == 0
    await clock.advance(0.2)
    await turns()
    assert {task.state for task in (await engine.list()).tasks} == {State.WORKING}
    work.go_on.set()
    task = await sending
    assert isinstance(task, Task)
    assert (task.state, task.status.message.text, task.status.message.task_id) == (State.COMPLETED, "hi 2", task.id)
    states = [record.state for record in await streaming]
    assert states == [State.SUBMITTED, State.WORKING, State.COMPLETED]


async def test_a_draft_that_waits_for_its_conversation_becomes_a_submitted_task(
    start: Any, disk: Any, clock: Any, turns: Any
) -> None:
    work = Replying()
    engine = await start(work.agent, store=disk)
    sending = [engine.sending("one", context="c"), engine.sending("two", context="c")]
    await turns()
    await clock.advance(1.1)
    await turns()
    states = sorted(task.state for task in (await engine.list()).tasks)
    assert states == [State.SUBMITTED, State.WORKING]
    work.go_on.set()
    assert [(await one).state for one in sending] == [State.COMPLETED] * 2


async def test_a_message_that_need_not_wait_gets_a_task_at_once(start: Any, disk: Any) -> None:
    work = Replying(replies=True)
    engine = await start(work.agent, store=disk)
    task = await engine.send("hello", wait=False)
    assert isinstance(task, Task)
    work.go_on.set()
    assert (await engine.until_state(task, State.COMPLETED)).text == "hi 1"


async def test_effects_of_a_skill_that_replies_are_kept_with_its_draft(start: Any, disk: Any, until: Any) -> None:
    agent, paid = Agent("test"), []

    @agent.skill
    async def pay(ctx: Context) -> Reply:
        await ctx.once("pay", lambda: paid.append(1))
        if ctx.text == "hang":
            await asyncio.Event().wait()
        return Reply("paid")

    engine = await start(agent, store=disk)
    assert isinstance(await engine.send("quick"), Message)
    assert disk._drafts == {}
    sending = engine.sending("hang")
    await until(lambda: len(paid) == 2)
    left = await crash(engine)
    await asyncio.gather(sending, return_exceptions=True)
    after = await start(agent, store=left)
    (task,) = (await after.list()).tasks
    assert task.state is State.FAILED


async def test_an_undeclared_reply_is_named_in_a_warning_once(start: Any, caplog: Any) -> None:
    agent = Agent("undeclared replies")

    @agent.skill
    async def surprising():
        return Reply("hi")

    engine = await start(agent)
    for _ in range(2):
        assert (await engine.send("hello")).status.message.text == "hi"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "`surprising` returned a Reply but does not declare it" in warnings[0]


# -- what waits for its turn ---------------------------------------------------------------------------------------


async def test_what_waits_for_its_conversation_is_on_the_disk_and_not_in_memory(
    start: Any, disk: Any, turns: Any
) -> None:
    work, text = Counting(), "x" * 100_000
    engine = await start(work.agent, store=disk)
    first = engine.sending("first", context="c")
    await turns()
    waiting = [await engine.send(f"{number} {text}", context="c", wait=False) for number in range(3)]
    await turns()
    for task in waiting:
        live = engine.service._tasks.live[task.id]
        assert (live.phase, live.folding.history, live.durability.window_bytes) == (Phase.UNLOADED, [], 0)
        assert await engine.get(task) == task  # with its message
    assert (await engine.list()).total_size == 4
    # One is canceled, one gets another message, and they are what they were.
    assert (await engine.cancel(waiting[0])).history == waiting[0].history
    noted = await engine.send("more", task=waiting[1], wait=False)
    assert [message.text for message in noted.history] == [f"1 {text}", "more"]
    work.go_on.set()
    await first
    await engine.until_state(waiting[2], State.COMPLETED)
    assert work.calls == ["first", f"1 {text}", f"2 {text}"]
    assert await engine.states(waiting[0]) == [State.SUBMITTED, State.CANCELED]


async def test_what_waits_after_a_restart_is_on_the_disk_too(start: Any, disk: Any, turns: Any) -> None:
    work, text = Counting(restart=True), "x" * 100_000
    engine = await start(work.agent, store=disk)
    await engine.send("first", context="c", wait=False)
    waiting = [await engine.send(f"{number} {text}", context="c", wait=False) for number in range(2)]
    await turns()
    after = await start(work.agent, store=await crash(engine))
    await turns()
    assert [after.service._tasks.live[task.id].phase for task in waiting] == [Phase.UNLOADED] * 2
    work.go_on.set()
    await after.until_state(waiting[1], State.COMPLETED)
    assert work.calls == ["first", "first", f"0 {text}", f"1 {text}"]


async def test_what_is_small_or_in_a_store_without_a_disk_stays_where_it_is(
    start: Any, disk: Any, held_store: Any, turns: Any
) -> None:
    for store, text in ((disk, "small"), (held_store, "x" * 100_000)):
        work = Counting()
        engine = await start(work.agent, store=store)
        first = engine.sending("first", context="c")
        await turns()
        waiting = await engine.send(text, context="c", wait=False)
        await turns()
        assert engine.service._tasks.live[waiting.id].phase is not Phase.UNLOADED
        work.go_on.set()
        await first
        await engine.until_state(waiting, State.COMPLETED)


async def test_a_message_on_the_disk_takes_no_memory_of_its_callers_quota(start: Any, disk: Any, turns: Any) -> None:
    work, memory = Counting(), MemoryQuota(10_000_000, 1_000_000)
    engine = await start(work.agent, store=disk)
    first = engine.sending("first", context="c")
    await turns()
    for number in range(3):
        lease = Lease(memory, "somebody")
        lease.resize(400_000)
        request = engine.request(f"{number} " + "x" * 200_000, context="c", wait=False)
        await engine.service.send(CallContext(), request, "somebody", lease)
        lease.release()  # as when the request has been answered
        await turns()
        assert memory.used == 0
    work.go_on.set()
    await first
    work.go_on.clear()
    await turns()
    assert memory.used == 400_000  # the one that runs
    work.go_on.set()
    await engine.idle()
    assert (memory.used, memory.callers) == (0, {})
