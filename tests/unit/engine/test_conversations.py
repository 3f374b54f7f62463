"""What belongs to a conversation: the order of its runs, its state; and what happens once per task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman import Agent, User
from dragoman.engine.call import CallContext
from dragoman.model.state import State
from dragoman.outputs import Ask


class Gated:
    """An agent whose runs wait to be let through, and which notes when each begins and ends."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def let(self, text: str) -> None:
        self.gates.setdefault(text, asyncio.Event()).set()

    async def run(self, ctx: Any) -> Any:
        self.log.append(f"{ctx.text} begins")
        await self.gates.setdefault(ctx.text, asyncio.Event()).wait()
        self.log.append(f"{ctx.text} ends")
        yield ctx.text


# One after the other


async def test_runs_of_one_conversation_follow_each_other_in_the_order_of_their_messages(
    start: Any, turns: Any
) -> None:
    agent = Gated()
    engine = await start(agent.run)
    tasks = [await engine.send(text, context="c", wait=False) for text in ("one", "two", "three")]
    agent.let("two")
    agent.let("three")
    await turns()
    assert agent.log == ["one begins"]
    assert [(await engine.get(task)).state for task in tasks] == [State.WORKING, State.SUBMITTED, State.SUBMITTED]
    agent.let("one")
    await engine.until_state(tasks[2], State.COMPLETED)
    assert agent.log == [f"{text} {what}" for text in ("one", "two", "three") for what in ("begins", "ends")]
    await engine.idle()
    assert engine.left() == {}


@pytest.mark.parametrize(("text", "state"), [("fail", State.FAILED), ("ask", State.INPUT_REQUIRED)])
async def test_a_run_that_fails_or_asks_lets_the_next_one_begin(start: Any, text: str, state: State) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.text == "fail":
            raise ValueError
        yield Ask("?") if ctx.text == "ask" else ctx.text

    engine = await start(run)
    first, second = await asyncio.gather(engine.send(text, context="c"), engine.send("other", context="c"))
    assert (first.state, second.state) == (state, State.COMPLETED)


async def test_different_conversations_owners_and_tenants_do_not_wait_for_each_other(start: Any, turns: Any) -> None:
    agent = Gated()
    engine = await start(agent.run)
    await engine.send("a", context="c", wait=False)
    await engine.send("b", context="d", wait=False)
    await engine.send("c", context="c", wait=False, call=CallContext(user=User("me")))
    await engine.send("d", context="c", wait=False, call=CallContext(tenant="t"))
    await engine.send("e", wait=False)
    await turns()
    assert len(agent.log) == 5


async def test_an_agent_may_say_that_its_runs_go_on_side_by_side(start: Any, turns: Any) -> None:
    agent = Gated()
    engine = await start(Agent("test", run=agent.run, parallel=True))
    tasks = [await engine.send(text, context="c", wait=False) for text in ("one", "two")]
    await turns()
    assert agent.log == ["one begins", "two begins"]
    agent.let("two")
    await engine.until_state(tasks[1], State.COMPLETED)
    agent.let("one")
    await engine.until_state(tasks[0], State.COMPLETED)
    await engine.idle()
    assert engine.left() == {}


# State


async def remembering(ctx: Any) -> Any:
    """Adds to the state of the conversation what its message says, and yields the state."""
    if ctx.text.startswith("set "):
        key, value = ctx.text.removeprefix("set ").split("=")
        ctx.state[key] = value
    if ctx.text == "ask" and ctx.resume is None:
        ctx.state["asked"] = True
        yield Ask("?")
        return
    if ctx.text == "fail":
        ctx.state["failed"] = True
        raise ValueError
    if ctx.text == "spoil":
        ctx.state["bad"] = object()
    yield dict(ctx.state) if ctx.text != "spoil" else "spoiled"


async def test_state_of_a_low_level_run_is_saved_at_a_pause_and_at_a_failure(start: Any) -> None:
    engine = await start(remembering)
    await engine.send("ask", context="c")
    assert (await engine.send("show", context="c")).data == {"asked": True}
    await engine.send("fail", context="c")
    assert (await engine.send("show", context="c")).data == {"asked": True, "failed": True}


async def test_state_that_is_not_json_is_not_saved_and_harms_nothing(start: Any, caplog: Any) -> None:
    engine = await start(remembering)
    await engine.send("set a=1", context="c")
    assert (await engine.send("spoil", context="c")).state is State.COMPLETED
    assert "ctx.state is not JSON" in caplog.text
    assert (await engine.send("show", context="c")).data == {"a": "1"}


