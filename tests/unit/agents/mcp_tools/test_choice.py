"""Which tool a message means."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.server import MCPServer

from dragoman import Agent, Client, Part, Server, State, Task, User
from dragoman.agents.mcp_tools.tool import ask_which_tool
from dragoman.engine.call import CallContext
from dragoman.testing import served

Start = Callable[..., Awaitable[Any]]
OLD = CallContext(asks=False)
ADMIN = CallContext(user=User("1", name="Ada", permissions=frozenset({"admin"})))
SUM = '[3, "int", "int"]'


@pytest.mark.requirement("S0-2")
async def test_every_skill_on_the_card_can_be_called_by_its_id(kit: MCPServer) -> None:
    async with Client(Agent.from_mcp(kit, exclude=["wait", "secret", "held", "inquire"])) as client:
        skills = [skill.id for skill in (await client.card()).skills]
        assert skills == [
            *("add", "echo", "who", "nobody", "trace", "fail", "refuse", "introduce", "measure", "pid", "sign_in"),
            *("rounds", "think", "more"),
        ]
        arguments = {"add": {"a": 1, "b": 2}, "echo": {"text": "x"}, "refuse": {"n": -1}, "rounds": {"n": 1}}
        ends = {skill: (await client.send(tool=skill, arguments=arguments.get(skill, {}))).state for skill in skills}
    failed = {"fail": State.FAILED, "refuse": State.FAILED, "think": State.FAILED}
    asking = {"introduce": State.INPUT_REQUIRED, "measure": State.INPUT_REQUIRED, "sign_in": State.AUTH_REQUIRED}
    assert ends == dict.fromkeys(skills, State.COMPLETED) | failed | asking


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("key", ["tool", "skill"])
@pytest.mark.requirement("S0-31")
async def test_a_data_part_names_the_tool_wherever_it_stands(
    start: Start, kit: MCPServer, place: int, key: str
) -> None:
    engine = await start(Agent.from_mcp(kit))
    parts = [Part(text="please"), Part(text="add them")]
    parts.insert(place, Part(data={key: "add", "arguments": {"a": 1, "b": 2}}))
    assert (await engine.send(None, parts=tuple(parts))).text == SUM


async def test_metadata_names_the_skill_and_the_data_are_its_arguments(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit))
    for metadata in ({"skillId": "add"}, {"skill_id": "add"}):
        for place in ("metadata", "message_metadata"):
            task = await engine.send(None, parts=(Part(data={"a": 1, "b": 2}),), **{place: metadata})
            assert task.text == SUM


async def test_a_text_may_be_such_an_object(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit))
    assert (await engine.send('{"tool": "add", "arguments": {"a": 1, "b": 2}}')).text == SUM


async def test_arguments_that_are_no_object_are_asked_for(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(Part(data={"tool": "add", "arguments": [1, 2]}),))
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "`add` needs `a` (integer)\n`add` needs `b` (integer)")


async def test_plain_text_goes_to_the_default_tool(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit, default_tool="echo"))
    assert (await engine.send("hello there")).text == "hello there"
    assert (await engine.send("{not json")).text == "{not json"
    assert (await engine.send("ignored", parts=(Part(data={"text": "from data"}),))).text == "from data"
    assert (await engine.send(None, parts=(Part(data={"tool": "add", "arguments": {"a": 1, "b": 2}}),))).text == SUM


async def test_the_only_tool_gets_whatever_comes(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit, include=["echo"]))
    assert (await engine.send("hello")).text == "hello"


async def test_the_only_tool_a_caller_may_use_is_meant(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit, include=["add", "secret"], permissions={"add": "sums"}))
    task = await engine.send("hello", call=ADMIN)
    assert (task.state, task.text) == (State.COMPLETED, "the secret")


# -- asked for ---------------------------------------------------------------------------------------------------------


async def test_a_caller_who_names_no_tool_is_asked_and_sees_only_permitted_ones(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit, include=["add", "echo", "secret"]))
    task = await engine.send("do something")
    assert task.state is State.INPUT_REQUIRED
    assert task.question == (
        'Which tool? Answer with its name, or with data {"tool": "…", "arguments": {…}}.\n'
        "- add: Add two numbers.\n- echo: Say it again, as it is."
    )
    assert task.status.message.data == {"tools": ["add", "echo"]}
    assert "secret" in (await engine.send("do something", call=ADMIN)).question


@pytest.mark.parametrize("answer", ["echo", " `Echo` ", "say it AGAIN", '{"tool": "echo"}'])
async def test_the_question_is_answered_by_name_or_title_and_the_arguments_are_asked_for(
    start: Start, kit: MCPServer, answer: str
) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(answer, task=await engine.send("do something"))
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "`echo` needs `text` (string)")
    task = await engine.send("hello", task=task)
    assert (task.state, task.text) == (State.COMPLETED, "hello")


async def test_the_question_is_answered_with_data(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit))
    whole = Part(data={"tool": "add", "arguments": {"a": 1, "b": 2}})
    assert (await engine.send(None, parts=(whole,), task=await engine.send("go"))).text == SUM
    beside = Part(data={"a": 1, "b": 2})
    assert (await engine.send("add", parts=(beside,), task=await engine.send("go"))).text == SUM


async def test_a_wrong_answer_gets_the_nearest_name(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send("ecco", task=await engine.send("do something"))
    assert task.question.startswith("There is no tool 'ecco': did you mean `echo`? Which tool? ")
    task = await engine.send("xyz", task=task)
    assert task.question.startswith("There is no tool 'xyz'. Which tool? ")
    assert (await engine.send("who", task=task)).state is State.COMPLETED


async def test_an_unknown_tool_is_rejected_with_the_nearest_the_caller_may_use(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(Part(data={"tool": "ad"}),))
    assert (task.state, task.error) == (State.REJECTED, "unknown tool `ad`: did you mean `add`?")
    hidden = await engine.send(None, parts=(Part(data={"tool": "secre"}),))
    assert hidden.error == "unknown tool `secre`, or one that needs credentials"
    # To a stranger, one that is there and closed is one that is not there.
    closed = await engine.send(None, parts=(Part(data={"tool": "secret"}),))
    assert closed.error == "unknown tool `secret`, or one that needs credentials"
    assert (await engine.send(None, parts=(Part(data={"tool": "secre"}),), call=ADMIN)).error == (
        "unknown tool `secre`: did you mean `secret`?"
    )
    long = await engine.send(None, parts=(Part(data={"tool": "x" * 5000}),))
    assert len(long.error) < 200


async def test_an_agent_whose_tools_are_all_closed_says_so(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit, permissions={"*": "admin"}))
    for call in (CallContext(), OLD):
        task = await engine.send("hello", call=call)
        assert task.error == "this agent has no tools"


async def test_a_long_list_is_cut_and_the_rest_is_on_the_card(start: Start) -> None:
    server = MCPServer("many", log_level="CRITICAL")
    for number in range(25):
        server.add_tool(lambda: "", name=f"tool{number}", description="word " * 50)
    agent = Agent.from_mcp(server)
    await start(agent)
    lines = ask_which_tool(agent.skills).question.splitlines()  # pyright: ignore[reportArgumentType]
    assert lines[-1] == "… and 5 more, see the agent card"
    assert len(lines) == 22
    assert all(len(line) <= 110 for line in lines)


# -- who cannot be asked -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-32", "S0-39", "S0-40")
async def test_callers_of_0_1_who_name_no_tool_get_the_first_one_with_their_text(
    handshake: Callable[..., list[str]],
) -> None:
    agent = Agent.from_mcp(handshake(), include=["same", "pid"])
    with served(Server(agent)) as url:
        async with Client(f"{url}/a2a", protocol="0.1") as client:
            task = await client.send("Hello!")
    assert isinstance(task, Task)
    assert task.state is State.COMPLETED
    assert [artifact.name for artifact in task.artifacts] == ["same-result"]
    assert json.loads(task.text)["arguments"] == {"text": "Hello!"}


async def test_who_cannot_be_asked_gets_the_default_tool_before_the_first(start: Start, kit: MCPServer) -> None:
    engine = await start(Agent.from_mcp(kit, default_tool="echo"))
    assert (await engine.send("hello", call=OLD)).text == "hello"


@pytest.mark.requirement("S0-36")
async def test_callers_of_0_1_find_every_error_among_the_artifacts(kit: MCPServer) -> None:
    errors: list[tuple[str, dict[str, Any], str]] = [
        ("ad", {}, "unknown tool `ad`: did you mean `add`?"),
        ("add", {"a": "x", "b": 2}, '`add`: `a` must be an integer, not "x"'),
        ("add", {"a": 1}, "`add` needs `b` (integer)"),
        ("fail", {}, "Error executing tool fail"),
        ("refuse", {"n": -32602}, "the server will not"),
    ]
    with served(Server(Agent.from_mcp(kit, exclude=["secret"]))) as url:
        async with Client(f"{url}/a2a", protocol="0.1") as client:
            for tool, arguments, text in errors:
                task = await client.send(tool=tool, arguments=arguments)
                assert isinstance(task, Task)
                assert task.state is State.FAILED
                assert [each.text for each in task.artifacts[0].parts] == [text]


async def test_who_cannot_be_asked_declines_what_a_tool_asks(
    start: Start, kit: MCPServer, handshake: Callable[..., list[str]]
) -> None:
    part = Part(data={"tool": "ask_name", "arguments": {"label": "Ada"}})
    engine = await start(Agent.from_mcp(handshake()))
    assert (await engine.send(None, parts=(part,), call=OLD)).text == "Ada: decline None"
    engine = await start(Agent.from_mcp(kit))
    task = await engine.send(None, parts=(Part(data={"tool": "introduce"}),), call=OLD)
    assert task.state is State.FAILED
    task = await engine.send(None, parts=(Part(data={"tool": "sign_in"}),), call=OLD)
    assert task.text == "decline"
