"""The server of tools as functions: the source document's examples, literally, without HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from dragoman import Agent, User
from dragoman.compat.tool_server import (
    ToolServer,
    agent_card,
    call_tool_as,
    handle_cancel,
    handle_get,
    handle_send,
    public_agent_card,
    setup_database,
    shutdown,
    toolbox,
    tools_for_permissions,
)
from dragoman.errors import ConfigError

ADA = {"id": 7, "username": "ada", "permissions": {"admin": True, "counter": True}}
BOB = {"id": 8, "username": "bob", "permissions": {"admin": False}}
OPEN_TOOLS = {
    "get_greeting": "Greet somebody by name.",
    "current_time": "The time now, in UTC.",
    "is_admin": "Whether you are an administrator.",
    "get_counter": "The value of the counter.",
    "add_numbers": "Add two numbers.",
}
CARD = {
    "name": "elixir-mcp-agent",
    "description": "An Elixir MCP server exposed via the A2A protocol",
    "url": "https://localhost/a2a",
    "version": "1.0.0",
    "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True},
    "authentication": {"schemes": ["cookie"]},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [
        {"id": name, "name": name, "description": description, "tags": [], "examples": []}
        for name, description in OPEN_TOOLS.items()
    ],
}
MESSAGE: dict[str, Any] = {
    "role": "user",
    "parts": [
        {"type": "text", "text": "Human-readable request"},
        {"type": "data", "data": {"tool": "add_numbers", "arguments": {"a": 3, "b": 7}}},
    ],
}


def nothing() -> str:
    """Do nothing."""
    return "done"


def asking(tool: str, **arguments: Any) -> dict[str, Any]:
    """The parameters of `tasks/send` for a tool."""
    return {
        "message": {"role": "user", "parts": [{"type": "data", "data": {"tool": tool, "arguments": arguments}}]},
    }


def text_of(task: dict[str, Any]) -> str:
    (artifact,) = task["artifacts"]
    (part,) = artifact["parts"]
    assert part["type"] == "text"
    return part["text"]


def rows(path: Path) -> list[dict[str, Any]]:
    """The table as another program sees it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        reader.row_factory = sqlite3.Row
        found = [dict(row) for row in reader.execute("SELECT * FROM a2a_tasks ORDER BY id")]
    return [row | {name: json.loads(row[name]) for name in ("history", "artifacts")} for row in found]


def tools(*functions: Callable[..., Any], **options: Any) -> Agent:
    """An agent of a real MCP server with these tools."""
    server = MCPServer("own", log_level="ERROR")
    for function in functions:
        server.add_tool(function, structured_output=False)
    return Agent.from_mcp(server, **options)