async def test_a_canceled_run_saves_no_state(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.text == "show":
            yield dict(ctx.state)
            return
        ctx.state["half"] = True
        await asyncio.Event().wait()

    engine = await start(run)
    task = await engine.begin("begin", context="c")
    await engine.cancel(task)
    assert (await engine.send("show", context="c")).data == {}


# Once


async def test_once_runs_its_function_once_per_task_over_all_runs(start: Any) -> None:
    calls: list[str] = []

    async def pay(amount: int) -> dict[str, int]:
        calls.append("pay")
        return {"paid": amount}

    async def run(ctx: Any) -> Any:
        receipt = await ctx.once("pay", pay, 5)
        assert receipt == await ctx.once("pay", pay, 5)
        yield Ask("?") if ctx.resume is None else receipt

    engine = await start(run)
    task = await engine.send()
    assert (await engine.send("3", task=task)).data == {"paid": 5}
    assert calls == ["pay"]
    await engine.send()
    assert calls == ["pay", "pay"]


async def test_once_takes_plain_functions_coroutines_and_what_returns_them(start: Any) -> None:
    async def coroutine() -> str:
        return "async"

    async def run(ctx: Any) -> Any:
        yield [
            await ctx.once("a", lambda: "plain"),
            await ctx.once("b", coroutine),
            await ctx.once("c", lambda: coroutine()),
            await ctx.once("d", lambda: None),
            await ctx.once("e", lambda: (1, 2)),
        ]

    engine = await start(run)
    assert (await engine.send()).data == ["plain", "async", "async", None, [1, 2]]


async def test_once_called_twice_at_once_still_runs_once(start: Any) -> None:
    calls: list[int] = []

    async def slow() -> int:
        calls.append(1)
        await asyncio.sleep(0)
        return len(calls)

    async def run(ctx: Any) -> Any:
        yield await asyncio.gather(*(ctx.once("key", slow) for _ in range(3)))

    engine = await start(run)
    assert (await engine.send()).data == [1, 1, 1]


async def test_a_once_that_failed_is_tried_again(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        with pytest.raises(ZeroDivisionError):
            await ctx.once("key", lambda: 1 / 0)
        with pytest.raises(TypeError):
            await ctx.once("key", object)
        with pytest.raises(RuntimeError):
            await ctx.once("key", lambda: next(iter(())))
        yield await ctx.once("key", lambda: "third time")

    engine = await start(run)
    assert (await engine.send()).text == "third time"


async def test_once_is_durable_before_it_returns(start: Any, held_store: Any, turns: Any) -> None:
    returned: list[int] = []

    async def run(ctx: Any) -> Any:
        returned.append(await ctx.once("key", int))
        yield "done"

    held_store.holding = True
    engine = await start(run, store=held_store)
    sending = engine.sending()
    await turns()
    assert returned == []
    held_store.release()
    assert (await sending).state is State.COMPLETED
    assert returned == [0]


# What a run knows


async def test_a_run_knows_its_task_its_caller_and_its_message(start: Any) -> None:
    from dragoman import Part

    seen: dict[str, Any] = {}

    async def run(ctx: Any) -> Any:
        names = "task_id context_id user tenant text data metadata history resume cancelled asks extensions"
        seen.update({name: getattr(ctx, name) for name in names.split()})
        seen["files"] = [part.raw for part in ctx.files]
        ctx.log.info("hello")
        yield "done"

    engine = await start(run)
    me = User("me", permissions=frozenset({"p"}))
    task = await engine.send(
        "hi",
        parts=(Part(data={"n": 1}), Part(raw=b"x")),
        context="c",
        call=CallContext(user=me, tenant="t", asks=False),
        metadata={"a": "request", "b": 2},
        message_metadata={"a": "message", "c": 3},
    )
    assert seen.pop("history")[0].text == "hi"
    assert seen == {
        "task_id": task.id,
        "context_id": "c",
        "user": me,
        "tenant": "t",
        "text": "hi",
        "data": {"n": 1},
        "metadata": {"a": "request", "b": 2, "c": 3},
        "resume": None,
        "cancelled": False,
        "asks": False,
        "extensions": frozenset(),
        "files": [b"x"],
    }


async def test_a_low_level_run_that_calls_ask_fails_with_how_to_ask(start: Any, caplog: Any) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.text == "auth":
            await ctx.ask_auth("log in")
        yield await ctx.ask("?")

    engine = await start(run)
    for text in ("ask", "auth"):
        assert (await engine.send(text)).state is State.FAILED
        assert "yield Ask(question, ref=...)" in caplog.text
        caplog.clear()


@pytest.mark.requirement("S2-101")
async def test_two_engines_can_use_two_stores(start: Any) -> None:
    one, two = await start(remembering), await start(remembering)
    task = await one.send("show")
    assert [found.id for found in (await one.list()).tasks] == [task.id]
    assert (await two.list()).tasks == ()
