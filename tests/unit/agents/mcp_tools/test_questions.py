"""No caller is ever shown the question of another, and none keeps too many waiting."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import pytest
from mcp.server import MCPServer

from dragoman import Agent, State, User
from dragoman.agents.mcp_tools import call as questions
from dragoman.agents.mcp_tools import elicitation
from dragoman.agents.mcp_tools.call import ToolCall
from dragoman.engine.call import CallContext

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
ADA, BOB = CallContext(user=User("ada")), CallContext(user=User("bob"))


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
    engine = await given_up()
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)).text == ": cancel None"
    monkeypatch.setattr(questions, "ROUTING_TIMEOUT", 0.0)
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)).text == ": cancel None"
    for stranger in (CallContext(), CallContext(tenant="t", user=ADA.user)):
        assert (await engine.send(None, parts=(tool_part("ask_name"),), call=stranger)).text == ": cancel None"
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    assert (await engine.send("Ada", task=task, call=ADA)).text == ": accept Ada"


async def test_strangers_are_not_taken_for_one_and_the_same(start: Start, handshake: Command, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    one = await engine.send(None, parts=(tool_part("ask_name"),))
    assert one.state is State.INPUT_REQUIRED
    assert (await engine.send(None, parts=(tool_part("ask_name"),))).text == ": cancel None"
    same = await engine.send(None, parts=(tool_part("ask_name"),), context=one.context_id)
    assert same.state is State.INPUT_REQUIRED


async def test_a_call_that_was_given_up_is_forgotten_once_the_server_has_answered_it(
    given_up: Any, tool_part: Any, until: Until
) -> None:
    engine = await given_up("held")
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=BOB)).text == ": cancel None"
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
    assert (await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)).text == ": cancel None"


async def test_a_question_that_brings_a_call_which_was_given_up_is_not_shown_to_the_one_at_work(
    start: Start, kit: MCPServer
) -> None:
    agent: Any = Agent.from_mcp(kit)
    await start(agent)
    connection = agent.tools._supervisors[0].connection
    gone, at_work = (ToolCall(connection, "introduce", {}) for _ in range(2))
    asked, form = questions.ElicitationRouter("kit"), {"type": "object"}
    for each in (gone, at_work):
        await asked.add_call(each)
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
    await until(answers)
    assert answers() == [{"action": "cancel"}]
    assert (await engine.get(other, call=BOB)).state is State.WORKING
    assert (await engine.send("Ada", task=first, call=ADA)).text == "done"
    await engine.cancel(other, call=BOB)


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
