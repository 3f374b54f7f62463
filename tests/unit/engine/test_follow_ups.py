"""Messages for a task that exists: at work, waiting, ended, somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Part
from dragoman.model.error import InvalidParams, TaskNotFound
from dragoman.model.state import State
from dragoman.outputs import Ask


async def asking(ctx: Any) -> Any:
    """Asks once and yields the answer."""
    if ctx.resume is None:
        yield Ask("how many?", ref={"n": 1})
    else:
        yield f"{ctx.resume.text} {ctx.resume.ref} {ctx.context_id}"


class Listening:
    """An agent that takes messages until one of them is "stop"."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.listen = asyncio.Event()

    async def run(self, ctx: Any) -> Any:
        await self.listen.wait()
        async for message in ctx.messages():
            self.received.append(message.text)
            if message.text == "stop":
                break
        yield "stopped"


# To a task at work


@pytest.mark.parametrize("listens", ["before the messages", "after them"])
async def test_messages_for_a_working_task_reach_its_run(start: Any, listens: str) -> None:
    agent = Listening()
    if listens == "before the messages":
        agent.listen.set()
    engine = await start(agent.run)
    task = await engine.send(wait=False)
    for text in ("one", "two", "stop"):
        await engine.send(text, task=task, wait=False)
    agent.listen.set()
    ended = await engine.until_state(task, State.COMPLETED)
    assert agent.received == ["one", "two", "stop"]
    assert [message.text for message in ended.history] == ["go", "one", "two", "stop"]
    assert all(message.task_id == task.id and message.context_id == task.context_id for message in ended.history)


