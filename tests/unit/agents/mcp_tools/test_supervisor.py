"""MCP servers that die, come back, say strange things or have other tools than before."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import warm_start
from mcp.server import MCPServer

from dragoman import Agent, Client, State
from dragoman.agents.mcp_tools import connection
from dragoman.agents.mcp_tools import supervisor as supervising
from dragoman.agents.mcp_tools.bridge import McpTools
from dragoman.agents.mcp_tools.source import parse_sources
from dragoman.agents.mcp_tools.supervisor import INITIAL_BACKOFF, MAX_BACKOFF, STABLE_SECONDS, Supervisor
from dragoman.errors import CannotConnect, ConfigError
from dragoman.testing import Clock, served

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
STOPPED = "the MCP server `handshake_server` stopped while `{}` was at work"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: int | str) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(pid), 0)
        return True
    return False


# -- beginning and end -------------------------------------------------------------------------------------------------


async def test_the_error_for_a_server_that_dies_at_its_start_has_its_last_line_of_stderr(handshake: Command) -> None:
    with pytest.raises(CannotConnect) as caught:
        async with Client(Agent.from_mcp(handshake("dies"))) as client:
            await client.send("hi")
    assert str(caught.value) == (
        "the MCP server `handshake_server` cannot be used: it ended before it answered; it gets only HOME, PATH and "
        "the like: pass other variables with env\n  starting up\n  no license key found"
    )


async def test_a_missing_program_is_an_error_that_names_it(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    for program, says in (
        (str(tmp_path / "none"), f"there is no program `{tmp_path}/none`: install it, or write its whole path"),
        (str(text), f"`{text}` is no program that may be run here"),
    ):
        with pytest.raises(ConfigError) as caught:
            async with Client(Agent.from_mcp([program])) as client:
                await client.send("hi")
        assert str(caught.value) == says


async def test_a_program_that_speaks_no_mcp_is_an_error_that_says_so() -> None:
    with pytest.raises(CannotConnect, match="the MCP server `cat` cannot be used"):
        async with Client(Agent.from_mcp(["cat"])) as client:
            await client.send("hi")


async def test_a_server_that_says_nothing_is_given_up_and_stopped(handshake: Command, tmp_path: Path) -> None:
    tools = McpTools(parse_sources([handshake("silent")], None, None), start_seconds=0.3)
    with pytest.raises(CannotConnect, match=r"cannot be used: it said nothing for 0\.3 s"):
        await tools.open()
    assert [pid for pid in lines(tmp_path / "started") if is_alive(pid)] == []


async def test_where_one_server_cannot_be_started_none_is_left_running(handshake: Command, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no program"):
        async with Client(Agent.from_mcp(handshake(), [str(tmp_path / "none")])) as client:
            await client.send("hi")
    assert [pid for pid in lines(tmp_path / "started") if is_alive(pid)] == []


async def test_an_address_where_nobody_is() -> None:
    with pytest.raises(CannotConnect, match=r"the MCP server `127-0-0-1` cannot be used: .*"):
        async with Client(Agent.from_mcp("http://127.0.0.1:1/mcp")) as client:
            await client.send("hi")


async def test_no_process_is_left_when_the_client_is_closed(handshake: Command, tmp_path: Path) -> None:
    async with Client(Agent.from_mcp(handshake())) as client:
        pid = (await client.send(tool="pid")).text
        await client.send(tool="ask_name")
        await client.send(tool="wait", wait=False)
        assert is_alive(pid)
    assert not is_alive(pid)


async def test_an_agent_that_was_closed_opens_again(handshake: Command) -> None:
    agent = Agent.from_mcp(handshake())
    pids: list[str] = []
    for _ in range(2):
        async with Client(agent) as client:
            pids.append((await client.send(tool="pid")).text)
    assert len(set(pids)) == 2


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "left-open"])
def test_an_agent_opens_again_on_every_event_loop(handshake: Command, closes: bool) -> None:
    agent = Agent.from_mcp(handshake())

    async def ask_pid() -> str:
        client = Client(agent)
        pid = (await client.send(tool="pid")).text
        if closes:
            await client.close()
        return pid

    pids = [asyncio.run(ask_pid()) for _ in range(3)]
    assert len(set(pids)) == 3
    assert not is_alive(pids[0])


async def test_an_app_whose_server_could_not_be_started_opens_it_at_the_next_start(
    handshake: Command, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    agent = Agent.from_mcp([str(program), *handshake()[1:]])
    app = agent.app(store="memory:", drain=0)
    with pytest.raises(ConfigError, match="there is no program"):
        await app.start()
    program.symlink_to(handshake()[0])
    await app.start()
    assert "pid" in [skill.id for skill in agent.skills]
    await app.stop()


async def test_opening_twice_at_once_starts_a_server_once(handshake: Command, tmp_path: Path) -> None:
    tools = McpTools(parse_sources([handshake()], None, None))
    await asyncio.gather(tools.open(), tools.open())
    await tools.open()
    await tools.close()
    assert len(lines(tmp_path / "started")) == 1


# -- death -------------------------------------------------------------------------------------------------------------


@pytest.mark.fault
async def test_a_server_that_is_killed_fails_its_calls_and_comes_back(
    start: Start, handshake: Command, tmp_path: Path, tool_part: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    pid = (await engine.send(None, parts=(tool_part("pid"),))).text
    calls = [engine.sending(None, parts=(tool_part("held"),)) for _ in range(50)]
    await until(lambda: len(lines(tmp_path / "begun")) == 50)
    os.kill(int(pid), signal.SIGKILL)
    ends = await asyncio.gather(*calls)
    assert {(task.state, task.error) for task in ends} == {(State.FAILED, STOPPED.format("held"))}
    after = (await engine.send(None, parts=(tool_part("pid"),))).text
    assert after != pid
    assert lines(tmp_path / "started") == [pid, after]
    assert "the MCP server handshake_server has ended after" in caplog.text


@pytest.mark.fault
async def test_a_call_fails_when_its_server_does_not_come_back(
    start: Start, handshake: Command, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "RECONNECT_TIMEOUT", 0.3)
    engine = await start(Agent.from_mcp(handshake("once")))
    await engine.send(None, parts=(tool_part("die"),))
    task = await engine.send(None, parts=(tool_part("pid"),))
    assert (task.state, task.error) == (State.FAILED, "the MCP server `handshake_server` is not running")


@pytest.mark.fault
async def test_a_server_that_dies_again_and_again_is_given_more_and_more_time(
    handshake: Command, tmp_path: Path, clock: Clock, until: Until
) -> None:
    (source,) = parse_sources([handshake("once")], None, None)
    supervisor = Supervisor(source, lambda: None, start_seconds=10, clock=clock)
    await supervisor.open()
    started = tmp_path / "started"
    os.kill(int(lines(started)[0]), signal.SIGKILL)
    pause, starts = INITIAL_BACKOFF, 1
    for _ in range(10):
        await until(lambda: clock.pending == 1)
        clock.move(pause * 0.99)
        assert clock.pending == 1
        clock.move(pause * 0.02)
        starts += 1
        await until(lambda starts=starts: len(lines(started)) == starts)
        pause = min(pause * 2, MAX_BACKOFF)
    assert pause == MAX_BACKOFF
    await supervisor.close()


@pytest.mark.fault
async def test_a_server_that_has_lived_a_while_is_started_again_at_once(
    handshake: Command, tmp_path: Path, clock: Clock, until: Until
) -> None:
    (source,) = parse_sources([handshake()], None, None)
    supervisor = Supervisor(source, lambda: None, start_seconds=10, clock=clock)
    await supervisor.open()
    started = tmp_path / "started"
    for starts, lives, pause in ((1, 0, 0.1), (2, 0, 0.2), (3, STABLE_SECONDS, 0.1)):
        await until(lambda: supervisor.connection is not None and not supervisor.connection.closed.is_set())
        clock.move(lives)
        os.kill(int(lines(started)[-1]), signal.SIGKILL)
        await until(lambda: clock.pending == 1)
        clock.move(pause * 0.99)
        assert clock.pending == 1
        clock.move(pause * 0.02)
        await until(lambda starts=starts: len(lines(started)) == starts + 1)
    await supervisor.close()
    assert [pid for pid in lines(started) if is_alive(pid)] == []


# -- strange words -----------------------------------------------------------------------------------------------------


async def test_lines_on_stdout_that_are_no_messages_do_no_harm(
    start: Start, handshake: Command, tool_part: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        engine = await start(Agent.from_mcp(handshake("stray")))
        assert (await engine.send(None, parts=(tool_part("stray"),))).text == "done"
        assert (await engine.send(None, parts=(tool_part("stray"),))).text == "done"
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.WARNING] == []


async def test_what_a_program_says_on_stderr_is_logged_for_who_looks_for_it(
    start: Start,
    handshake: Command,
    tool_part: Any,
    until: Until,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.mcp")
    engine = await start(Agent.from_mcp(handshake()))
    await engine.send(None, parts=(tool_part("murmur"),))
    warning = "handshake_server: a warning nobody asked for"
    await until(lambda: warning in [record.getMessage() for record in caplog.records])
    assert [record.levelno for record in caplog.records if record.getMessage() == warning] == [logging.DEBUG]
    assert "nobody asked for" not in capfd.readouterr().err


async def test_a_program_gets_the_variables_it_was_given_and_the_few_everybody_needs(
    start: Start, handshake: Command, tool_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET", "nobody's business")
    monkeypatch.setenv("PASSED_ON", "2")
    engine = await start(Agent.from_mcp(handshake(), env=["GIVEN=1", "PASSED_ON"]))
    environ = json.loads((await engine.send(None, parts=(tool_part("environment"),))).text)
    assert environ["GIVEN"] == "1"
    assert environ["PASSED_ON"] == "2"
    usual = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}
    assert set(environ) - usual == {"GIVEN", "PASSED_ON"}


# -- other tools -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_tools_that_come_later_are_skills_too(
    start: Start, handshake: Command, kit: MCPServer, tool_part: Any, until: Until, era: str
) -> None:
    agent = Agent.from_mcp(handshake() if era == "handshake" else kit)
    engine = await start(agent)
    before, skills = agent.revision, [skill.id for skill in agent.skills]
    await engine.send(None, parts=(tool_part("more"),))
    await until(lambda: [skill.id for skill in agent.skills] == [*skills, "late"])
    assert agent.revision > before
    assert (await engine.send(None, parts=(tool_part("late"),))).state is State.COMPLETED


@pytest.mark.fault
async def test_a_server_that_comes_back_with_other_tools_is_looked_at_again(
    start: Start, handshake: Command, tool_part: Any, until: Until
) -> None:
    agent = Agent.from_mcp(handshake())
    engine = await start(agent)
    await engine.send(None, parts=(tool_part("more"),))
    await until(lambda: "late" in [skill.id for skill in agent.skills])
    await engine.send(None, parts=(tool_part("die"),))
    await engine.send(None, parts=(tool_part("pid"),))
    await until(lambda: "late" not in [skill.id for skill in agent.skills])
    task = await engine.send(None, parts=(tool_part("late"),))
    assert (task.state, task.error) == (State.REJECTED, "unknown tool `late`: did you mean `ask_late`?")


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def test_a_server_on_this_machine_gets_our_headers_and_no_proxy_does(
    kit: MCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Any = kit.streamable_http_app()
    seen: set[str] = set()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        seen.add(dict(scope.get("headers", ())).get(b"authorization", b"").decode())
        await app(scope, receive, send)

    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with served(watched) as url:
        async with Client(Agent.from_mcp(f"{url}/mcp", headers={"Authorization": "Bearer s3cret"})) as client:
            assert (await client.send(tool="add", arguments={"a": 1, "b": 2})).state is State.COMPLETED
    assert seen == {"", "Bearer s3cret"}  # the first is the server's own beginning


class CutOnce:
    """A server whose first stream of changes breaks off."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.listened = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if (b"mcp-method", b"subscriptions/listen") not in scope.get("headers", ()):
            await self._app(scope, receive, send)
            return
        is_first = self.listened == 0

        async def cut(message: Any) -> None:
            await send({**message, "more_body": False} if is_first and "body" in message else message)
            self.listened += "body" in message
            if is_first and "body" in message:
                raise ConnectionResetError

        with suppress(ConnectionResetError, ExceptionGroup):
            await self._app(scope, receive, cut)


