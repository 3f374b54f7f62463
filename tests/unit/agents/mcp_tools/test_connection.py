"""Servers that do not read, do not answer, do not say goodbye or say too much at once; and many calls at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import mcp_types as types
import pytest
from anyio import EndOfStream
from mcp.server import MCPServer
from mcp.server.mcpserver import Context as ToolContext

from dragoman import Agent, State
from dragoman.agents.mcp_tools import call, connection, stdio
from dragoman.agents.mcp_tools.source import Source, parse_sources
from dragoman.agents.mcp_tools.stdio import JsonRpcHeader, StdioTransport, check_numbers, parse_header, truncate_depth
from dragoman.agents.mcp_tools.supervisor import Supervisor
from dragoman.errors import CannotConnect
from dragoman.testing import Clock, served

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]


def connected(agent: Any) -> Any:
    return agent.tools._supervisors[0].connection


def pid_of(agent: Any) -> int:
    return connected(agent)._stdio._child.pid


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


# -- a program that reads nothing --------------------------------------------------------------------------------------


@pytest.fixture(params=["handshake", "modern"])
def program(request: pytest.FixtureRequest, handshake: Command, sdk_command: list[str]) -> list[str]:
    """A server as a program, of both eras."""
    # It is stopped: no other process may stand for it.
    return handshake() if request.param == "handshake" else [sys.executable, *sdk_command[-3:]]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (call, "CANCEL_SECONDS"),
        (stdio, "NOTIFICATION_TIMEOUT"),
        (stdio, "GRACE_SECONDS"),
        (stdio, "TERM_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.1)


@pytest.mark.fault
@pytest.mark.usefixtures("hurried")
async def test_a_program_that_has_stopped_reading_is_given_up_with_the_call_and_started_again(
    start: Start, program: list[str], tool_part: Any, clock: Clock, until: Until
) -> None:
    agent = Agent.from_mcp(program, include=["wait", "fail"], timeout=5)
    engine = await start(agent)
    pid = pid_of(agent)
    os.kill(pid, signal.SIGSTOP)
    much = tool_part("wait", x="y" * 1_000_000)
    late, canceled = [await engine.send(None, parts=(much,), wait=False) for _ in range(2)]
    # Both stand before the program's full input.
    await until(lambda: connected(agent)._stdio._drained is not None and clock.pending >= 2)
    assert (await engine.cancel(canceled)).state is State.CANCELED
    await clock.advance(5.1)
    task = await engine.until_state(late, State.FAILED)
    assert "silent for 5 s" in task.error or "it does not read what it is sent" in task.error
    await until(lambda: not is_alive(pid))
    task = await engine.send(None, parts=(tool_part("fail"),))
    assert task.artifacts[0].name == "fail-error"
    assert pid_of(agent) != pid


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a program outlives its guard")
async def test_a_program_ends_with_its_guard_and_both_come_back(
    start: Start, handshake: Command, tool_part: Any, until: Until
) -> None:
    agent = Agent.from_mcp(handshake(), include=["pid"])
    engine = await start(agent)
    pid = pid_of(agent)
    os.kill(connected(agent)._stdio._child._guard.pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))
    task = await engine.send(None, parts=(tool_part("pid"),))
    assert task.text == str(pid_of(agent)) != str(pid)


# -- lines -------------------------------------------------------------------------------------------------------------


def message(n: int, filling: str = "") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": n, "result": {"x": filling}}).encode() + b"\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_messages_are_put_together_from_the_pieces_they_come_in(size: int) -> None:
    program = StdioTransport(Source("x", argv=("x",)), lambda: None)
    sent = b"".join(message(n, "ä" * n) for n in range(20)) + b"\n\n" + message(20)
    for place in range(0, len(sent), size):
        program.receive_data(sent[place : place + size])
    program.fail("")
    got: list[Any] = []
    with suppress(EndOfStream):
        while True:
            got.append((await program.receive()).message)
    assert [each.id for each in got] == list(range(21))
    assert got[19].result == {"x": "ä" * 19}


async def test_a_flood_of_messages_leaves_turns_to_others() -> None:
    program, turns = StdioTransport(Source("x", argv=("x",)), lambda: None), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    program.receive_data(b"".join(message(n) for n in range(160)))
    waiting = asyncio.create_task(other())
    for _ in range(160):
        await program.receive()
    waiting.cancel()
    assert turns >= 9  # it was none


async def test_a_long_line_costs_no_more_than_its_length() -> None:
    program = StdioTransport(Source("x", argv=("x",)), lambda: None)
    piece, begun = b"x" * 65_536, time.process_time()
    for _ in range(32 * 16):
        program.receive_data(piece)
    # A hundredth of a second; it was eight seconds when each piece copied all before it.
    assert time.process_time() - begun < 2


@pytest.mark.fault
async def test_a_line_that_is_too_long_ends_the_connection_and_says_so(
    start: Start, handshake: Command, tool_part: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE", 1_000_000)
    engine = await start(Agent.from_mcp(handshake()))
    assert len((await engine.send(None, parts=(tool_part("long_line", n=900_000),))).text) == 900_000
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    task = await engine.send(None, parts=(tool_part("long_line", n=1_000_000),))
    reason = "it sent a line longer than 1 MB"
    stopped = f"the MCP server `handshake_server` stopped while `long_line` was at work: {reason}"
    assert (task.state, task.error) == (State.FAILED, stopped)
    assert (await engine.send(None, parts=(tool_part("pid"),))).text not in ("", before)
    assert f"handshake_server: {reason}" in caplog.text


# -- results of too many parts -----------------------------------------------------------------------------------------


def _of_parts(count: int) -> bytes:
    result = {"content": [{"type": "text", "text": "x"}] * count}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


async def test_the_sdk_never_sees_a_result_of_too_many_parts() -> None:
    program = StdioTransport(Source("x", argv=("x",)), lambda: None)
    program.receive_data(_of_parts(10_000) + b"\n" + _of_parts(200_000) + b"\n")
    assert isinstance((await program.receive()).message, types.JSONRPCResponse)
    refused = (await program.receive()).message
    assert isinstance(refused, types.JSONRPCError)
    assert refused.error.message == (
        "the MCP server `x` sent a result whose `content` has 200000 items, and 10000 are the most that is read: "
        "let it return fewer"
    )


@pytest.mark.fault
async def test_a_result_of_too_many_parts_fails_its_call_and_no_other(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    task = await engine.send(None, parts=(tool_part("many_parts", n=200_000),))
    assert (task.state, "has 200000 items, and 10000 are the most" in task.error) == (State.FAILED, True)
    assert (await engine.send(None, parts=(tool_part("pid"),))).text == before


@pytest.mark.fault
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_result_of_too_many_parts_is_refused_over_http(
    start: Start, sdk_server: ModuleType, kit: MCPServer, tool_part: Any, era: str
) -> None:
    @kit.tool(structured_output=False)
    async def many() -> list[types.TextContent]:
        return [types.TextContent(type="text", text="x")] * 10_001

    with served(sdk_server.web_app(kit, era)) as url:
        engine = await start(Agent.from_mcp(f"{url}/mcp"))
        task = await engine.send(None, parts=(tool_part("many"),))
        assert (task.state, "has 10001 items, and 10000 are the most" in task.error) == (State.FAILED, True)
        assert (await engine.send(None, parts=(tool_part("echo", text="there"),))).text == "there"
        await engine.connection.close()


# -- messages that cannot be read --------------------------------------------------------------------------------------


@pytest.mark.timeout(20)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "result",
    [
        f'{{"content": [], "structuredContent": {{"x": {"[" * 3000 + "]" * 3000}}}}}',
        '{"content": [{"type": "text", "text": "\\ud800"}]}',
        f'{{"content": [], "structuredContent": {{"x": {"9" * 5000}}}}}',
        '{"content": [], "structuredContent": {"x": NaN}}',
        '{"content": [], "structuredContent": {"x": -Infinity}}',
        '"a text"',
        "null",
    ],
    ids=["deep", "half", "huge", "NaN", "Infinity", "text", "null"],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_and_no_other(
    start: Start, handshake: Command, tool_part: Any, result: str, last: bool
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    task = await engine.send(None, parts=(tool_part("unreadable", result=result, last=last),))
    assert task.state is State.FAILED
    assert task.error.startswith("the MCP server `handshake_server` sent a message that cannot be read")
    assert (await engine.send(None, parts=(tool_part("pid"),))).text == before


@pytest.mark.timeout(20)
@pytest.mark.parametrize("value", ["[" * 3000 + "]" * 3000, "NaN"], ids=["deep", "NaN"])
async def test_a_question_that_cannot_be_read_is_refused(
    start: Start, handshake: Command, tool_part: Any, value: str
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("ask_unreadable", value=value),))
    assert (task.state, "sent a message that cannot be read" in task.error) == (State.FAILED, True)


@pytest.mark.timeout(20)
@pytest.mark.fault
async def test_a_message_that_may_be_anybody_s_answer_ends_the_connection(
    start: Start, handshake: Command, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    before = (await engine.send(None, parts=(tool_part("pid"),))).text
    task = await engine.send(None, parts=(tool_part("nameless"),))
    assert task.state is State.FAILED
    assert "stopped while `nameless` was at work: it sent a message that cannot be read" in task.error
    assert (await engine.send(None, parts=(tool_part("pid"),))).text not in ("", before)


@pytest.mark.timeout(20)
async def test_a_schema_of_three_thousand_levels_is_cut_and_its_server_served(
    start: Start, handshake: Command, tool_part: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent.from_mcp(handshake("deep"))
    engine = await start(agent)
    assert {"pit", "pid"} <= {offer.id for offer in agent.tools.offers}
    for tool in ("pit", "pid"):
        assert (await engine.send(None, parts=(tool_part(tool, a={"a": {"a": {}}}),))).state is State.COMPLETED
    assert "a schema is nested deeper than 100 levels" in caplog.text


@pytest.mark.parametrize(
    ("line", "envelope"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":[', JsonRpcHeader(True, 5)),
        (b' { "id" : "a\\"b" , "jsonrpc" : "2.0" , "result":[', JsonRpcHeader(True, 'a"b')),
        (b'{"result":{"id":7,"jsonrpc":"2.0"},"id":5,"jsonrpc":"2.0"}', JsonRpcHeader(True, 5)),
        (b'{"jsonrpc":"2.0","method":"x","id":1,"params":[]}', JsonRpcHeader(True, 1, "x")),
        (b'{"jsonrpc":"2.0","method":"x","params":[]}', JsonRpcHeader(True, None, "x")),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{}}', JsonRpcHeader(True)),
        (b'{"jsonrpc":"2.0","id":null,"result":[', JsonRpcHeader(True)),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000, JsonRpcHeader(True)),
        (b'{"a": 1}', JsonRpcHeader(False)),
        (b"Listening on port 3000", JsonRpcHeader(False)),
        (b"", JsonRpcHeader(False)),
    ],
)
def test_the_call_of_a_message_is_found_in_its_first_and_last_bytes(line: bytes, envelope: JsonRpcHeader) -> None:
    assert parse_header(line) == envelope


def test_words_that_look_like_numbers_that_json_does_not_have_are_read() -> None:
    check_numbers(b'{"a": "NaN, -Infinity", "NaN": 1}')
    with pytest.raises(ValueError, match="are no JSON"):
        check_numbers(b'{"a": [-Infinity]}')


@pytest.mark.parametrize(
    ("line", "shallow"),
    [
        (b'{"a":"]}"}', None),
        (b"[" * 100 + b"]" * 100, None),
        (b"[" * 102 + b"]" * 102, b"[" * 101 + b"]" * 101),
        (b'{"a":' * 101 + b'["}"]' + b"}" * 101, b'{"a":' * 100 + b"{}" + b"}" * 100),
        (b"[" * 3000, None),
    ],
)
def test_only_what_is_nested_too_deeply_is_left_out(line: bytes, shallow: bytes | None) -> None:
    assert truncate_depth(line) == shallow


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "seconds"), [(5, 5), (0, 60)])
async def test_a_link_that_is_not_read_in_time_stays_a_link(
    start: Start, clock: Clock, given: float, seconds: float
) -> None:
    server, reading = MCPServer("x", log_level="CRITICAL"), asyncio.Event()

    @server.tool(structured_output=False)
    def report() -> list[types.ResourceLink]:
        return [types.ResourceLink(uri=uri, name="r") for uri in ("slow://r", "fast://r")]

    @server.resource("slow://r")
    async def slow() -> str:
        reading.set()
        await asyncio.Event().wait()
        return ""

    @server.resource("fast://r")
    async def fast() -> str:
        raise AssertionError("it is not read any more")

    engine = await start(Agent.from_mcp(server, timeout=given))
    going = engine.sending("go")
    await reading.wait()
    await clock.advance(seconds - 0.1)
    assert not going.done()
    await clock.advance(0.2)
    task = await going
    assert task.state is State.COMPLETED
    assert [part.data["uri"] for part in task.artifacts[0].parts] == ["slow://r", "fast://r"]


async def test_a_clock_that_is_set_back_lets_no_tool_be_silent_longer(
    start: Start,
    handshake: Command,
    tmp_path: Path,
    tool_part: Any,
    clock: Clock,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = await start(Agent.from_mcp(handshake(), timeout=5))
    going = engine.sending(None, parts=(tool_part("step", steps=[1], wait=True),))
    await until((tmp_path / "begun").exists)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now - 86_400_000)
    await clock.advance(5.1)
    assert (await going).error == "`step` was silent for 5 s and has been stopped"


async def test_a_tool_that_reports_progress_for_ever_is_stopped_by_the_total_limit(
    start: Start, kit: MCPServer, tool_part: Any, clock: Clock, until: Until
) -> None:
    go_on, reports = asyncio.Event(), 0

    @kit.tool(structured_output=False)
    async def endless(ctx: ToolContext[Any, Any]) -> str:
        nonlocal reports
        while True:
            await ctx.report_progress(reports)
            reports += 1
            await go_on.wait()
            go_on.clear()

    engine = await start(Agent.from_mcp(kit, timeout=600, total_timeout=20))
    going = engine.sending(None, parts=(tool_part("endless"),))
    for count in range(1, 5):
        await until(lambda count=count: reports == count)
        await clock.advance(4)
        go_on.set()
    assert not going.done()
    await clock.advance(4.1)
    assert (await going).error == "`endless` took more than 20 s and has been stopped"


@pytest.mark.parametrize("silent", [0, 30])
async def test_the_total_limit_counts_for_a_silent_tool_too(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, clock: Clock, until: Until, silent: float
) -> None:
    engine = await start(Agent.from_mcp(handshake(), timeout=silent, total_timeout=20))
    going = engine.sending(None, parts=(tool_part("step", steps=[1], wait=True),))
    await until((tmp_path / "begun").exists)
    await clock.advance(20.1)
    assert (await going).error == "`step` took more than 20 s and has been stopped"
    await until((tmp_path / "canceled").exists)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_there_may_be_more_calls_at_once_than_a_pool_has_connections(
    start: Start, sdk_server: ModuleType, kit: MCPServer, tool_part: Any, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_HTTP_TIMEOUT", 2.0)
    number, arrived, everybody = 110, 0, asyncio.Event()

    @kit.tool(structured_output=False)
    async def meet() -> str:
        nonlocal arrived
        arrived += 1
        if arrived == number:
            everybody.set()
        await everybody.wait()
        return "met"

    with served(sdk_server.web_app(kit, era)) as url:
        engine = await start(Agent.from_mcp(f"{url}/mcp"))
        tasks = await asyncio.gather(*(engine.send(None, parts=(tool_part("meet"),)) for _ in range(number)))
        assert {(task.state, task.text) for task in tasks} == {(State.COMPLETED, "met")}
        await engine.connection.close()


@pytest.mark.fault
async def test_a_server_that_does_not_say_goodbye_is_not_waited_for(
    start: Start, sdk_server: ModuleType, kit: MCPServer, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT", 0.1)
    app, asked = sdk_server.web_app(kit, "handshake"), 0

    async def rude(scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        if scope.get("method") != "DELETE":
            await app(scope, receive, send)
            return
        asked += 1
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with served(rude) as url:
        agent = Agent.from_mcp(f"{url}/mcp")
        engine = await start(agent)
        assert (await engine.send(None, parts=(tool_part("echo", text="1"),))).text == "1"
        connected(agent).closed.set()
        assert (await engine.send(None, parts=(tool_part("echo", text="2"),))).text == "2"
        async with asyncio.timeout(20):
            await engine.connection.close()
    assert asked == 2


# -- closing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("silent",)])
async def test_what_is_closed_while_it_is_being_opened_leaves_nothing_running(
    handshake: Command, tmp_path: Path, until: Until, words: tuple[str, ...]
) -> None:
    (source,) = parse_sources([handshake(*words)], None, None)
    supervisor = Supervisor(source, lambda: None, start_seconds=10)
    opening = asyncio.create_task(supervisor.open())
    await until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text())
    await supervisor.close()
    with pytest.raises(CannotConnect, match="`handshake_server` was closed while it was being started"):
        await opening
    assert not is_alive(int((tmp_path / "started").read_text()))
    assert supervisor.connection is None


async def test_whoever_gives_up_opening_leaves_nothing_running(
    handshake: Command, tmp_path: Path, until: Until
) -> None:
    (source,) = parse_sources([handshake("silent")], None, None)
    supervisor = Supervisor(source, lambda: None, start_seconds=10)
    opening = asyncio.create_task(supervisor.open())
    await until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text())
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not is_alive(int((tmp_path / "started").read_text()))
