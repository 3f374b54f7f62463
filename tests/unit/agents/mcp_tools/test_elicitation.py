"""What tools ask, in both eras of MCP, and the answers on their way back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, cast

import mcp_types as types
import pytest
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

from dragoman import Agent, Part, State, User
from dragoman.agents.mcp_tools.elicitation import OPEN_CALL_SECONDS
from dragoman.agents.mcp_tools.task import MAX_ROUNDS, QUESTION_LOST
from dragoman.engine.call import CallContext
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock, served

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
ADA, BOB = CallContext(user=User("ada")), CallContext(user=User("bob"))


class Move(BaseModel):
    action: str


def ask_move() -> Elicit[Move]:
    return Elicit("What now?", Move)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(params=["handshake", "modern", "handshake http", "modern http"])
def asking(
    request: pytest.FixtureRequest, sdk_server: ModuleType, kit: MCPServer, handshake: Command
) -> Iterator[tuple[Any, str]]:
    """A server whose tool asks for a name, and that tool: of both eras, over all transports."""
    era, _, transport = request.param.partition(" ")
    if transport:
        with served(sdk_server.web_app(kit, era)) as url:
            yield f"{url}/mcp", "introduce"
    else:
        yield (kit, "introduce") if era == "modern" else (handshake(), "ask_name")


# -- a form ------------------------------------------------------------------------------------------------------------


async def test_a_form_is_a_question_with_its_schema(asking: tuple[Any, str], start: Start, tool_part: Any) -> None:
    server, tool = asking
    engine = await start(Agent.from_mcp(server))
    task = await engine.send(None, parts=(tool_part(tool, label="x"),))
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "Who is x?\n- `name` (string)")
    asked = task.status.message.data
    assert asked["message"] == "Who is x?"
    assert asked["requestedSchema"]["required"] == ["name"]

    wrong = await engine.send(None, parts=(Part(data={"name": 5}),), task=task)
    assert wrong.state is State.INPUT_REQUIRED
    assert wrong.question.startswith("`the answer`: `name` must be")
    assert wrong.question.endswith("Who is x?\n- `name` (string)")
    task = await engine.send(None, parts=(Part(data={"name": "Ada"}),), task=task)
    assert task.state is State.COMPLETED
    assert "Ada" in task.text


async def test_one_field_is_answered_by_text_and_a_form_by_its_result(
    asking: tuple[Any, str], start: Start, tool_part: Any
) -> None:
    server, tool = asking
    engine = await start(Agent.from_mcp(server))
    for text, data in (("Ada", ()), (None, (Part(data={"action": "accept", "content": {"name": "Ada"}}),))):
        task = await engine.send(None, parts=(tool_part(tool),))
        task = await engine.send(text, parts=data, task=task)
        assert task.state is State.COMPLETED
        assert "Ada" in task.text


@pytest.mark.parametrize("word", ["decline", "cancel"])
async def test_a_question_can_be_declined_and_canceled(
    start: Start, handshake: Command, kit: MCPServer, tool_part: Any, word: str
) -> None:
    old, new = await start(Agent.from_mcp(handshake())), await start(Agent.from_mcp(kit))
    for text, data in ((word.upper(), ()), (None, (Part(data={"action": word}),))):
        task = await old.send(None, parts=(tool_part("ask_name"),))
        task = await old.send(text, parts=data, task=task)
        assert task.text == f": {word} None"
        task = await new.send(None, parts=(tool_part("introduce"),))
        task = await new.send(text, parts=data, task=task)
        assert task.state is State.FAILED
        task = await new.send(None, parts=(tool_part("sign_in"),))
        assert (await new.send(text, parts=data, task=task)).text == word


async def test_several_questions_come_one_after_the_other(
    start: Start, handshake: Command, kit: MCPServer, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send("Ada", task=await engine.send(None, parts=(tool_part("ask_twice"),)))
    assert task.question.startswith("Who is the 2.?")
    assert (await engine.send("Bob", task=task)).text == "Ada and Bob"
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send("Ada", task=await engine.send(None, parts=(tool_part("measure"),)))
    assert task.question.startswith("How tall is Ada?")
    again = await engine.send("tall", task=task)
    assert again.question.startswith('`the answer`: `size` must be an integer, not "tall"')
    assert (await engine.send("180", task=again)).text == "Ada: 180"


async def test_two_questions_of_one_call_at_once_are_asked_in_turn(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_at_once"),))
    names = {}
    for name in ("Ada", "Bob"):
        names[task.question.splitlines()[0]] = name
        task = await engine.send(name, task=task)
    assert json.loads(task.text) == [names["Who is the 1.?"], names["Who is the 2.?"]]


async def test_a_field_of_the_form_may_be_called_action(start: Start, tool_part: Any) -> None:
    server = MCPServer("moves", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def move(choice: Annotated[Move, Resolve(ask_move)]) -> str:
        return choice.action

    engine = await start(Agent.from_mcp(server))
    task = await engine.send(None, parts=(tool_part("move"),))
    assert (await engine.send(None, parts=(Part(data={"action": "cancel"}),), task=task)).text == "cancel"


async def test_an_answer_that_the_form_takes_but_mcp_does_not_is_asked_for_again(
    start: Start, handshake: Command, kit: MCPServer, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_name"),))
    task = await engine.send(None, parts=(Part(data={"name": "Ada", "more": {"deep": 1}}),), task=task)
    assert task.state is State.INPUT_REQUIRED
    assert task.question.splitlines()[0] == (
        "the answer can hold texts, numbers, true and false, and lists of texts, but nothing else"
    )
    assert (await engine.send("Ada", task=task)).text == ": accept Ada"


async def test_a_server_that_asks_for_ever_fails_where_nobody_can_be_asked(start: Start, tool_part: Any) -> None:
    calls: list[object] = []
    form = types.ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}})

    async def tools(context: object, params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="pester", input_schema={"type": "object"})])

    async def pester(context: object, params: Any) -> types.InputRequiredResult:
        calls.append(params.input_responses)
        return types.InputRequiredResult(request_state="s", input_requests={"it": types.ElicitRequest(params=form)})

    engine = await start(Agent.from_mcp(Server("pest", on_list_tools=tools, on_call_tool=cast("Any", pester))))
    task = await engine.send(None, parts=(tool_part("pester"),), call=CallContext(asks=False))
    assert (task.state, task.error) == (
        State.FAILED,
        "`pester` asks again and again, and cannot do without an answer",
    )
    assert len(calls) == MAX_ROUNDS


# -- a page to visit ---------------------------------------------------------------------------------------------------


async def test_a_page_to_visit_is_auth_required_with_its_address(
    start: Start, handshake: Command, kit: MCPServer, tool_part: Any
) -> None:
    for server, text in ((handshake(), "Please sign in."), (kit, "Sign in first.")):
        engine = await start(Agent.from_mcp(server))
        task = await engine.send(None, parts=(tool_part("sign_in"),))
        assert (task.state, task.question) == (State.AUTH_REQUIRED, text)
        assert task.status.message.parts[1].url == "https://login.example.com/"
        assert (await engine.send("done", task=task)).text == "accept"


async def test_a_call_that_needs_such_a_visit_first_is_made_again(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("needs_sign_in"),))
    assert (task.state, task.question) == (State.AUTH_REQUIRED, "Sign in first.")
    assert task.status.message.parts[1].url == "https://login.example.com/"
    assert (await engine.send("done", task=task)).text == "you are in"


@pytest.mark.parametrize("word", ["decline", "cancel"])
async def test_a_call_whose_visit_is_declined_is_not_made_again(
    start: Start, handshake: Command, tool_part: Any, word: str
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    for text, data in ((word, ()), (None, (Part(data={"action": word}),))):
        task = await engine.send(None, parts=(tool_part("needs_sign_in", never=True),))
        task = await engine.send(text, parts=data, task=task)
        assert (task.state, task.error) == (
            State.FAILED,
            "`needs_sign_in` was not called again: what it needs first was declined",
        )
        assert task.artifacts == ()


# -- crashes, cancels and time -----------------------------------------------------------------------------------------


async def test_a_question_whose_server_has_forgotten_it_is_gone(
    start: Start, sdk_server: ModuleType, tmp_path: Path, tool_part: Any
) -> None:
    first = await start(Agent.from_mcp(sdk_server.build(tmp_path)), store=SqliteStore(tmp_path / "t.db"))
    task = await first.send(None, parts=(tool_part("introduce"),))
    await first.connection.close()
    other = sdk_server.build(tmp_path, b"o" * 32)
    second = await start(Agent.from_mcp(other), store=SqliteStore(tmp_path / "t.db"))
    task = await second.send("Ada", task=task.id)
    assert (task.state, task.error) == (State.FAILED, QUESTION_LOST)


async def test_a_question_of_the_handshake_era_is_gone_after_a_restart(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any
) -> None:
    first = await start(Agent.from_mcp(handshake()), store=SqliteStore(tmp_path / "t.db"))
    task = await first.send(None, parts=(tool_part("ask_name"),))
    await first.connection.close()
    second = await start(Agent.from_mcp(handshake()), store=SqliteStore(tmp_path / "t.db"))
    task = await second.send("Ada", task=task.id)
    assert (task.state, task.error) == (State.FAILED, QUESTION_LOST)


async def test_canceling_a_task_that_waits_cancels_the_tool_that_asked(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_name"),))
    await engine.idle()
    assert (await engine.cancel(task)).state is State.CANCELED
    await until(lambda: lines(tmp_path / "answers"))
    # This server does not look at cancels: that its question is over is told it, too.
    assert [json.loads(line) for line in lines(tmp_path / "answers")] == [{"action": "cancel"}]


async def test_a_question_is_held_open_for_an_hour(
    start: Start, handshake: Command, tool_part: Any, clock: Clock
) -> None:
    engine = await start(Agent.from_mcp(handshake(), timeout=5))
    task = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    await clock.advance(OPEN_CALL_SECONDS - 1)
    other = await engine.send(None, parts=(tool_part("ask_name"),), call=ADA)
    await clock.advance(2)
    assert (await engine.send("Ada", task=task, call=ADA)).error == QUESTION_LOST
    assert (await engine.send("Ada", task=other, call=ADA)).text == ": accept Ada"


async def test_a_server_that_dies_while_its_question_waits(start: Start, handshake: Command, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_name"),))
    died = await engine.send(None, parts=(tool_part("die"),))
    assert died.error == "the MCP server `handshake_server` stopped while `die` was at work"
    task = await engine.send("Ada", task=task)
    assert (task.state, task.error) == (
        State.FAILED,
        "the MCP server `handshake_server` stopped while `ask_name` was at work",
    )


# -- whose question ----------------------------------------------------------------------------------------------------


async def test_calls_that_ask_at_the_same_time_get_their_own_questions(
    asking: tuple[Any, str], start: Start, tool_part: Any
) -> None:
    server, tool = asking
    engine = await start(Agent.from_mcp(server))
    # Where a question does not say whose it is, one call shows that the tool asks; from then on it gets sessions.
    await engine.send(
        "first", task=await engine.send(None, parts=(tool_part(tool, label="first"),), call=ADA), call=ADA
    )
    labels = [f"n{number}" for number in range(4)]
    tasks = await asyncio.gather(
        *(engine.send(None, parts=(tool_part(tool, label=label),), call=ADA) for label in labels)
    )
    for label, task in zip(labels, tasks, strict=True):
        assert task.question.startswith(f"Who is {label}?")
    backwards = list(zip(labels, tasks, strict=True))[::-1]
    ends = await asyncio.gather(*(engine.send(f"name of {label}", task=task, call=ADA) for label, task in backwards))
    for (label, _), task in zip(backwards, ends, strict=True):
        assert task.text.startswith(f"{label}: ")
        assert task.text.endswith(f"name of {label}")


async def test_first_questions_at_the_same_moment_get_no_answer_and_are_asked_when_called_again(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    callers = (("a", ADA), ("b", BOB))

    async def call_both() -> list[Any]:
        return await asyncio.gather(
            *(engine.send(None, parts=(tool_part("ask_name", label=label),), call=call) for label, call in callers)
        )

    # Nobody knows yet that the tool asks, and both calls do. One may have ended before the other asks.
    tasks = await call_both()
    assert State.FAILED in {task.state for task in tasks}
    for (label, _), task in zip(callers, tasks, strict=True):
        if task.state is State.INPUT_REQUIRED:
            assert task.question.startswith(f"Who is {label}?")
            continue
        assert (task.state, task.text) == (State.FAILED, f"{label}: cancel None")
        assert task.error == (
            "`ask_name` asked something that got no answer, because it could not be determined which call had asked: "
            "it may have done a part of its work. Call it again: from now on its questions are told apart"
        )
    assert [task.question.splitlines()[0] for task in await call_both()] == ["Who is a?", "Who is b?"]


async def test_calls_that_ask_again_and_again_do_not_wait_for_each_other_s_callers(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))

    async def answered(name: str) -> str:
        task = await engine.send(None, parts=(tool_part("ask_twice"),), call=ADA)
        while task.state is State.INPUT_REQUIRED:
            task = await engine.send(f"{name}{task.question[11]}", task=task, call=ADA)
        return task.text

    await answered("first")
    stuck = await engine.send(None, parts=(tool_part("ask_twice"),), call=ADA)
    names = [f"n{number}-" for number in range(10)]
    assert await asyncio.gather(*map(answered, names)) == [f"{name}1 and {name}2" for name in names]
    assert (await engine.get(stuck, call=ADA)).state is State.INPUT_REQUIRED


async def test_the_question_of_a_call_that_was_given_up_is_shown_to_nobody_else(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    given_up = await engine.send(None, parts=(tool_part("ask_late", label="secret"),), wait=False)
    await until((tmp_path / "begun").exists)
    other = await engine.send(None, parts=(tool_part("wait"),), wait=False)
    await until(lambda: len(lines(tmp_path / "begun")) == 2)
    await engine.cancel(given_up)
    await engine.send(None, parts=(tool_part("let_go"),))
    await until(lambda: lines(tmp_path / "answers"))
    assert [json.loads(line) for line in lines(tmp_path / "answers")] == [{"action": "cancel"}]
    assert (await engine.get(other)).state is State.WORKING
    await engine.cancel(other)


async def test_a_first_question_beside_another_call_gets_no_answer_and_is_asked_when_called_again(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    other = engine.sending(None, parts=(tool_part("held"),))
    await until((tmp_path / "begun").exists)
    task = await engine.send(None, parts=(tool_part("ask_name", label="x"),))
    assert (task.state, task.text) == (State.FAILED, "x: cancel None")
    assert "asked something that got no answer" in task.error
    task = await engine.send(None, parts=(tool_part("ask_name", label="x"),))
    assert task.question.startswith("Who is x?")
    assert (await engine.send("Ada", task=task)).text == "x: accept Ada"
    await engine.send(None, parts=(tool_part("let_go"),))
    assert (await other).text == "held"


async def test_a_tool_that_may_be_called_twice_is_called_again_by_itself_for_its_first_question(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    other = await engine.send(None, parts=(tool_part("wait"),), wait=False)
    await until((tmp_path / "begun").exists)
    task = await engine.send(None, parts=(tool_part("ask_safely", label="x"),))
    assert task.question.startswith("Who is x?")
    assert task.artifacts == ()
    assert (await engine.send("Ada", task=task)).text == "x: accept Ada"
    assert (await engine.get(other)).state is State.WORKING
    await engine.cancel(other)