async def test_a_stream_of_changes_that_was_cut_is_listened_to_again(
    kit: MCPServer, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "INITIAL_BACKOFF", 0.01)
    app = CutOnce(kit.streamable_http_app())
    with served(app) as url:
        agent = Agent.from_mcp(f"{url}/mcp")
        async with Client(agent) as client:
            await client.send(tool="who")
            await until(lambda: app.listened >= 2)
            await client.send(tool="more")
            await until(lambda: "late" in [skill.id for skill in agent.skills])


@asynccontextmanager
async def web_server(port: int, folder: Path, era: str) -> AsyncGenerator[None, None]:
    """An MCP server over HTTP in a process of its own, until it is killed."""
    command = warm_start.program(Path(__file__).with_name("sdk_server.py"), "http", str(port), str(folder), era)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"listening\n"
        yield
    finally:
        process.kill()
        await process.wait()
        assert process.stdout is not None
        await process.stdout.read()  # its end is that of everything that could write there


@pytest.mark.fault
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_server_at_an_address_that_was_restarted_is_called_again(
    start: Start, tmp_path: Path, tool_part: Any, until: Until, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "MAX_BACKOFF", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    agent = Agent.from_mcp(f"http://127.0.0.1:{port}/mcp", name="web")
    async with web_server(port, tmp_path, era):
        engine = await start(agent)
        assert (await engine.send(None, parts=(tool_part("add", a=1, b=2),))).state is State.COMPLETED
        going = engine.sending(None, parts=(tool_part("wait"),))
        await until((tmp_path / "begun").exists)
    task = await going
    assert (task.state, task.error) == (State.FAILED, "the MCP server `127-0-0-1` stopped while `wait` was at work")
    async with web_server(port, tmp_path, era):
        task = await engine.send(None, parts=(tool_part("add", a=1, b=2),))
        assert (task.state, task.text) == (State.COMPLETED, '[3, "int", "int"]')
