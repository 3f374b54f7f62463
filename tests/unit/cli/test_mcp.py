"""`dragoman mcp`: a process that a host starts, over stdio and over HTTP, in both eras."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp
import pytest
from click.testing import CliRunner
from mcp.client.stdio import StdioServerParameters
from support.command import DRAGOMAN, SOURCE, clean_environment, dragoman
from support.server_process import ServerProcess
from warm_start import write_command

from dragoman import Agent
from dragoman.cli.main import group
from dragoman.errors import ConfigError
from dragoman.installation import install_line, requirement
from dragoman.mcp.serve import PATH, McpOptions, startup_lines, transport_security
from dragoman.mcp.server import McpServer
from dragoman.testing import served

MCP = [*DRAGOMAN, "mcp"]
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ERAS = ["auto", "legacy"]


@pytest.fixture
def agent_url() -> Iterator[str]:
    agent = Agent("echo", description="Says it again")

    @agent.skill
    def echo(text: str) -> str:
        """Say it again."""
        return f"You said: {text}"

    with served(agent) as url:
        yield url


@contextmanager
def started(folder: Path, *args: str, **more: str) -> Generator[subprocess.Popen[str]]:
    """A process as a host starts it, with its errors in the file `log`."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*MCP, *args],
            cwd=folder,
            env=clean_environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        process.wait(20)


