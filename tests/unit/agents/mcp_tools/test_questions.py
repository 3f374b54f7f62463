"""No caller is ever shown the question of another, and none keeps too many waiting."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import pytest

from dragoman import Agent, State, User
from dragoman.agents.mcp_tools import elicitation, sessions
from dragoman.agents.mcp_tools.call import ToolCall
from dragoman.agents.mcp_tools.in_flight import CURRENT_CALL, CallsInFlight
from dragoman.engine.call import CallContext

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
ADA, BOB, CY = (CallContext(user=User(name)) for name in ("ada", "bob", "cy"))
UNANSWERED = "asked something that got no answer, because it could not be determined which call had asked"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def answers(tmp_path: Path) -> Callable[[], list[Any]]:
    """What the server was answered."""
    return lambda: [json.loads(line) for line in lines(tmp_path / "answers")]


@pytest.fixture
def signal_tool(tmp_path: Path) -> Callable[[], Awaitable[None]]:
    """Let the tools go on that wait for a signal."""
    os.mkfifo(tmp_path / "pipe")

    async def signal_it() -> None:
        await asyncio.to_thread((tmp_path / "pipe").write_bytes, b"go on")

    return signal_it


@pytest.fixture
def given_up(start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until) -> Any:
    """An engine, and a call of Ada's that she has given up and the server has not."""

    async def begin(tool: str = "ask_late") -> Any:
        engine = await start(Agent.from_mcp(handshake()))
        task = await engine.send(None, parts=(tool_part(tool, label="secret"),), call=ADA, wait=False)
        await until((tmp_path / "begun").exists)
        await engine.cancel(task, call=ADA)
        await engine.idle()
        return engine

    return begin


# -- calls that were given up ------------------------------------------------------------------------------------------


async def test_a_tool_that_once_ended_without_a_question_may_still_ask_after_it_was_given_up(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    await engine.send(None, parts=(tool_part("ask_late", quiet=True),), call=ADA)
    given_up = await engine.send(None, parts=(tool_part("ask_late", label="secret"),), call=ADA, wait=False)
    await until((tmp_path / "begun").exists)
    await engine.cancel(given_up, call=ADA)
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until(lambda: len(lines(tmp_path / "begun")) == 2)
    await engine.send(None, parts=(tool_part("let_go"),), call=ADA)
    await until(answers)
    assert answers() == [{"action": "cancel"}]
    assert (await engine.get(other, call=BOB)).state is State.WORKING
    await engine.cancel(other, call=BOB)


async def test_once_a_call_was_given_up_no_first_question_is_shown_to_anybody_beside_it(
    given_up: Any, tool_part: Any
) -> None:
    engine = await given_up()
    for call, tool in ((ADA, "ask_name"), (BOB, "sign_in")):
        task = await engine.send(None, parts=(tool_part(tool),), call=call)
        assert (task.state, task.text.endswith(("cancel None", "cancel"))) == (State.FAILED, True)
        assert task.error.startswith(f"`{tool}` {UNANSWERED}: it may have done a part of its work. Call it again")
        again = await engine.send(None, parts=(tool_part(tool),), call=call)
        assert again.state in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


async def test_a_process_is_used_again_by_its_caller_and_never_by_another(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))

    async def ask(starts: int, **caller: Any) -> str:
        task = await engine.send(None, parts=(tool_part("ask_name"),), **caller)
        ended = await engine.send("me", task=task, call=caller.get("call", CallContext()))
        assert ended.text == ": accept me"
        assert len(lines(tmp_path / "started")) == starts
        return task.context_id

    await ask(1, call=ADA)  # that it asks is not known before
    for caller, starts in ((ADA, 2), (ADA, 2), (BOB, 3), (ADA, 3), (CallContext(tenant="t", user=ADA.user), 4)):
        await ask(starts, call=caller)
    stranger = await ask(5)
    await ask(5, context=stranger)
    await ask(6)


