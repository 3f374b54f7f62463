"""Pausing a function: parked, answered, and its output neither lost nor doubled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Client, Context, Part, Task, User
from dragoman.engine.call import CallContext
from dragoman.model.state import State
from dragoman.sync import Context as SyncContext


async def test_a_task_that_waits_holds_nothing_and_its_function_runs_once_for_each_answer(start_skill: Any) -> None:
    runs: list[Any] = []

    async def trip(ctx: Context, city: str) -> str:
        runs.append(city)
        days = await ctx.ask("How many days?", type=int)
        sure = await ctx.ask("Sure?", type=bool)
        return f"{days} days in {city}, {sure}."

    engine = await start_skill(trip)
    task = await engine.send("Porto")
    await engine.idle()
    assert engine.left() == {}  # no coroutine, no connection and no memory
    task = await engine.send("3", task=task)
    assert task.question == "Sure?"
    task = await engine.send("yes", task=task)
    assert (task.state, task.text) == (State.COMPLETED, "3 days in Porto, True.")
    assert runs == ["Porto"] * 3
    await engine.idle()
    assert engine.left() == {}


# Answers


async def test_an_answer_that_does_not_fit_is_asked_for_again(start_skill: Any) -> None:
    async def plan(ctx: Context) -> int:
        return await ctx.ask("How many days?", type=int)

    engine = await start_skill(plan)
    task = await engine.send("go")
    for wrong in ("many", "3.5", "", "{"):
        task = await engine.send(wrong, task=task)
        assert task.question == "How many days? Please answer with a whole number."
    assert (await engine.send(" 4 ", task=task)).value == 4


async def test_choices_are_shown_and_kept_to(start_skill: Any) -> None:
    async def plan(ctx: Context) -> list[Any]:
        return [await ctx.ask("By?", choices=["Train", "Bus"]), await ctx.ask("Class?", type=int, choices=[1, 2])]

    engine = await start_skill(plan)
    task = await engine.send("go")
    assert task.question == "By? (Train, Bus)"
    task = await engine.send("car", task=task)
    assert task.question == "By? (Train, Bus) Please answer with one of Train, Bus."
    task = await engine.send("train", task=task)
    assert task.question == "Class? (1, 2)"
    task = await engine.send(None, parts=(Part(data=2),), task=task)
    assert task.data == ["Train", 2]


async def test_the_answer_to_a_plain_question_is_its_text(start_skill: Any) -> None:
    async def plan(ctx: Context) -> str:
        return await ctx.ask("Name?")

    engine = await start_skill(plan)
    task = await engine.send("go")
    assert (await engine.send(" Ada ", task=task)).text == " Ada "


async def test_the_function_sees_its_own_message_in_every_run(start_skill: Any) -> None:
    seen: list[Any] = []

    async def plan(ctx: Context, city: str) -> None:
        seen.append((ctx.text, ctx.message.text, city, [message.text for message in ctx.history], ctx.skill))
        await ctx.ask("?")

    engine = await start_skill(plan)
    task = await engine.send("Porto")
    await engine.send("3", task=task)
    assert seen == [
        ("Porto", "Porto", "Porto", ["Porto"], "plan"),
        ("Porto", "Porto", "Porto", ["Porto", "?", "3"], "plan"),
    ]


# What goes wrong


async def test_a_question_that_has_changed_fails_the_task_with_that_reason(start_skill: Any) -> None:
    runs: list[Any] = []

    async def plan(ctx: Context) -> Any:
        runs.append(1)
        yield f"Run {len(runs)} "
        await ctx.ask(f"Question {len(runs)}?")

    engine = await start_skill(plan)
    task = await engine.send("go")
    task = await engine.send("3", task=task)
    assert task.state is State.FAILED
    assert task.error == ("the question has changed since it was answered: it was 'Question 1?', it is 'Question 2?'")
    assert task.text == "Run 1 "  # what was journaled stands


async def test_a_function_that_no_longer_asks_fails_the_task(start_skill: Any) -> None:
    runs: list[Any] = []

    async def plan(ctx: Context) -> str:
        runs.append(1)
        if len(runs) == 1:
            await ctx.ask("?")
        return "done"

    engine = await start_skill(plan)
    task = await engine.send("3", task=await engine.send("go"))
    assert task.error == "the function ended before asking what had been answered already"
    assert task.artifacts == ()


async def catching_on_loop(ctx: Context) -> str:
    try:
        return await ctx.ask("?")
    except Exception:  # noqa: BLE001
        return "swallowed"


def catching_in_thread(ctx: SyncContext) -> str:
    try:
        return ctx.ask("?")
    except Exception:  # noqa: BLE001
        return "swallowed"


@pytest.mark.parametrize("skill", [catching_on_loop, catching_in_thread])
async def test_except_exception_lets_the_pause_pass(start_skill: Any, skill: Any) -> None:
    engine = await start_skill(skill)
    task = await engine.send("go")
    assert task.state is State.INPUT_REQUIRED
    assert (await engine.send("3", task=task)).text == "3"


@pytest.mark.parametrize("then", ["return", "yield", "ask"])
async def test_a_swallowed_pause_fails_the_task_saying_so(start_skill: Any, then: str) -> None:
    async def plan(ctx: Context) -> Any:
        try:  # noqa: SIM105
            await ctx.ask("?")
        except:  # noqa: E722
            pass
        if then == "yield":
            yield "leaked"
        if then == "ask":
            await ctx.ask("another")

    engine = await start_skill(plan)
    task = await engine.send("go")
    assert task.state is State.FAILED
    assert task.error == "the pause was swallowed: let it pass through `except:`, catch Exception instead"
    assert task.artifacts == ()


async def test_a_swallowed_pause_in_a_thread_fails_too(start_skill: Any) -> None:
    def plan(ctx: SyncContext) -> str:
        try:
            return ctx.ask("?")
        except BaseException:  # noqa: BLE001
            return "leaked"

    engine = await start_skill(plan)
    task = await engine.send("go")
    assert "the pause was swallowed" in task.error
    assert task.artifacts == ()


async def test_a_question_in_a_task_group_pauses_like_any_other(start_skill: Any) -> None:
    async def plan(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ctx.ask("?"))
            group.create_task(asyncio.sleep(0))
        return asking.result()

    async def broken(ctx: Context) -> None:
        raise ExceptionGroup("several", [ValueError("one")])

    engine = await start_skill(plan, broken)
    task = await engine.send("go")
    assert task.question == "?"
    assert (await engine.send("3", task=task)).text == "3"
    assert (await engine.send(metadata={"skillId": "broken"})).state is State.FAILED


async def test_cleaning_up_around_a_question_works_as_always(start_skill: Any) -> None:
    log: list[Any] = []

    async def plan(ctx: Context) -> Any:
        try:
            yield "a"
            await ctx.ask("?")
            yield "b"
        finally:
            log.append("closed")
            await ctx.progress("tidying")

    engine = await start_skill(plan)
    task = await engine.send("go")
    assert task.state is State.INPUT_REQUIRED
    ended = await engine.send("3", task=task)
    assert (ended.state, ended.text) == (State.COMPLETED, "ab")
    assert log == ["closed", "closed"]


# What a re-run sees


async def test_progress_and_artifacts_before_the_answer_are_not_repeated(start_skill: Any) -> None:
    async def plan(ctx: Context) -> Any:
        await ctx.progress("looking")
        await ctx.artifact({"n": 1}, name="before")
        await ctx.ask("?")
        await ctx.progress("booking")
        await ctx.artifact({"n": 2}, name="after")

    engine = await start_skill(plan)
    task = await engine.send("go")
    ended = await engine.send("3", task=task)
    assert [artifact.name for artifact in ended.artifacts] == ["before", "after"]
    journal = await engine.journal(task)
    notes = [event.status.message.text for event in journal if hasattr(event, "status") and event.status.message]
    assert notes == ["looking", "?", "booking"]


async def test_each_run_sees_the_state_as_the_first_run_saw_it_and_the_last_one_saves_it(start_skill: Any) -> None:
    seen: list[Any] = []

    async def count(ctx: Context) -> Any:
        seen.append(dict(ctx.state))
        ctx.state["runs"] = ctx.state.get("runs", 0) + 1
        await ctx.ask("one?")
        await ctx.ask("two?")
        ctx.state["done"] = True

    async def show(ctx: Context) -> dict[str, Any]:
        return ctx.state

    engine = await start_skill(count, show)
    await engine.send(metadata={"skillId": "show"}, context="c")
    task = await engine.send("go", context="c")
    assert (await engine.send(metadata={"skillId": "show"}, context="c")).data == {}  # nothing counts while it waits
    for _ in range(2):
        task = await engine.send("x", task=task)
    assert seen == [{}, {}, {}]
    assert (await engine.send(metadata={"skillId": "show"}, context="c")).data == {"runs": 1, "done": True}


async def test_changes_of_the_state_by_others_during_a_pause_are_kept(start_skill: Any) -> None:
    async def ask(ctx: Context) -> Any:
        ctx.state["mine"] = "new"
        ctx.state.pop("dropped", None)
        await ctx.ask("?")

    async def change(ctx: Context, add: dict[str, Any], drop: list[str]) -> dict[str, Any]:
        ctx.state.update(add)
        for key in drop:
            del ctx.state[key]
        return ctx.state

    engine = await start_skill(ask, change)

    async def change_state(add: dict[str, Any], drop: list[str]) -> Any:
        call = {"tool": "change", "arguments": {"add": add, "drop": drop}}
        return (await engine.send(None, parts=(Part(data=call),), context="c")).data

    await change_state({"mine": "old", "dropped": 1, "kept": 1, "theirs": 1}, [])
    task = await engine.send("go", context="c")
    await change_state({"added": 2, "kept": 2}, ["theirs"])
    await engine.send("x", task=task)
    assert await change_state({}, []) == {"mine": "new", "kept": 2, "added": 2}


async def test_effects_kept_by_once_happen_once(start_skill: Any) -> None:
    paid: list[Any] = []

    def pay(ctx: SyncContext) -> list[Any]:
        receipt = ctx.once("pay", lambda: paid.append(1) or "receipt")
        return [receipt, ctx.ask("?")]

    engine = await start_skill(pay)
    task = await engine.send("go")
    assert (await engine.send("3", task=task)).data == ["receipt", "3"]
    assert paid == [1]


# Authorization


async def authorized_on_loop(ctx: Context) -> Any:
    return [await ctx.ask_auth("Log in", url=link), ctx.user and ctx.user.id]


def authorized_in_thread(ctx: SyncContext) -> Any:
    return [ctx.ask_auth("Log in", url=link), ctx.user and ctx.user.id]


@pytest.mark.parametrize("skill", [authorized_on_loop, authorized_in_thread])
async def test_an_authorization_is_waited_for_and_resumed_from_a_callback(start_skill: Any, skill: Any) -> None:
    engine = await start_skill(skill)
    me = CallContext(user=User("me"))
    for data, seen in (({"token": "t"}, {"token": "t"}), (None, None), ("text", "text")):
        task = await engine.send("go", call=me)
        assert task.state is State.AUTH_REQUIRED
        assert [part.text or part.url for part in task.status.message.parts] == ["Log in", link(handle_of(task))]
        await engine.service.resume(handle_of(task), data)
        await engine.idle()
        ended = await engine.get(task, call=me)
        assert ended.data == [seen, "me"]


# In threads


def items() -> Any:
    yield next(iter(()))


def item() -> Any:
    return next(iter(()))


@pytest.mark.parametrize("skill", [items, item])
async def test_a_thread_that_lets_stop_iteration_out_fails_its_task(start_skill: Any, skill: Any) -> None:
    engine = await start_skill(skill)
    assert (await engine.send("go")).state is State.FAILED


async def test_a_thread_has_the_same_words_for_everything(start_skill: Any) -> None:
    seen: dict[str, Any] = {}

    def work(ctx: SyncContext, city: str) -> Any:
        names = "task_id context_id skill user tenant text data metadata cancelled"
        seen.update({name: getattr(ctx, name) for name in names.split()})
        seen["history"] = [message.text for message in ctx.history]
        seen["files"] = ctx.files
        ctx.state["n"] = 1
        ctx.log.info("hello")
        ctx.progress("half", done=1, total=2)
        ctx.artifact({"side": 1}, name="side", id="s", metadata={"k": 1})
        with pytest.raises(TypeError):
            ctx.artifact(object())
        return "done"

    engine = await start_skill(work)
    task = await engine.send("Porto", context="c", call=CallContext(tenant="t"), metadata={"k": 1})
    assert (task.state, task.text) == (State.COMPLETED, "done")
    assert [artifact.artifact_id for artifact in task.artifacts] == ["s", "work-result"]
    assert seen == {
        "task_id": task.id,
        "context_id": "c",
        "skill": "work",
        "user": None,
        "tenant": "t",
        "text": "Porto",
        "data": None,
        "metadata": {"k": 1},
        "cancelled": False,
        "history": ["Porto"],
        "files": [],
    }


# Words in between


async def test_messages_before_the_question_are_received_again_by_the_re_run(start_skill: Any, turns: Any) -> None:
    async def listen(ctx: Context) -> str:
        received = []
        async for message in ctx.messages():
            received.append(message.text)
            if len(received) == 2:
                break
        answer = await ctx.ask("?")
        async for message in ctx.messages():
            received.append(message.text)
            break
        return f"{received} {answer}"

    engine = await start_skill(listen)
    task = await engine.send("go", wait=False)
    for text in ("one", "two"):
        await engine.send(text, task=task, wait=False)
    task = await engine.until_state(task, State.INPUT_REQUIRED)
    task = await engine.send("yes", task=task, wait=False)
    await turns()
    ended = await engine.send("three", task=task)
    assert ended.text == "['one', 'two', 'three'] yes"
    assert [message.text for message in ended.history] == ["go", "one", "two", "?", "yes", "three"]


@pytest.mark.asyncio
async def test_a_typed_question_carries_the_schema_of_its_answer() -> None:
    agent = Agent("trips")

    @agent.skill
    async def trip(ctx: Context, city: str) -> str:
        name = await ctx.ask("Who?")
        days = await ctx.ask("How many days?", type=int)
        rooms = await ctx.ask("Which rooms?", type=list[str])
        seat = await ctx.ask("Which seat?", choices=["window", "aisle"])
        kind = await ctx.ask("Which kind?", choices=[object(), object()])
        return f"{name} {days} {rooms} {seat} {kind}"

    async with Client(agent) as client:
        task = await client.send("Porto")
        schemas: list[Any] = []
        for answer in ("Ada", "3", '["a"]', "aisle"):
            assert isinstance(task, Task) and task.status.message is not None
            schemas.append((task.status.message.metadata or {}).get("dragoman/answer"))
            task = await client.send(answer, task=task)
        assert isinstance(task, Task) and task.status.message is not None
        assert task.status.message.metadata is None
    assert schemas == [
        None,
        {"type": "integer"},
        {"type": "array", "items": {"type": "string"}},
        {"enum": ["window", "aisle"]},
    ]