def say(process: subprocess.Popen[str], *messages: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.writelines(f"{json.dumps(message)}\n" for message in messages)
    process.stdin.flush()


def next_message(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def call(name: str, number: int = 3, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def text_of(result: Any) -> str:
    return result.content[0].text


# -- standard input and output -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_host_of_either_era_reaches_an_agent_over_stdio(tmp_path: Path, agent_url: str, mode: Any) -> None:
    write_command(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    command = shutil.which("dragoman", path=path)
    program = StdioServerParameters(
        command=str(command), args=["mcp", agent_url], cwd=tmp_path, env=clean_environment(tmp_path, PATH=path)
    )
    async with mcp.Client(program, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 11
        (listed,) = json.loads(text_of(await client.call_tool("list_remote_agents", {})))
        assert (listed["name"], listed["base_url"]) == (agent_url, agent_url)
        card = json.loads(text_of(await client.call_tool("resolve_agent_card", {"base_url": agent_url})))
        assert card["name"] == "echo"
        output = await client.call_tool("send_message", {"agent_id": card["agent_id"], "text": "hello"})
        assert json.loads(text_of(output))["text"] == "You said: hello"


@pytest.mark.requirement("S4-1", "S4-23", "S4-61")
def test_an_old_host_that_writes_raw_lines_finds_the_server_and_its_tools(tmp_path: Path) -> None:
    old = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "2024-11-05"}}
    agents = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "list_remote_agents"}}
    with started(tmp_path) as process:
        say(process, old)
        begun = next_message(process)["result"]
        assert (begun["protocolVersion"], begun["serverInfo"]["name"]) == ("2024-11-05", "dragoman")
        assert begun["serverInfo"]["version"] == version("dragoman")
        say(process, INITIALIZED, LIST)
        assert [each["name"] for each in next_message(process)["result"]["tools"]] == [
            "resolve_agent_card",
            "validate_agent_card",
            "list_remote_agents",
            "send_message",
            "send_streaming_message",
            "get_task",
            "list_tasks",
            "cancel_task",
            "subscribe_to_task",
            "configure_push_notifications",
            "get_extended_agent_card",
        ]
        say(process, agents)
        assert next_message(process)["result"]["content"] == [{"type": "text", "text": "[]"}]


def test_stdout_carries_only_messages(tmp_path: Path, agent_url: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import logging, os, subprocess, sys, warnings\n"
        "class Loud:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('mcp', 'mcp.server', 'aiohttp', 'dragoman.mcp.server'):\n"
        "            print('PRINTED', name)\n"
        "            os.write(1, b'WRITTEN\\n')\n"
        "            subprocess.run(['echo', 'CHILD'], check=True)\n"
        "            warnings.warn('WARNED', stacklevel=1)\n"
        "            logging.getLogger('loud').warning('LOGGED')\n"
        "            sys.stdin.read()\n"
        "sys.meta_path.insert(0, Loud())\n"
    )
    paths = os.pathsep.join((str(tmp_path), str(SOURCE)))
    with started(tmp_path, PYTHONPATH=paths, PYTHONWARNINGS="default", DRAGOMAN_LOG_LEVEL="debug") as process:
        say(process, INITIALIZE, INITIALIZED, LIST, call("resolve_agent_card", base_url=agent_url))
        say(process, call("get_task", 4, task_id="none"), {"jsonrpc": "2.0", "id": 5, "method": "no/such"})
        assert process.stdin is not None
        process.stdin.write("no JSON at all\n")
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
    messages = [json.loads(line) for line in out.splitlines()]
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert {message["id"] for message in messages if "method" not in message} == {1, 2, 3, 4, 5}
    log = (tmp_path / "log").read_text()
    assert all(word in log for word in ("PRINTED mcp", "WRITTEN", "CHILD", "WARNED", "LOGGED"))


def test_it_ends_when_the_host_closes_its_input_and_answers_what_was_asked_before(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        say(process, INITIALIZE, INITIALIZED, call("resolve_agent_card", base_url="http://127.0.0.1:9"))
        assert process.stdin is not None
        # The last line needs no end.
        process.stdin.write(json.dumps(LIST))
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
    answers = {message["id"]: message["result"] for message in map(json.loads, out.splitlines())}
    assert answers[3]["content"][0]["text"] == "Failed to resolve agent card: connection refused"
    assert len(answers[2]["tools"]) == 11
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.fault
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_at_once_though_the_host_says_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, started(tmp_path) as process:
        say(process, INITIALIZE, INITIALIZED)
        assert next_message(process)["id"] == 1
        # A call that nobody will answer is under way.
        say(process, call("resolve_agent_card", base_url=f"http://127.0.0.1:{silent.getsockname()[1]}"))
        with silent.accept()[0]:
            process.send_signal(number)
            assert process.wait(10) == code
    assert (tmp_path / "log").read_text().strip() == ""


@pytest.mark.fault
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_while_it_starts_ends_it_without_a_word(tmp_path: Path, number: signal.Signals, code: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Signal:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'mcp.server': os.kill(os.getpid(), {number.value})\n"
        "sys.meta_path.insert(0, Signal())\n"
    )
    with started(tmp_path, PYTHONPATH=os.pathsep.join((str(tmp_path), str(SOURCE)))) as process:
        assert process.wait(20) == code
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.fault
def test_it_ends_quietly_when_the_host_reads_no_more(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        say(process, INITIALIZE, INITIALIZED)
        assert next_message(process)["id"] == 1
        assert process.stdout is not None
        process.stdout.close()
        say(process, LIST)
        assert process.wait(10) == 0
    assert (tmp_path / "log").read_text() == ""


def test_a_closed_input_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 0<&-', "sh", *MCP],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    says = "dragoman: standard input or output is closed: an MCP host keeps both open, or use --http\n"
    assert (done.returncode, done.stderr) == (2, says)


# -- HTTP --------------------------------------------------------------------------------------------------------------


@contextmanager
def listening(folder: Path, *args: str) -> Generator[tuple[str, ServerProcess]]:
    """The address of a server over HTTP, and its process."""
    address = r"^serving MCP at (http://\S+/mcp)$"
    with ServerProcess([*MCP, *args], folder, environment=clean_environment(), address=address) as server:
        assert server.output[0].startswith("serving MCP at")
        assert "share one registry" in server.lines(1)[0]
        yield server.url, server


def posted(url: str, message: dict[str, Any], **headers: str) -> urllib.request.Request:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    return urllib.request.Request(url, json.dumps(message).encode(), headers)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_host_of_either_era_reaches_an_agent_over_http(tmp_path: Path, agent_url: str, mode: Any) -> None:
    with listening(tmp_path, agent_url, "--http", "127.0.0.1:0") as (url, _):
        async with mcp.Client(url, mode=mode) as client:
            output = await client.call_tool("send_message", {"agent_id": agent_url, "text": "hello"})
            assert json.loads(text_of(output))["text"] == "You said: hello"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_over_http_too(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with listening(tmp_path, "--http", "0") as (url, process):
        assert url.startswith("http://127.0.0.1:")
        assert process.end(number) == code
        assert process.unread.strip() == ""


@pytest.mark.fault
def test_a_host_that_listens_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    with listening(tmp_path, "--http", "127.0.0.1:0") as (url, process):
        with urllib.request.urlopen(posted(url, INITIALIZE), timeout=20) as answer:
            session = answer.headers["mcp-session-id"]
        headers = {"Accept": "text/event-stream", "mcp-session-id": session}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20):
            assert process.end() == 0
        assert not process.tracebacks


def test_a_host_name_that_leads_here_is_refused(tmp_path: Path) -> None:
    with listening(tmp_path, "--http", "127.0.0.1:0") as (url, _):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(posted(url, INITIALIZE, Host="evil.example"), timeout=20)
        with refused.value:
            assert refused.value.code == 421


@pytest.mark.parametrize(
    ("address", "place"), [("127.0.0.1", "127.0.0.1:80"), ("127.0.0.2", "127.0.0.2:80"), ("::1", "[::1]:80")]
)
def test_listening_on_loopback_prints_no_warning(address: str, place: str) -> None:
    first, shared = startup_lines(address, 80)
    assert first == f"serving MCP at http://{place}/mcp"
    assert shared == "all hosts that connect share one registry: each sees the agents and tasks of the others"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_listening_beyond_loopback_prints_a_warning(address: str) -> None:
    _, _, warning, names = startup_lines(address, 80)
    assert warning.startswith("warning: anyone who can reach ")
    assert names.endswith("allow another name for this machine with --allow")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8931"}, 421),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "gateway.example", "Origin": "https://gateway.example"}, 403),
        ({"Host": "gateway.example"}, 200),
        ({"Host": "gateway.example:8931"}, 200),
        ({"Host": "[2001:db8::1]:8931"}, 200),
        ({"Host": "localhost:8931", "Origin": "http://localhost:3000"}, 200),
        ({"Host": "0.0.0.0:8931"}, 200),
        ({}, 200),
    ],
)
async def test_names_that_lead_here_are_refused_wherever_it_listens(headers: dict[str, str], code: int) -> None:
    guarded = transport_security("0.0.0.0", "0.0.0.0", 8931, ("gateway.example", "2001:db8::1"))
    async with McpServer(McpOptions()) as mine:
        app = mine.server.streamable_http_app(streamable_http_path=PATH, transport_security=guarded, host="0.0.0.0")
        with served(app) as url:

            def status() -> int:
                try:
                    with urllib.request.urlopen(posted(url + PATH, INITIALIZE, **headers), timeout=20) as answer:
                        return answer.status
                except urllib.error.HTTPError as error:
                    with error:
                        return error.code

            assert await asyncio.to_thread(status) == code


@pytest.mark.parametrize("text", ["here", ":8000", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:x"])
def test_a_malformed_address_is_an_error(text: str) -> None:
    done = CliRunner().invoke(group, ["mcp", "--http", text])
    assert str(done.exception) == f"--http {text}: write HOST:PORT, as in --http 127.0.0.1:8000"


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = dragoman(tmp_path, "mcp", "--http", f"127.0.0.1:{port}")
    says = f"dragoman: port {port} is in use: use another, or --http 127.0.0.1:0 for any free one\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says)


# -- agents and settings -----------------------------------------------------------------------------------------------

CONFIG = """\
[remotes.weather]
url = "https://weather.example"
token_env = "WEATHER_TOKEN"

[remotes.there]
url = "https://there.example/"
token_env = "THERE_TOKEN"
"""


def test_the_remotes_of_the_settings_file_are_agents_and_a_missing_token_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(CONFIG)
    args = ("--config", "mine.toml", "https://there.example", "weather", "https://more.example")
    with started(tmp_path, *args, THERE_TOKEN="very-secret", WEATHER_TOKEN="${WEATHER_TOKEN}") as process:
        say(process, INITIALIZE, INITIALIZED, call("list_remote_agents"))
        out, _ = process.communicate(timeout=30)
    listed = json.loads(json.loads(out.splitlines()[-1])["result"]["content"][0]["text"])
    # What was typed and is configured too is one agent, with the credentials it has there.
    assert [(each["name"], each["base_url"].rstrip("/")) for each in listed] == [
        ("weather", "https://weather.example"),
        ("there", "https://there.example"),
        ("https://more.example", "https://more.example"),
    ]
    log = (tmp_path / "log").read_text()
    assert log == (
        "warning: the remote `weather` names the variable WEATHER_TOKEN, which is not set: "
        "it is called without a token\n"
    )
    assert "very-secret" not in out + log


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ["localhost:80"],
            "`localhost:80` is neither an agent's URL nor a name in [remotes]: write http://localhost:80",
        ),
        (["instal"], "`instal` is neither an agent's URL nor a name in [remotes]; did you mean `install`?"),
        (["ftp://x"], "`ftp://x` is not an agent's address: write one like https://agents.example.com"),
        (["http://x:99999"], "`http://x:99999` is not an agent's address: write one like https://agents.example.com"),
        (["http://"], "`http://` is not an agent's address: write one like https://agents.example.com"),
        (
            ["http://me:very-secret@x"],
            "`http://…@x` has credentials in it: name the agent under [remotes], with token_env",
        ),
        (["http://x", "install"], "`install` comes first: dragoman mcp install …"),
        (["--config", "nope.toml"], "nope.toml: there is no such settings file"),
    ],
)
def test_an_argument_that_names_no_agent_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = CliRunner().invoke(group, ["mcp", *args, "--http", "127.0.0.1:0"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == says


def test_with_a_store_an_agent_is_still_known_in_another_process(tmp_path: Path, agent_url: str) -> None:
    def first(*messages: dict[str, Any]) -> Any:
        with started(tmp_path, "--store", "sqlite:///kept.db") as process:
            say(process, INITIALIZE, INITIALIZED, *messages)
            out, _ = process.communicate(timeout=30)
            assert (process.returncode, (tmp_path / "log").read_text()) == (0, "")
        return json.loads(json.loads(out.splitlines()[-1])["result"]["content"][0]["text"])

    known = first(call("resolve_agent_card", base_url=agent_url))
    assert [each["agent_id"] for each in first(call("list_remote_agents"))] == [known["agent_id"]]


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what is below a folder is named from there
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    paths = os.pathsep.join((str(tmp_path), str(SOURCE)))
    with started(tmp_path, PYTHONPATH=paths) as process:
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (2, "")
    assert (tmp_path / "log").read_text() == (
        f"dragoman: needs the extra `mcp`: {install_line('mcp')}, "
        f"or run it as uvx --from '{requirement('mcp')}' dragoman mcp\n"
    )