async def test_a_call_that_ends_when_its_question_is_canceled_leaves_no_doubt(
    start: Start, handshake: Command, tool_part: Any, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    await engine.cancel(task, call=ADA)
    assert answers() == [{"action": "cancel"}]
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"


async def test_a_question_that_brings_a_call_which_was_given_up_is_not_shown_to_the_one_at_work() -> None:
    gone, at_work = (ToolCall("introduce", {}) for _ in range(2))
    in_flight = CallsInFlight("kit", lambda _: None, lambda: None)
    in_flight.add(gone)
    in_flight.add(at_work)
    in_flight.end(gone, abandoned=True)
    token = CURRENT_CALL.set(gone)
    try:
        params = types.ElicitRequestFormParams(message="A secret?", requested_schema={"type": "object"})
        result = await in_flight.on_elicitation(cast("Any", None), params)
    finally:
        CURRENT_CALL.reset(token)
    assert result == types.ElicitResult(action="cancel")
    assert not at_work.is_waiting


async def test_a_process_in_which_a_call_was_given_up_is_ended_so_that_it_asks_nothing_more(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any, signal_tool: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = engine.sending(None, parts=(tool_part("ask_at_signal"),), call=ADA)
    await until((tmp_path / "begun").exists)
    await signal_tool()
    assert (await engine.send("Ada", task=await task, call=ADA)).text == ": accept Ada"
    given_up = await engine.send(None, parts=(tool_part("ask_at_signal", label="secret"),), call=ADA, wait=False)
    await until(lambda: len(lines(tmp_path / "begun")) == 2)
    first, second = (Path("/proc") / pid for pid in lines(tmp_path / "started"))
    await engine.cancel(given_up, call=ADA)
    task = engine.sending(None, parts=(tool_part("ask_at_signal", label="mine"),), call=ADA)
    await until(lambda: len(lines(tmp_path / "begun")) == 3)
    await until(lambda: not second.exists())
    await signal_tool()
    assert (await task).question.startswith("Who is mine?")
    assert len(answers()) == 1
    assert first.exists()


# -- calls that wait ---------------------------------------------------------------------------------------------------


async def test_a_second_question_of_a_call_that_waits_is_not_shown_to_who_is_at_work(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any, signal_tool: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    first = await engine.send(None, parts=(tool_part("ask_and_ask_late"),), call=ADA)
    assert first.question.startswith("The first secret?")
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until(lambda: len(lines(tmp_path / "begun")) == 2)
    await signal_tool()
    await until(answers)
    assert answers() == [{"action": "cancel"}]
    assert (await engine.get(other, call=BOB)).state is State.WORKING
    ended = await engine.send("Ada", task=first, call=ADA)
    assert (ended.state, ended.text) == (State.FAILED, "done")
    assert UNANSWERED in ended.error
    await engine.cancel(other, call=BOB)


async def test_further_questions_are_asked_in_a_process_of_the_caller_s_own_whatever_others_do(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any, signal_tool: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))

    async def ask_and_answer(caller: CallContext) -> Any:
        task = await engine.send(None, parts=(tool_part("ask_and_ask_late"),), call=caller)
        assert task.question.startswith("The first secret?")
        await signal_tool()
        task = await engine.send("me", task=task, call=caller)
        assert task.question.startswith("The second secret?")
        return await engine.send("me", task=task, call=caller)

    assert (await ask_and_answer(ADA)).text == "done"
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until(lambda: len(lines(tmp_path / "begun")) == 2)
    assert [(await ask_and_answer(caller)).text for caller in (ADA, BOB)] == ["done", "done"]
    assert answers() == [{"action": "accept", "content": {"name": "me"}}] * 3
    assert (await engine.get(other, call=BOB)).state is State.WORKING
    await engine.cancel(other, call=BOB)


async def test_a_question_that_arrives_together_with_the_result_of_its_call_is_not_shown_to_another_caller(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until((tmp_path / "begun").exists)
    ended = await engine.send(None, parts=(tool_part("ask_and_leave"),), call=ADA)
    assert (ended.state, ended.text) == (State.FAILED, "left")
    assert UNANSWERED in ended.error
    await until(answers)
    assert answers() == [{"action": "cancel"}]
    assert (await engine.get(other, call=BOB)).state is State.WORKING
    await engine.cancel(other, call=BOB)


async def test_a_question_that_comes_of_reading_a_resource_is_not_shown_to_another_caller(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until((tmp_path / "begun").exists)
    ended = await engine.send(None, parts=(tool_part("link"),), call=ADA)
    assert (ended.state, ended.text, UNANSWERED in ended.error) == (State.FAILED, "read", True)
    assert answers() == [{"action": "cancel"}]
    assert (await engine.get(other, call=BOB)).state is State.WORKING
    await engine.cancel(other, call=BOB)


async def test_while_a_question_is_open_another_caller_is_asked_by_a_second_process(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    tasks = {
        call: await engine.send(None, parts=(tool_part("ask_name", label=str(call.user)),), call=call)
        for call in (ADA, BOB, CY)
    }
    assert [task.state for task in tasks.values()] == [State.INPUT_REQUIRED] * 3
    assert len(lines(tmp_path / "started")) == 3
    for call, task in reversed(tasks.items()):
        ended = await engine.send("me", task=task, call=call)
        assert (ended.state, ended.text) == (State.COMPLETED, f"{call.user}: accept me")
    assert answers() == [{"action": "accept", "content": {"name": "me"}}] * 3


async def test_callers_who_call_a_tool_that_asks_at_the_same_moment_are_all_asked(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    first = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    await engine.send("Ada", task=first, call=ADA)
    callers = (ADA, BOB, CY, ADA)
    tasks = await asyncio.gather(*(engine.send(None, parts=(tool_part("ask_name"),), call=call) for call in callers))
    assert [task.state for task in tasks] == [State.INPUT_REQUIRED] * 4
    ends = [await engine.send("me", task=task, call=call) for call, task in zip(callers, tasks, strict=True)]
    assert [task.text for task in ends] == [": accept me"] * 4


async def test_other_tools_are_called_in_the_first_process_while_a_question_is_open(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)).state is State.INPUT_REQUIRED
    pid = (await engine.send(None, parts=(tool_part("pid"),), call=BOB)).text
    assert [pid, len(lines(tmp_path / "started"))] == [lines(tmp_path / "started")[0], 2]


async def test_a_first_question_beside_an_open_one_is_asked_when_its_tool_is_called_again(
    start: Start, handshake: Command, tool_part: Any, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    first = await engine.send(None, parts=(tool_part("sign_in"),), call=ADA)
    assert first.state is State.AUTH_REQUIRED
    second = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (second.state, UNANSWERED in second.error) == (State.FAILED, True)
    second = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (await engine.send("done", task=first, call=ADA)).text == "accept"
    assert (await engine.send("Bob", task=second, call=BOB)).text == ": accept Bob"
    assert answers() == [{"action": "cancel"}, {"action": "accept", "content": {"name": "Bob"}}]


async def test_after_a_call_was_given_up_others_are_asked_by_a_second_process(
    given_up: Any, tool_part: Any, tmp_path: Path
) -> None:
    engine = await given_up()
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)).state is State.FAILED
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"
    assert len(lines(tmp_path / "started")) == 2


async def test_where_no_second_process_starts_a_call_waits_for_the_answer_of_the_other_caller(
    start: Start, handshake: Command, tool_part: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await start(Agent.from_mcp(handshake("once")))
    first = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    second = engine.sending(None, parts=(tool_part("ask_name"),), call=BOB)
    await until(lambda: "handshake_server cannot be started a second time" in caplog.text)
    assert not second.done()
    assert (await engine.send("Ada", task=first, call=ADA)).text == ": accept Ada"
    assert (await engine.send("Bob", task=await second, call=BOB)).text == ": accept Bob"


async def test_a_server_that_cannot_be_started_twice_is_restarted_when_a_call_was_given_up_that_may_still_ask(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await start(Agent.from_mcp(handshake("alone")))
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert (await engine.send("Ada", task=task, call=ADA)).text == ": accept Ada"
    given_up = await engine.send(None, parts=(tool_part("wait"),), call=ADA, wait=False)
    await until((tmp_path / "begun").exists)
    await engine.cancel(given_up, call=ADA)
    await engine.idle()
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"
    assert "a call was given up that may still ask, and a second process cannot be started" in caplog.text


async def test_a_server_that_cannot_be_started_twice_says_when_to_call_again(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake("alone")))
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert (await engine.send("Ada", task=task, call=ADA)).text == ": accept Ada"
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until((tmp_path / "begun").exists)
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert (task.state, task.text) == (State.FAILED, ": cancel None")
    assert task.error.endswith(
        f"{UNANSWERED}: it may have done a part of its work. Call it again while no other tool is at work"
    )
    await engine.cancel(other, call=BOB)


async def test_one_caller_cannot_have_all_the_processes(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    monkeypatch.setattr(sessions, "MAX_PER_CALLER", 1)
    engine = await start(Agent.from_mcp(handshake()))
    # The first is asked in the first process: it is not known before that the tool asks.
    _, task = [await engine.send(None, parts=(tool_part("ask_name"),), call=ADA) for _ in range(2)]
    assert task.state is State.INPUT_REQUIRED
    waiting = engine.sending(None, parts=(tool_part("ask_name"),), call=ADA)
    other = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert other.state is State.INPUT_REQUIRED
    assert not waiting.done()
    assert (await engine.send("Ada", task=task, call=ADA)).text == ": accept Ada"
    assert (await waiting).state is State.INPUT_REQUIRED
    assert len(lines(tmp_path / "started")) == 3


async def test_a_call_for_which_there_are_no_more_processes_waits_and_then_says_why_it_was_not_made(
    start: Start, handshake: Command, tool_part: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, answers: Any
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 1)
    engine = await start(Agent.from_mcp(handshake(), timeout=5))
    for call in (ADA, BOB):
        task = await engine.send(None, parts=(tool_part("ask_name"),), call=call)
    waiting = engine.sending(None, parts=(tool_part("ask_name"),), call=CY)
    await engine.send(None, parts=(tool_part("same"),), call=CY)
    assert not waiting.done()
    await clock.advance(6)
    assert (await waiting).error == (
        "`ask_name` was not called: for 5 s the MCP server `handshake_server` waited for the answers to other "
        "questions; try it again later"
    )
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=CY)).state is State.INPUT_REQUIRED
    assert answers() == [{"action": "accept", "content": {"name": "Bob"}}]


async def test_a_process_that_nobody_needs_any_more_is_ended(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.05)
    engine = await start(Agent.from_mcp(handshake()))
    await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    first, second = (Path("/proc") / pid for pid in lines(tmp_path / "started"))
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"
    await until(lambda: not second.exists())
    assert first.exists()


async def test_a_second_process_that_dies_takes_only_its_own_call_with_it(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    first = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    second = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    pid = int(lines(tmp_path / "started")[1])
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not (Path("/proc") / str(pid)).exists())
    ended = await engine.send("Bob", task=second, call=BOB)
    assert ended.error == "the MCP server `handshake_server` stopped while `ask_name` was at work"
    third = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert third.state is State.INPUT_REQUIRED
    assert (await engine.send("Ada", task=first, call=ADA)).text == ": accept Ada"


# -- how many wait -----------------------------------------------------------------------------------------------------


async def test_a_caller_can_keep_only_so_many_questions_waiting(
    start: Start, handshake: Command, tool_part: Any, answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation, "MAX_PER_USER", 2)
    engine = await start(Agent.from_mcp(handshake()))
    tasks = [await engine.send(None, parts=(tool_part("ask_name"),), call=ADA) for _ in range(3)]
    assert [task.state for task in tasks] == [State.INPUT_REQUIRED, State.INPUT_REQUIRED, State.FAILED]
    assert tasks[2].error == "`ask_name` asks, but 2 questions wait for you: answer or cancel one first"
    assert answers() == [{"action": "cancel"}]
    assert (await engine.send("Ada", task=tasks[0], call=ADA)).text == ": accept Ada"
    again = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert again.state is State.INPUT_REQUIRED


async def test_all_callers_together_can_keep_only_so_many_questions_waiting(
    start: Start, handshake: Command, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation, "MAX_OPEN_CALLS", 1)
    engine = await start(Agent.from_mcp(handshake()))
    await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    says = "`ask_name` asks, but too many questions wait for their answers here: try it again later"
    assert (task.state, task.error) == (State.FAILED, says)