@pytest.fixture
async def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The functions, set up on a file. Their MCP server runs in this process, which is quicker than a program."""
    monkeypatch.setattr(toolbox, "_counter", 0)
    monkeypatch.setattr(toolbox, "new_agent", partial(toolbox.new_agent, toolbox.new_server()))
    await setup_database(tmp_path / "tasks.db")
    yield tmp_path / "tasks.db"
    await shutdown()


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Path]:
    """The same with the MCP server as a program."""
    await setup_database(tmp_path / "tasks.db")
    yield tmp_path / "tasks.db"
    await shutdown()


# -- cards -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "S0-10",
    "S0-14",
    "S0-15",
    "S0-16",
    "S0-17",
    "S0-18",
    "S0-19",
    "S0-20",
    "S0-21",
    "S0-22",
    "S0-23",
    "S0-24",
    "S0-25",
    "S0-26",
    "S0-27",
    "S0-63",
)
async def test_the_public_card_is_the_document_s_to_the_byte(database: Path) -> None:
    card = await public_agent_card()
    assert json.dumps(card) == json.dumps(CARD)
    # More is registered than it shows.
    assert len(await tools_for_permissions({"admin": True, "counter": True})) == 7


@pytest.mark.requirement("S0-11", "S0-12", "S0-13", "S0-64")
async def test_a_card_shows_the_tools_that_permissions_open(database: Path) -> None:
    for permissions, more in (
        ({}, []),
        ({"counter": True}, ["increment_counter"]),
        ({"counter": False, "admin": "yes"}, []),
        (["admin", "counter"], ["increment_counter", "server_report"]),
        (iter(["counter"]), ["increment_counter"]),
        ({80001: True}, []),
    ):
        kept = dict(permissions) if isinstance(permissions, dict) else list(permissions)
        card = await agent_card(iter(kept) if isinstance(kept, list) else kept)
        assert [skill["id"] for skill in card["skills"]] == [*OPEN_TOOLS, *more]
        assert [tool["name"] for tool in await tools_for_permissions(kept)] == [*OPEN_TOOLS, *more]
        assert card | {"skills": CARD["skills"]} == CARD
        assert {tuple(skill) for skill in card["skills"]} == {("id", "name", "description", "tags", "examples")}


async def test_tools_are_listed_with_what_they_take(database: Path) -> None:
    shown = {tool["name"]: tool for tool in await tools_for_permissions(())}
    assert list(shown["add_numbers"]) == ["name", "description", "inputSchema"]
    assert shown["add_numbers"]["description"] == "Add two numbers."
    assert shown["add_numbers"]["inputSchema"]["required"] == ["a", "b"]


async def test_another_address_and_name_stand_on_the_card() -> None:
    def only(text: str) -> str:
        """The only one."""
        return text

    async with ToolServer(tools(only, name="mine", version="3"), url="https://tools.example/") as server:
        card = await server.public_agent_card()
    assert (card["name"], card["version"], card["url"]) == ("mine", "3", "https://tools.example/a2a")
    assert [skill["description"] for skill in card["skills"]] == ["The only one."]


# -- send --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "S0-29", "S0-30", "S0-35", "S0-37", "S0-38", "S0-56", "S0-57", "S0-58", "S0-59", "S0-60", "S0-61", "S0-65"
)
async def test_a_sent_message_is_the_document_s_task(database: Path) -> None:
    outcome, task = await handle_send({"message": MESSAGE}, ADA)
    assert outcome == "ok"
    assert json.dumps(task) == json.dumps(
        {
            "id": task["id"],
            "status": {"state": "completed", "timestamp": task["status"]["timestamp"]},
            "history": [MESSAGE],
            "artifacts": [{"name": "add_numbers-result", "parts": [{"type": "text", "text": "10"}]}],
        }
    )
    assert re.fullmatch(r"\d{13}", task["id"])
    (row,) = rows(database)
    assert row == {
        "id": int(task["id"]),
        "updated_at": row["updated_at"],
        "user_id": 7,
        "state": "completed",
        "history": task["history"],
        "artifacts": task["artifacts"],
    }
    finished = datetime.fromisoformat(task["status"]["timestamp"])
    assert round(finished.timestamp() * 1000) == row["updated_at"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["status"]["timestamp"])


@pytest.mark.requirement("S0-33", "S0-28")
async def test_the_row_is_there_while_the_tool_works(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look() -> str:
        seen.extend(rows(tmp_path / "t.db"))
        return "seen"

    params = asking("look")
    async with ToolServer(tools(look), tmp_path / "t.db") as server:
        _, task = await server.handle_send(params, ADA)
    assert [(row["state"], row["history"], row["artifacts"]) for row in seen] == [("working", [params["message"]], [])]
    (after,) = rows(tmp_path / "t.db")
    assert (after["state"], after["artifacts"]) == ("completed", task["artifacts"])
    assert (after["id"], after["user_id"]) == (seen[0]["id"], 7)
    assert after["updated_at"] > seen[0]["updated_at"]


@pytest.mark.requirement("S0-32", "S0-40")
async def test_a_text_alone_goes_to_the_first_tool_as_its_text() -> None:
    got: list[Any] = []

    def first(text: Any, other: str = "") -> str:
        got.append((text, other))
        return f"first: {text}"

    def second() -> str:
        return "second"

    async with ToolServer(tools(first, second)) as server:
        message = {"role": "user", "parts": [{"type": "text", "text": "just words"}]}
        _, task = await server.handle_send({"message": message}, BOB)
    assert got == [("just words", "")]
    assert task["artifacts"] == [{"name": "first-result", "parts": [{"type": "text", "text": "first: just words"}]}]


@pytest.mark.requirement("S0-36")
@pytest.mark.parametrize(
    ("params", "name", "text"),
    [
        (asking("multiply", a=1), "tool-error", "unknown tool `multiply`"),
        (asking("halve", n="many"), "halve-error", '`halve`: `n` must be an integer, not "many"'),
        (asking("halve"), "halve-error", "`halve` needs `n`"),
        (asking("halve", n=3), "halve-error", "3 is odd"),
        (asking("halve", n=0), "halve-error", "Error executing tool halve"),
    ],
    ids=["unknown tool", "wrong type", "missing argument", "text", "raised"],
)
async def test_what_goes_wrong_in_a_tool_is_a_failed_task_and_no_error(
    tmp_path: Path, params: dict[str, Any], name: str, text: str
) -> None:
    def halve(n: int) -> int:
        if n % 2:
            raise ToolError(f"{n} is odd")
        return n // 2 if n else 1 // n

    async with ToolServer(tools(halve), tmp_path / "t.db") as server:
        outcome, task = await server.handle_send(params, ADA)
    assert (outcome, task["status"]["state"]) == ("ok", "failed")
    assert list(task["status"]) == ["state", "timestamp"]
    assert task["artifacts"][0]["name"] == name
    assert text in text_of(task)
    (row,) = rows(tmp_path / "t.db")
    assert (row["state"], row["artifacts"]) == ("failed", task["artifacts"])


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        [],
        "text",
        {"message": {}},
        {"message": {"role": "user", "parts": [{"type": "text", "text": "\ud800"}]}},
    ],
)
async def test_an_invalid_message_is_refused(params: Any) -> None:
    async with ToolServer(tools(nothing)) as server:
        outcome, error = await server.handle_send(params, ADA)
    assert (outcome, error["code"], list(error)) == ("error", -32602, ["code", "message"])


# -- get and cancel ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-41", "S0-66")
async def test_a_task_is_read_by_its_sender_alone(database: Path) -> None:
    _, sent = await handle_send({"message": MESSAGE}, ADA)
    assert await handle_get({"id": sent["id"]}, ADA) == ("ok", sent)
    assert await handle_get({"id": int(sent["id"])}, User("7", "ada")) == ("ok", sent)
    assert await handle_get({"id": sent["id"]}, BOB) == ("error", {"code": -32001, "message": "Task not found"})
    assert await handle_cancel({"id": sent["id"]}, BOB) == ("error", {"code": -32001, "message": "Task not found"})
    await shutdown()
    await setup_database(database)
    assert await handle_get({"id": sent["id"]}, ADA) == ("ok", sent)


@pytest.mark.requirement("S0-44", "S0-67")
async def test_a_finished_task_is_canceled_and_stays_so(database: Path) -> None:
    _, sent = await handle_send({"message": MESSAGE}, ADA)
    outcome, canceled = await handle_cancel({"id": sent["id"]}, ADA)
    assert outcome == "ok"
    assert canceled == sent | {"status": canceled["status"]}
    assert canceled["status"]["state"] == "canceled"
    assert canceled["status"]["timestamp"] > sent["status"]["timestamp"]
    assert await handle_get({"id": sent["id"]}, ADA) == ("ok", canceled)
    assert [row["state"] for row in rows(database)] == ["canceled"]
    await shutdown()
    await setup_database(database)
    assert await handle_get({"id": sent["id"]}, ADA) == ("ok", canceled)


@pytest.mark.requirement("S0-45")
async def test_of_cancels_at_the_same_time_none_is_lost(database: Path) -> None:
    _, sent = await handle_send({"message": MESSAGE}, ADA)
    (before,) = rows(database)
    canceled = await asyncio.gather(*(handle_cancel({"id": sent["id"]}, ADA) for _ in range(3)))
    assert {(outcome, task["status"]["state"]) for outcome, task in canceled} == {("ok", "canceled")}
    (after,) = rows(database)
    # Each has moved the row on by its own step, and nothing else in it has changed.
    assert after["updated_at"] >= before["updated_at"] + 3
    assert after | {"updated_at": 0, "state": ""} == before | {"updated_at": 0, "state": ""}


@pytest.mark.requirement("S0-28", "S0-44")
async def test_a_task_at_work_is_canceled(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with ToolServer(tools(wait), tmp_path / "t.db") as server:
        sending = asyncio.create_task(server.handle_send(asking("wait") | {"id": "1709395200000"}, ADA))
        await begun.wait()
        assert [(row["id"], row["state"]) for row in rows(tmp_path / "t.db")] == [(1709395200000, "working")]
        outcome, canceled = await server.handle_cancel({"id": "1709395200000"}, ADA)
        assert (outcome, canceled["status"]["state"]) == ("ok", "canceled")
        assert await sending == ("ok", canceled)
    assert [(row["state"], row["artifacts"]) for row in rows(tmp_path / "t.db")] == [("canceled", [])]


@pytest.mark.requirement("S0-42", "S0-43", "S0-46", "S0-47")
@pytest.mark.parametrize("handle", [ToolServer.handle_get, ToolServer.handle_cancel], ids=["get", "cancel"])
async def test_no_id_and_an_unknown_id_have_their_codes(handle: Any) -> None:
    async with ToolServer(tools(nothing)) as server:
        for params in (None, {}, {"id": ""}, {"id": None}, []):
            outcome, error = await handle(server, params, ADA)
            assert (outcome, error["code"]) == ("error", -32602)
        assert await handle(server, {"id": "1"}, ADA) == ("error", {"code": -32001, "message": "Task not found"})


# -- as whom -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-34")
async def test_tools_run_as_their_caller(database: Path) -> None:
    for user, answer in ((ADA, "true"), (BOB, "false"), (User("9", permissions=frozenset({"admin"})), "true")):
        assert await call_tool_as("is_admin", {}, user) == ("ok", {"content": [{"type": "text", "text": answer}]})
        _, task = await handle_send(asking("is_admin"), user)
        assert text_of(task) == answer
    assert await call_tool_as("get_greeting", None, BOB) == (
        "ok",
        {"content": [{"type": "text", "text": "Hello, bob!"}]},
    )


@pytest.mark.requirement("S0-34")
async def test_a_missing_permission_is_reported_without_its_name(database: Path) -> None:
    outcome, error = await call_tool_as("server_report", {}, BOB)
    assert (outcome, error) == ("error", {"code": -32000, "message": "Unauthorized: Server Report"})
    # A stranger does not even learn that there is such a tool.
    unknown = {"code": -32000, "message": "unknown tool `server_report`, or one that needs credentials"}
    assert await call_tool_as("server_report", {}, None) == ("error", unknown)
    _, task = await handle_send(asking("server_report"), BOB)
    assert task["status"]["state"] == "failed"
    assert task["artifacts"] == [
        {"name": "server_report-error", "parts": [{"type": "text", "text": "Unauthorized: Server Report"}]}
    ]
    assert "admin" not in json.dumps(task["artifacts"])
    _, allowed = await handle_send(asking("server_report"), ADA)
    assert "asked for by ada" in text_of(allowed)


async def test_a_call_that_fails_is_an_error_and_leaves_no_task(database: Path) -> None:
    assert await call_tool_as("nothing", {}, ADA) == ("error", {"code": -32000, "message": "unknown tool `nothing`"})
    outcome, error = await call_tool_as("add_numbers", {"a": 1}, ADA)
    assert (outcome, error["code"]) == ("error", -32000)
    assert "`b`" in error["message"]
    outcome, error = await call_tool_as("add_numbers", {"a": "\ud800"}, ADA)
    assert (outcome, error["code"]) == ("error", -32602)
    assert (await call_tool_as("add_numbers", {"a": 1, "b": 2.5}, ADA))[1]["content"][0]["text"] == "3.5"
    assert rows(database) == []


async def test_nobody_has_no_tasks(database: Path) -> None:
    for handle, params in (
        (handle_send, {"message": MESSAGE}),
        (handle_get, {"id": "1"}),
        (handle_cancel, {"id": "1"}),
    ):
        assert await handle(params, None) == ("error", {"code": -31401, "message": "Authentication required"})
    assert rows(database) == []


@pytest.mark.parametrize("user", [{}, {"id": ""}, {"id": None}, {"id": True}, {"username": "ada"}])
async def test_a_user_without_an_id_is_a_mistake(user: dict[str, Any]) -> None:
    async with ToolServer(tools(nothing)) as server:
        with pytest.raises(ConfigError, match="a user needs an id"):
            await server.handle_send({"message": MESSAGE}, user)


# -- the toolbox -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-2", "S0-68")
async def test_every_skill_on_the_card_is_a_tool_that_can_be_called(database: Path) -> None:
    arguments = {"add_numbers": {"a": 0.1, "b": 2}, "get_greeting": {"name": "Lisbon"}}
    answers: dict[str, str] = {}
    for skill in (await agent_card({"admin": True, "counter": True}))["skills"]:
        _, task = await handle_send(asking(skill["id"], **arguments.get(skill["id"], {})), ADA)
        assert task["status"]["state"] == "completed"
        assert [artifact["name"] for artifact in task["artifacts"]] == [f"{skill['id']}-result"]
        answers[skill["id"]] = text_of(task)
    moment = datetime.fromisoformat(answers.pop("current_time"))
    assert abs(moment.timestamp() - datetime.now(moment.tzinfo).timestamp()) < 60
    assert "counter at 1" in answers.pop("server_report")
    assert answers == {
        "get_greeting": "Hello, Lisbon!",
        "is_admin": "true",
        "get_counter": "0",
        "add_numbers": "2.1",
        "increment_counter": "1",
    }


@pytest.mark.requirement("S0-68")
async def test_the_counter_lives_in_the_mcp_server(program: Path) -> None:
    async def answer(tool: str) -> str:
        return (await call_tool_as(tool, {}, ADA))[1]["content"][0]["text"]

    counted = [await answer(tool) for tool in ("get_counter", "increment_counter", "increment_counter", "get_counter")]
    assert counted == ["0", "1", "2", "2"]
    await shutdown()
    await setup_database(program)
    assert await answer("get_counter") == "0"


# -- the database ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-62")
async def test_setting_up_makes_the_table_and_may_be_done_twice(database: Path) -> None:
    await handle_send({"message": MESSAGE}, ADA)
    await setup_database(str(database))
    await setup_database(f"sqlite:///{database}")
    assert len(rows(database)) == 1


async def test_another_database_takes_the_place_of_the_first(database: Path, tmp_path: Path) -> None:
    _, sent = await handle_send({"message": MESSAGE}, ADA)
    await setup_database(tmp_path / "other.db")
    assert (await handle_get({"id": sent["id"]}, ADA))[1]["code"] == -32001
    async with ToolServer(store=database) as first:
        assert await first.handle_get({"id": sent["id"]}, ADA) == ("ok", sent)
        await setup_database(first.database.replace("tasks.db", "third.db"))
    assert (tmp_path / "third.db").exists()


async def test_without_a_database_the_functions_say_what_to_do() -> None:
    await shutdown()
    for function in (handle_send({}, ADA), call_tool_as("is_admin", {}, ADA)):
        with pytest.raises(ConfigError, match="setup_database"):
            await function
    with pytest.raises(ConfigError, match="not open"):
        await ToolServer().handle_get({}, ADA)


@pytest.mark.requirement("S0-10", "S0-12", "S0-14", "S0-15", "S0-16")
async def test_the_cards_need_no_database() -> None:
    await shutdown()
    assert await public_agent_card() == CARD
    assert [skill["id"] for skill in (await agent_card({"counter": True}))["skills"]] == [
        *OPEN_TOOLS,
        "increment_counter",
    ]
    assert [tool["name"] for tool in await tools_for_permissions({})] == list(OPEN_TOOLS)
    with pytest.raises(ConfigError, match="setup_database"):  # nothing was set up by that
        await handle_send({}, ADA)
    server = ToolServer(tools(nothing))
    assert [skill["id"] for skill in (await server.public_agent_card())["skills"]] == ["nothing"]
    async with server:
        assert [tool["name"] for tool in await server.tools_for_permissions(())] == ["nothing"]


async def test_a_store_with_a_server_is_refused_and_can_be_had_afterwards(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        await setup_database("postgresql://somewhere/a")
    async with ToolServer(tools(nothing), tmp_path / "t.db"):
        second = ToolServer(tools(nothing), tmp_path / "t.db")
        with pytest.raises(ConfigError):
            await second.open()
    async with second:
        assert await second.call_tool_as("nothing", {}, None) == ("ok", {"content": [{"type": "text", "text": "done"}]})
    await shutdown()


def test_a_server_left_on_a_loop_that_is_gone_is_set_up_anew(tmp_path: Path) -> None:
    async def begin() -> dict[str, Any]:
        await setup_database(tmp_path / "t.db")
        return (await handle_send({"message": MESSAGE}, ADA))[1]

    async def go_on(task: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="event loop"):
            await handle_get({"id": task["id"]}, ADA)
        await setup_database(tmp_path / "t.db")
        assert await handle_get({"id": task["id"]}, ADA) == ("ok", task)
        await shutdown()

    asyncio.run(go_on(asyncio.run(begin())))
