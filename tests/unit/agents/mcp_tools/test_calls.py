"""Calls of tools: their arguments, results and errors, their progress, and their end before time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from dragoman import Agent, Client, Part, State, User
from dragoman.engine.call import CallContext
from dragoman.errors import ConfigError
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
BOB = CallContext(user=User("2", name="Bob"))
ADMIN = CallContext(user=User("1", name="Ada", permissions=frozenset({"admin", "audit"})))


# -- arguments ---------------------------------------------------------------------------------------------------------


async def test_what_is_missing_is_asked_for_with_its_schema(start: Start, kit: MCPServer, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(tool_part("add", a=1),))
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "`add` needs `b` (integer)")
    asked = task.status.message.data
    assert asked["tool"] == "add"
    assert list(asked["requestedSchema"]["properties"]) == asked["requestedSchema"]["required"] == ["b"]
    assert (await engine.send("2", task=task)).text == '[3, "int", "int"]'


async def test_what_is_wrong_is_asked_for_until_it_is_right(start: Start, kit: MCPServer, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(tool_part("add", a="one", b=2),))
    assert task.question == '`add`: `a` must be an integer, not "one"'
    task = await engine.send("uno", task=task)
    assert task.question == '`add`: `a` must be an integer, not "uno"'
    task = await engine.send(None, parts=(Part(data={"a": 1}),), task=task)
    assert (task.state, task.text) == (State.COMPLETED, '[3, "int", "int"]')


async def test_integers_stay_integers_on_their_way(
    start: Start, kit: MCPServer, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(tool_part("add", a=3.0, b=9007199254740993),))
    assert task.text == '[9007199254740996, "int", "int"]'
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("same", n=9007199254740993, x=0.1, deep=[{"y": 2}]),))
    assert json.loads(task.text)["arguments"] == {"n": 9007199254740993, "x": 0.1, "deep": [{"y": 2}]}


@pytest.mark.parametrize("depth", [98, 120, 254, 2000])
async def test_arguments_that_are_nested_too_deeply_do_no_harm_to_others(
    start: Start, handshake: Command, tool_part: Any, depth: int
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    deep = "[" * depth + "]" * depth
    # As text they come past what the edge allows.
    first = await engine.send(f'{{"tool": "same", "arguments": {{"x": {deep}}}}}')
    asked = await engine.send(None, parts=(tool_part("refuse"),))
    second = await engine.send(f'{{"n": -1, "x": {deep}}}', task=asked)
    if depth < 100:
        assert (first.state, second.error) == (State.COMPLETED, "the server will not")
    else:
        assert State.COMPLETED not in (first.state, second.state)
        assert depth > 1000 or first.error == "the arguments of `same` are nested deeper than 100"
    assert (await engine.send(None, parts=(tool_part("pid"),))).text == before


# -- results and errors ------------------------------------------------------------------------------------------------


async def test_a_result_is_an_artifact_named_after_its_tool(start: Start, kit: MCPServer, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(tool_part("echo", text="hi"),))
    assert [(each.name, each.parts[0].text) for each in task.artifacts] == [("echo-result", "hi")]


async def test_a_tool_s_own_error_fails_the_task_and_is_an_artifact(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("fail"),))
    assert (task.state, task.error) == (State.FAILED, "the disk is full")
    assert [(each.name, each.parts[0].text) for each in task.artifacts] == [("fail-error", "the disk is full")]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (-32602, State.REJECTED),
        (-32601, State.REJECTED),
        (-32603, State.FAILED),
        (-32000, State.FAILED),
        (5, State.FAILED),
    ],
)
async def test_an_error_of_the_protocol_ends_the_task_and_not_the_connection(
    start: Start, handshake: Command, tool_part: Any, code: int, state: State
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    task = await engine.send(None, parts=(tool_part("refuse", n=code),))
    assert (task.state, task.error) == (state, "the server will not")
    assert (await engine.send(None, parts=(tool_part("pid"),))).text == before


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("nonsense", "the MCP server `handshake_server` answered what is not MCP"),
        ("broken_promise", "`broken_promise` returned what its own output schema does not allow"),
        ("costly_promise", "`costly_promise` returned what its own output schema does not allow"),
    ],
)
async def test_an_answer_that_is_none_fails_the_task_and_the_connection_lives_on(
    start: Start, handshake: Command, tool_part: Any, tool: str, says: str
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    task = await engine.send(None, parts=(tool_part(tool),))
    assert (task.state, task.error) == (State.FAILED, says)
    assert (await engine.send(None, parts=(tool_part("pid"),))).text == before


async def test_a_tool_may_go_on_in_another_round_but_not_for_ever(start: Start, kit: MCPServer, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(kit))
    assert (await engine.send(None, parts=(tool_part("rounds", n=3),))).text == "after 3"
    task = await engine.send(None, parts=(tool_part("rounds", n=1000),))
    assert task.error == "`rounds` asked for another round 10 times without a question"
    task = await engine.send(None, parts=(tool_part("think"),))
    assert task.error == "`think` asks for what only a language model could give"


async def test_a_tool_that_was_chosen_by_an_answer_is_not_run_again_either(
    start: Start, handshake: Command, tmp_path: Path, until: Until
) -> None:
    begun = tmp_path / "begun"
    first = await start(Agent.from_mcp(handshake()), store=SqliteStore(tmp_path / "t.db"))
    task = await first.send("do something")
    await first.send("wait", task=task, wait=False)
    await until(begun.exists)
    await first.connection.close()
    second = await start(Agent.from_mcp(handshake()), store=SqliteStore(tmp_path / "t.db"))
    assert "interrupted by a restart" in (await second.get(task)).error
    assert len(begun.read_text().splitlines()) == 1


# -- progress ----------------------------------------------------------------------------------------------------------


async def test_progress_is_reported_with_its_measure_at_most_once_at_a_time_and_not_lost_to_the_result(
    start: Start, handshake: Command, tool_part: Any, clock: Clock
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("step", steps=[1, 2, 3, 4]),))
    assert task.text == "done"
    (event,) = [event for event in await engine.journal(task) if getattr(event, "metadata", None)]
    # The clock stands still: of several reports at one moment one is journaled.
    step = event.metadata["done"]
    assert (event.metadata, event.status.message.text) == ({"done": step, "total": 10.0}, f"working ({step:g}/10)")


async def test_progress_is_reported_every_fifth_of_a_second_and_never_after_the_end(start: Start, clock: Clock) -> None:
    server, steps, seen = MCPServer("steps", log_level="CRITICAL"), asyncio.Queue[float](), asyncio.Event()

    @server.tool(structured_output=False)
    async def walk(ctx: Context[Any, Any]) -> str:
        while (step := await steps.get()) > 0:
            await ctx.report_progress(step)
            seen.set()
        return "there"

    engine = await start(Agent.from_mcp(server))
    going = engine.sending("go")
    for step, seconds in ((1, 0.1), (2, 0.1), (3, 0.0)):
        seen.clear()
        steps.put_nowait(step)
        await seen.wait()
        await clock.advance(seconds)
    steps.put_nowait(0)
    task = await going
    texts = [event.status.message.text for event in await engine.journal(task) if getattr(event, "metadata", None)]
    assert texts == ["1", "3"]
    assert (await engine.states(task))[-1] is State.COMPLETED


# -- cancel and timeout ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["object", "handshake", "modern"])
def waiting(request: pytest.FixtureRequest, kit: MCPServer, handshake: Command, sdk_command: list[str]) -> object:
    """A server with a tool that waits for ever: in this process, and as programs of both eras."""
    return {"object": kit, "handshake": handshake(), "modern": sdk_command}[request.param]


async def test_a_cancel_reaches_the_tool(
    start: Start, waiting: object, tmp_path: Path, tool_part: Any, until: Until
) -> None:
    engine = await start(Agent.from_mcp(waiting, include=["wait"]))
    task = await engine.send(None, parts=(tool_part("wait"),), wait=False)
    await until((tmp_path / "begun").exists)
    assert (await engine.cancel(task)).state is State.CANCELED
    await until((tmp_path / "canceled").exists)


async def test_a_tool_that_is_silent_too_long_is_stopped(
    start: Start, waiting: object, tmp_path: Path, tool_part: Any, clock: Clock, until: Until
) -> None:
    engine = await start(Agent.from_mcp(waiting, include=["wait"], timeout=5))
    going = engine.sending(None, parts=(tool_part("wait"),))
    await until((tmp_path / "begun").exists)
    await clock.advance(4.9)
    assert not going.done()
    await clock.advance(0.2)
    task = await going
    assert (task.state, task.error) == (State.FAILED, "`wait` was silent for 5 s and has been stopped")
    await until((tmp_path / "canceled").exists)


async def test_progress_is_a_sign_of_life(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, clock: Clock, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake(), timeout=5))
    going = engine.sending(None, parts=(tool_part("wait"),))
    await until((tmp_path / "begun").exists)
    await clock.advance(3)
    walking = engine.sending(None, parts=(tool_part("step", steps=[1], wait=True),))
    await until(lambda: clock.pending >= 2)
    begun = tmp_path / "begun"
    await until(lambda: len(begun.read_text().splitlines()) == 2)
    task = (await engine.list()).tasks[0]
    while not any(getattr(event, "metadata", None) for event in await engine.journal(task.id)):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await clock.advance(3)
    assert (await going).error == "`wait` was silent for 5 s and has been stopped"
    assert not walking.done()
    await clock.advance(2.1)
    assert (await walking).error == "`step` was silent for 5 s and has been stopped"


async def test_nothing_is_stopped_where_nobody_wants_it(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, clock: Clock, until: Until
) -> None:
    engine = await start(Agent.from_mcp(handshake(), timeout=0))
    going = engine.sending(None, parts=(tool_part("wait"),), wait=False)
    await until((tmp_path / "begun").exists)
    await clock.advance(100_000)
    task = await going
    assert (await engine.get(task)).state is State.WORKING
    await engine.cancel(task)


# -- who calls ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-34")
async def test_tools_that_ask_for_the_caller_get_it(start: Start, kit: MCPServer, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(kit))

    async def user_in(tool: str, **call: Any) -> Any:
        return json.loads((await engine.send(None, parts=(tool_part(tool),), **call)).text)

    assert await user_in("who") == {"id": "", "name": "", "permissions": []}
    assert await user_in("who", call=ADMIN) == {"id": "1", "name": "Ada", "permissions": ["admin", "audit"]}
    assert await user_in("nobody", call=ADMIN) is None


@pytest.mark.requirement("S0-34")
async def test_a_tool_says_by_itself_what_a_caller_needs(start: Start, kit: MCPServer, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(tool_part("secret"),), call=BOB)
    assert (task.state, task.error) == (State.REJECTED, "Unauthorized: Secret")
    assert (await engine.send(None, parts=(tool_part("secret"),), call=ADMIN)).text == "the secret"


async def test_the_first_pattern_that_fits_says_what_a_caller_needs(
    start: Start, kit: MCPServer, tool_part: Any
) -> None:
    agent = Agent.from_mcp(kit, permissions={"secret": None, "e*": "echoes", "echo": None, "who": "admin", "*": "all"})
    engine = await start(agent)
    needs = {skill.id: skill.permission for skill in agent.skills}
    assert needs.items() >= {"secret": None, "echo": "echoes", "who": "admin", "add": "all"}.items()
    assert (await engine.send(None, parts=(tool_part("secret"),))).state is State.COMPLETED
    assert (await engine.send(None, parts=(tool_part("who"),), call=BOB)).state is State.REJECTED
    assert (await engine.send(None, parts=(tool_part("who"),), call=ADMIN)).state is State.COMPLETED


async def test_a_permission_that_is_lost_counts_when_the_answer_comes(
    start: Start, kit: MCPServer, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(kit, permissions={"add": "admin"}))
    task = await engine.send(None, parts=(tool_part("add", a=1),), call=ADMIN)
    assert task.state is State.INPUT_REQUIRED
    task = await engine.send("2", task=task, call=CallContext(user=User("1", name="Ada")))
    assert (task.state, task.error) == (State.REJECTED, "Unauthorized: Add")


# -- which tools there are ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-40")
async def test_the_tools_that_are_included_are_the_skills_in_that_order(kit: MCPServer) -> None:
    async with Client(Agent.from_mcp(kit, include=["who", "add"])) as client:
        assert [skill.id for skill in (await client.card()).skills] == ["who", "add"]
        assert (await client.send(tool="echo", arguments={"text": "x"})).state is State.REJECTED


@pytest.mark.requirement("S3-41")
async def test_without_such_a_list_every_tool_is_a_skill(kit: MCPServer) -> None:
    agent = Agent.from_mcp(kit)
    async with Client(agent) as client:
        await client.send(tool="who")
        assert [skill.id for skill in agent.skills] == [tool.name for tool in await kit.list_tools()]


async def test_patterns_include_and_exclude(kit: MCPServer) -> None:
    agent = Agent.from_mcp(kit, include=["w*", "add", "e?ho"], exclude=["wait", "nothing*"])
    async with Client(agent) as client:
        await client.send(tool="who")
        assert [skill.id for skill in agent.skills] == ["who", "add", "echo"]


async def test_one_name_alone_is_a_list_of_one(kit: MCPServer) -> None:
    agent = Agent.from_mcp(kit, include="who")
    async with Client(agent) as client:
        await client.send("hi")
        assert [skill.id for skill in agent.skills] == ["who"]


@pytest.mark.parametrize("options", [{"default_tool": "ad"}, {"include": ["add", "ad"]}])
async def test_the_error_for_an_unknown_tool_lists_the_tools(kit: MCPServer, options: dict[str, Any]) -> None:
    exclude = ["[!ae]*"]
    with pytest.raises(ConfigError) as caught:
        async with Client(Agent.from_mcp(kit, exclude=exclude, **options)) as client:
            await client.send("hi")
    there = "add" if "include" in options else "add, echo"
    assert str(caught.value) == f"{next(iter(options))}: there is no tool `ad`; there are: {there}"


async def test_the_tools_of_several_servers_carry_their_names(
    start: Start, kit: MCPServer, handshake: Command, tool_part: Any
) -> None:
    agent = Agent.from_mcp(
        kit, handshake(), include=["add", "*.refuse", "handshake_server.pid"], default_tool="kit.add"
    )
    engine = await start(agent)
    assert agent.name == "tools"
    assert [skill.id for skill in agent.skills] == [
        *("kit.add", "kit.refuse", "handshake_server.refuse", "handshake_server.pid")
    ]
    assert (await engine.send(None, parts=(tool_part("kit.add", a=1, b=2),))).text == '[3, "int", "int"]'
    task = await engine.send(None, parts=(tool_part("handshake_server.pid"),))
    assert (task.state, task.artifacts[0].name) == (State.COMPLETED, "handshake_server.pid-result")
    assert (await engine.send("hi")).question.startswith("`kit.add` needs `a`")


async def test_functions_beside_the_tools_are_skills_too(start: Start, kit: MCPServer, tool_part: Any) -> None:
    agent = Agent.from_mcp(kit, include=["add"])

    @agent.skill
    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    engine = await start(agent)
    assert [skill.id for skill in agent.skills] == ["add", "shout"]
    assert (await engine.send(None, parts=(tool_part("shout", text="hi"),))).text == "HI"
    assert (await engine.send("hi", metadata={"skillId": "shout"})).text == "HI"
    assert (await engine.send(None, parts=(tool_part("add", a=1, b=2),))).text == '[3, "int", "int"]'