async def test_a_background_listener_stops_with_its_task(start: Any, until: Any) -> None:
    ended: list[str] = []

    async def run(ctx: Any) -> Any:
        async def listen(name: str) -> None:
            async for _ in ctx.messages():
                pass
            ended.append(name)

        run.helpers = [asyncio.create_task(listen(name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        if ctx.text == "fail":
            raise ValueError
        yield "done" if ctx.text == "end" else Ask("?")

    engine = await start(run)
    for text in ("end", "fail", "ask"):
        ended.clear()
        await engine.send(text)
        await until(lambda: sorted(ended) == ["a", "b"])


async def test_the_stream_ends_although_the_task_ended_while_the_message_was_written(
    start: Any, held_store: Any, turns: Any
) -> None:
    go_on = asyncio.Event()

    async def run(ctx: Any) -> Any:
        await go_on.wait()
        yield "done" if ctx.text == "end" else Ask("?")

    for text, last in (("end", State.COMPLETED), ("ask", State.INPUT_REQUIRED)):
        engine = await start(run, store=held_store)
        task = await engine.begin(text)
        held_store.holding = True
        streaming = asyncio.create_task(engine.stream("more", task=task))
        await turns()
        go_on.set()
        await turns()
        held_store.release()
        assert (await streaming)[-1].state is last
        go_on.clear()


# To a task that waits


async def test_the_answer_reaches_the_next_run_as_text_and_data(start: Any) -> None:
    seen: list[Any] = []

    async def run(ctx: Any) -> Any:
        seen.append((ctx.text, ctx.data, ctx.resume and (ctx.resume.question, ctx.resume.text, ctx.resume.data)))
        yield Ask(f"question {len(seen)}") if len(seen) < 3 else "done"

    engine = await start(run)
    task = await engine.send()
    task = await engine.send("three", parts=(Part(data={"n": 3}),), task=task)
    await engine.send("four", task=task)
    assert seen == [
        ("go", None, None),
        ("three", {"n": 3}, ("question 1", "three", {"n": 3})),
        ("four", None, ("question 2", "four", None)),
    ]


@pytest.mark.parametrize("value", [{"n": 1}, 7, b"x"])
async def test_what_was_sent_before_the_pause_stays_as_it_was(start: Any, value: Any) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            yield value
            yield Ask("?")
        elif ctx.text == "more":
            yield "text"

    engine = await start(run)
    for answer in ("nothing", "more"):
        task = await engine.send()
        ended = await engine.send(answer, task=task)
        assert ended.artifacts[0] == task.artifacts[0]
        assert ended.value == value
        assert len(ended.artifacts) == (1 if answer == "nothing" else 2)


async def test_a_text_begun_before_the_pause_is_closed_even_when_nothing_follows(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            yield "all of it"
            yield Ask("?")

    whole = [("", False, False), ("all of it", True, False), ("all of it", False, True)]
    for closing, expected in (("whole", whole), ("last", [("all of it", False, False), ("", True, True)])):
        engine = await start(Agent("test", run=run, closing=closing))
        task = await engine.send()
        await engine.send("3", task=task)
        updates = [event for event in await engine.journal(task) if hasattr(event, "artifact")]
        assert [(event.artifact.text, event.append, event.last_chunk) for event in updates] == expected


async def test_an_answer_that_comes_as_the_run_parks_is_the_answer(start: Any, turns: Any) -> None:
    for wait_for in range(10):
        go_on = asyncio.Event()

        async def run(ctx: Any, go_on: asyncio.Event = go_on) -> Any:
            if ctx.resume is not None:
                yield f"got {ctx.resume.text}"
                return
            await go_on.wait()
            try:
                yield Ask("?")
            finally:
                await turns(2)  # the run takes its time to go

        engine = await start(run)
        task = await engine.send(wait=False)
        await turns()
        go_on.set()
        await turns(wait_for)
        follow_up = await engine.send("3", task=task, wait=False)
        # Told a moment before the question, it is no answer; it is in history, and the question is still open.
        if follow_up.state is State.WORKING and (await engine.get(task)).state is not State.COMPLETED:
            await engine.idle()
        found = await engine.get(task)
        if found.state is State.INPUT_REQUIRED:
            assert [message.text for message in found.history] == ["go", "3"]
            found = await engine.send("4", task=task)
        assert found.state is State.COMPLETED
        assert found.text in ("got 3", "got 4")
        await engine.idle()
        assert engine.left() == {}


async def test_of_two_answers_at_once_one_resumes_the_task_and_the_other_is_a_message_to_its_run(start: Any) -> None:
    received: list[str] = []

    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            yield Ask("?")
            return
        async for message in ctx.messages():
            received.append(message.text)
            break
        yield f"answered {ctx.resume.text}"

    engine = await start(run)
    task = await engine.send()
    one, two = await asyncio.gather(engine.send("a", task=task), engine.send("b", task=task))
    assert one == two
    assert {one.text.removeprefix("answered "), *received} == {"a", "b"}
    assert await engine.states(task) == [
        State.SUBMITTED,
        State.WORKING,
        State.INPUT_REQUIRED,
        State.WORKING,
        State.COMPLETED,
    ]


async def test_a_caller_who_leaves_in_the_middle_of_an_answer_leaves_nothing_half_done(start: Any, turns: Any) -> None:
    for wait_for in range(15):
        engine = await start(asking)
        task = await engine.send()
        sending = engine.sending("3", task=task)
        await turns(wait_for)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await engine.idle()
        found = await engine.get(task)
        assert found.state in (State.INPUT_REQUIRED, State.COMPLETED)
        assert engine.left() == {}


async def test_clean_up_after_a_pause_cannot_wake_the_task(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        try:
            yield Ask("?")
        finally:
            await ctx.progress("tidying")
            await ctx.artifact("late")

    engine = await start(run)
    task = await engine.send()
    await engine.idle()
    assert await engine.get(task) == task


# Continued from inside the server


async def test_of_two_callbacks_one_continues_and_neither_holds_up_a_cancel(start: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, url=link) if ctx.resume is None else await asyncio.Event().wait()

    engine = await start(run)
    task = await engine.send()
    resuming = [asyncio.create_task(engine.service.resume(handle_of(task))) for _ in range(2)]
    await turns()
    assert (await engine.cancel(task)).state is State.CANCELED
    results = await asyncio.gather(*resuming, return_exceptions=True)
    assert [isinstance(result, InvalidParams) for result in results] == [False, True]


async def test_a_task_of_another_agent_is_not_continued_here(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, url=link) if ctx.resume is None else "done"

    one = await start(Agent("one", run=run))
    other = await start(Agent("other", run=run), store=one.store)
    task = await one.send()
    with pytest.raises(InvalidParams):
        await other.service.resume(handle_of(task))
    await one.service.resume(handle_of(task))


async def test_a_low_level_run_hears_a_message_once(start: Any, turns: Any) -> None:
    received: list[str] = []

    async def run(ctx: Any) -> Any:
        async for message in ctx.messages():
            received.append(message.text)
            break
        yield Ask("?") if ctx.resume is None else "done"

    engine = await start(run)
    task = await engine.send(wait=False)
    await engine.send("one", task=task, wait=False)
    task = await engine.until_state(task, State.INPUT_REQUIRED)
    await engine.send("yes", task=task, wait=False)
    await turns()
    await engine.send("two", task=task)
    assert received == ["one", "two"]


# By ids that are not printable


@pytest.mark.parametrize("odd", ["t\n1", "t" * 300, "t\x1b[0m"])
async def test_an_id_that_could_not_be_chosen_today_is_looked_for_all_the_same(start: Any, odd: str) -> None:
    """A store may hold such a task, of a version that let callers choose it."""
    engine = await start(asking)
    with pytest.raises(TaskNotFound):
        await engine.get(odd)
    with pytest.raises(TaskNotFound):
        await engine.send("3", task=odd)


@pytest.mark.parametrize("option", ["message_id", "context", "new_task_id"])
@pytest.mark.parametrize(
    ("value", "is_taken"), [("x" * 256, True), ("a b-ü", True), ("x" * 257, False), ("a\tb", False)]
)
async def test_an_id_that_a_caller_chooses_is_printable_and_not_too_long(
    start: Any, option: str, value: str, is_taken: bool
) -> None:
    engine = await start(asking)
    if is_taken:
        await engine.send(**{option: value})
    else:
        with pytest.raises(InvalidParams, match="printable characters, 256 of them at most"):
            await engine.send(**{option: value})
