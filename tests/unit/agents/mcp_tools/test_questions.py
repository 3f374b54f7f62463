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
from dragoman.agents.mcp_tools import call as questions
from dragoman.agents.mcp_tools import elicitation, spares
from dragoman.agents.mcp_tools.call import ToolCall
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


async def test_a_call_that_was_given_up_is_in_mind_for_a_while_and_for_other_callers_for_ever(
    given_up: Any, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "MAX_SPARES", 0)
    engine = await given_up()
    asking = engine.agent.tools._supervisors[0]._asking

    async def ask(call: CallContext) -> Any:
        asking.names.clear()  # as if it had never asked: it is called here, and not in a process of its own
        return await engine.send(None, parts=(tool_part("ask_name"),), call=call)

    unanswered = [await ask(ADA)]
    monkeypatch.setattr(questions, "ROUTING_TIMEOUT", 0.0)
    unanswered += [await ask(call) for call in (BOB, CallContext(), CallContext(tenant="t", user=ADA.user))]
    for task in unanswered:
        assert (task.state, task.text) == (State.FAILED, ": cancel None")
        assert task.error.startswith(f"`ask_name` {UNANSWERED}: it may have done a part of its work. Call it again")
    assert (await engine.send("Ada", task=await ask(ADA), call=ADA)).text == ": accept Ada"


async def test_strangers_are_not_taken_for_one_and_the_same(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    one = await engine.send(None, parts=(tool_part("ask_name"),))
    assert one.state is State.INPUT_REQUIRED
    same = await engine.send(None, parts=(tool_part("ask_name"),), context=one.context_id)
    assert same.state is State.INPUT_REQUIRED
    assert len(lines(tmp_path / "started")) == 1
    other = await engine.send(None, parts=(tool_part("ask_name"),))
    assert other.state is State.INPUT_REQUIRED
    assert len(lines(tmp_path / "started")) == 2


async def test_a_call_that_was_given_up_is_forgotten_once_the_server_has_answered_it(
    given_up: Any, tool_part: Any, until: Until
) -> None:
    engine = await given_up("held")
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)).state is State.FAILED
    await engine.send(None, parts=(tool_part("let_go"),), call=BOB)
    connection = engine.agent.tools._supervisors[0].connection
    await until(lambda: not connection.elicitations._abandoned)
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"


async def test_a_call_that_ends_when_its_question_is_canceled_leaves_no_doubt(
    start: Start, handshake: Command, tool_part: Any, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    await engine.cancel(task, call=ADA)
    assert answers() == [{"action": "cancel"}]
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"


async def test_where_too_many_were_given_up_to_be_remembered_no_question_is_anybody_s(
    given_up: Any, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "MAX_ABANDONED", 0)
    monkeypatch.setattr(questions, "ROUTING_TIMEOUT", 0.0)
    engine = await given_up()
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert (task.state, task.text) == (State.FAILED, ": cancel None")


async def test_a_question_that_brings_a_call_which_was_given_up_is_not_shown_to_the_one_at_work() -> None:
    gone, at_work = (ToolCall("introduce", {}) for _ in range(2))
    asked, form = questions.ElicitationRouter("kit"), {"type": "object"}
    for each in (gone, at_work):
        assert asked.add_call(each)
    asked.remove_call(gone, abandoned=True)
    token = questions.CURRENT_CALL.set(gone)
    try:
        params = types.ElicitRequestFormParams(message="A secret?", requested_schema=form)
        result = await asked.on_elicitation(cast("Any", None), params)
    finally:
        questions.CURRENT_CALL.reset(token)
    assert result == types.ElicitResult(action="cancel")
    assert not at_work.is_waiting


# -- calls that wait ---------------------------------------------------------------------------------------------------


async def test_a_second_question_of_a_call_that_waits_is_not_shown_to_who_is_at_work(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    first = await engine.send(None, parts=(tool_part("ask_and_ask_late"),), call=ADA)
    assert first.question.startswith("The first secret?")
    other = await engine.send(None, parts=(tool_part("wait"),), call=BOB, wait=False)
    await until((tmp_path / "begun").exists)
    await engine.send(None, parts=(tool_part("let_go"),), call=BOB)
    # It waits until one of them has ended. Whoever was given up may still have asked it, so then it gets no answer.
    await engine.cancel(other, call=BOB)
    await until(answers)
    assert answers() == [{"action": "cancel"}]
    ended = await engine.send("Ada", task=first, call=ADA)
    assert (ended.state, ended.text) == (State.FAILED, "done")
    assert UNANSWERED in ended.error


async def test_a_second_question_of_a_call_that_waits_is_its_own_when_the_other_call_has_ended(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_and_ask_late"),), call=ADA)
    assert task.question.startswith("The first secret?")
    other = engine.sending(None, parts=(tool_part("held_longer"),), call=BOB)
    await until((tmp_path / "begun").exists)
    await engine.send(None, parts=(tool_part("let_go"),), call=BOB)
    await engine.send(None, parts=(tool_part("let_go_longer"),), call=BOB)
    assert (await other).text == "held"
    task = await engine.send("Ada", task=task, call=ADA)
    assert task.question.startswith("The second secret?")
    assert (await engine.send("Ada", task=task, call=ADA)).text == "done"
    assert answers() == [{"action": "accept", "content": {"name": "Ada"}}]


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


async def test_a_tool_that_asks_for_the_first_time_beside_an_open_question_waits_for_its_answer(
    start: Start, handshake: Command, tool_part: Any, answers: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    first = await engine.send(None, parts=(tool_part("sign_in"),), call=ADA)
    assert first.state is State.AUTH_REQUIRED
    second = engine.sending(None, parts=(tool_part("ask_name"),), call=BOB)
    await engine.send(None, parts=(tool_part("same"),), call=BOB)
    assert not second.done()
    assert (await engine.send("done", task=first, call=ADA)).text == "accept"
    assert (await engine.send("Bob", task=await second, call=BOB)).text == ": accept Bob"
    assert answers() == [{"action": "accept", "content": {"name": "Bob"}}]


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


async def test_a_call_for_which_there_are_no_more_processes_waits_and_then_says_why_it_was_not_made(
    start: Start, handshake: Command, tool_part: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, answers: Any
) -> None:
    monkeypatch.setattr(spares, "MAX_SPARES", 1)
    engine = await start(Agent.from_mcp(handshake(), timeout=5))
    for call in (ADA, BOB):
        task = await engine.send(None, parts=(tool_part("ask_name"),), call=call)
    waiting = engine.sending(None, parts=(tool_part("ask_name"),), call=CY)
    await engine.send(None, parts=(tool_part("same"),), call=CY)
    assert not waiting.done()
    await clock.advance(6)
    assert (await waiting).error == (
        "`ask_name` was not called: for 5 s the MCP server `handshake_server` waited for the answers of other callers; "
        "try it again later"
    )
    assert (await engine.send("Bob", task=task, call=BOB)).text == ": accept Bob"
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=CY)).state is State.INPUT_REQUIRED
    assert answers() == [{"action": "accept", "content": {"name": "Bob"}}]


async def test_a_process_that_nobody_needs_any_more_is_ended(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "IDLE_SECONDS", 0.05)
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
