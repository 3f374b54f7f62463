"""`dragoman serve --mcp`: the tools of MCP servers that are really there."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.command import clean_environment, dragoman
from support.server_process import ServerProcess

from dragoman.cli.main import group
from dragoman.cli.serve.options import agent_of_tool_table
from dragoman.errors import ConfigError, TaskRejected
from dragoman.sync import Client

TESTS = Path(__file__).resolve().parents[2]
SERVER = TESTS / "unit" / "agents" / "mcp_tools" / "handshake_server.py"


def tools(folder: Path, *words: str) -> list[str]:
    """The command of an MCP server that leaves its pid in the folder."""
    return [sys.executable, "-S", "-E", str(SERVER), str(folder), *words]


def refused(folder: Path, *args: str, **more: str) -> tuple[int, str]:
    """The exit code and the stderr of a server that does not start."""
    done = dragoman(folder, "serve", *args, "--port", "0", "--quiet", environment=clean_environment(**more))
    return done.returncode, done.stderr


def is_alive(pid: str) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(pid), 0)
        return True
    return False


@pytest.mark.fault
def test_the_tools_are_there_when_it_listens_and_no_process_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    flags = ["--include", "pid", "--include", "same", "--include", "e*", "--env", "GIVEN=1", "--env", "PASSED_ON"]
    flags += ["--permission", "environment=", "--default-tool", "pid", "--name", "mine", "--tool-timeout", "5"]
    command = shlex.join(tools(tmp_path))
    environment = clean_environment(PASSED_ON="2", SECRET="3")
    with ServerProcess.serve(tmp_path, "--mcp", command, *flags, environment=environment) as server:
        with Client(server.url) as client:
            card = client.card()
            assert card.name == "mine"
            assert [skill.id for skill in card.skills] == ["pid", "same", "environment"]
            pid = client.send("whatever").text
            environ = json.loads(client.send(tool="environment").text)
            client.send(tool="pid")
        assert re.search(r"INFO +dragoman.mcp: starting the MCP server \w+ with python[\d.]* …\n", server.text)
        assert re.search(r"INFO +dragoman.mcp: the MCP server \w+ is ready: \d+ tools, \d+\.\d s\n", server.text)
        assert (environ["GIVEN"], environ["PASSED_ON"]) == ("1", "2")
        assert "SECRET" not in environ
        assert (tmp_path / "started").read_text().split() == [pid]
        assert is_alive(pid)
        assert server.end() == 0
        assert not is_alive(pid)


def test_tables_of_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        'from dragoman import Agent\nagent = Agent("own")\n@agent.skill\ndef hi() -> str: return "hi"\n'
    )
    (tmp_path / "dragoman.toml").write_text(
        f'[agents.own]\ntarget = "app.py"\n'
        f'[agents.one]\nmcp = {json.dumps(shlex.join(tools(tmp_path)))}\ninclude = ["pid"]\ndescription = "One"\n'
        f"[agents.both]\nmcp = [{json.dumps(tools(tmp_path))}, {json.dumps(tools(tmp_path, 'few'))}]\n"
        'include = ["pid"]\ntimeout = 5\nenv = { GIVEN = 1 }\n'
        '[agents.both.permissions]\n"*-2.*" = "admin"\n'
    )
    with ServerProcess.serve(tmp_path) as server:
        url = server.url
        with Client(f"{url}/agents/own") as client:
            assert client.call("hi") == "hi"
        with Client(f"{url}/agents/one") as client:
            card = client.card()
            assert (card.name, card.description, [skill.id for skill in card.skills]) == ("one", "One", ["pid"])
            assert client.send(tool="pid").text.isdigit()
        with Client(f"{url}/agents/both") as client:
            assert [skill.id for skill in client.card().skills] == ["handshake_server.pid"]
            assert client.send(tool="handshake_server.pid").text.isdigit()
            with pytest.raises(TaskRejected, match=r"unknown tool `pid`"):
                client.call("pid")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--include", "a"], "--include is about MCP tools: say which server with --mcp"),
        (["--tool-timeout", "3"], "--tool-timeout is about MCP tools: say which server with --mcp"),
        (["--mcp", "x", "--permission", "a"], "--permission a: write TOOL=KEY, as in --permission 'delete_*=admin'"),
        (
            ["--mcp", "x", "--env", "NOT_SET"],
            "env NOT_SET: the variable is not set here: export it, or write NOT_SET=VALUE",
        ),
        (
            ["--mcp", ""],
            "an MCP command is empty: name a program, as in `npx -y @modelcontextprotocol/server-everything`",
        ),
    ],
)
def test_a_wrong_flag_of_tools_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOT_SET", raising=False)
    done = CliRunner().invoke(group, ["serve", *flags])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == says


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('mcp = "x"\ntools = ["a"]\ninclude = ["a"]', "tools and include mean the same: use one of them"),
        ('mcp = "x"\ntools = [1]', "tools is a list of texts"),
        ('mcp = "x"\npersona = "pirate"', "persona is a table"),
        ('mcp = "x"\nincludes = ["a"]', "there is no setting `includes` beside `mcp`; did you mean `include`?"),
        ('mcp = "x"\ninclude = "a"', "include is a list"),
        ('mcp = "x"\nheaders = ["a"]\ntoken_env = "PATH"', "headers is a table"),
        ('mcp = "x"\nenv = "PATH"', "env is a list of names or a table"),
        ('mcp = "x"\ntimeout = "5"', "timeout is a number of seconds"),
        ('mcp = "x"\ntimeout = true', "timeout is a number of seconds"),
        ('mcp = "x"\ndefault_tool = 5', "default_tool is a text"),
        ('mcp = "x"\nrevision = 2025', "revision is a text"),
        (
            'mcp = "x"\nrevision = "2025"',
            "there is no MCP revision '2025' to choose: there are 2025-11-25 and 2026-07-28. "
            "A server that speaks only an older one needs no option",
        ),
        ('mcp = "x"\ntoken_env = "NOT_SET"', "token_env names NOT_SET, which is not set: run `export NOT_SET=…`"),
        (
            "mcp = 5",
            "an object of type `int` is no MCP server: give a command, a list of arguments, a URL or an MCPServer",
        ),
    ],
)
def test_a_wrong_table_of_tools_is_an_error(monkeypatch: pytest.MonkeyPatch, lines: str, says: str) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError) as caught:
        agent_of_tool_table("dragoman.toml [agents.x]", "x", tomllib.loads(lines))
    assert str(caught.value) == f"dragoman.toml [agents.x]: {says}"


def test_a_program_that_is_missing_ends_the_command_with_one_line(tmp_path: Path) -> None:
    says = "there is no program `/no/such/program`: install it, or write its whole path"
    assert refused(tmp_path, "--mcp", "/no/such/program -x") == (2, f"dragoman: {says}\n")
    (tmp_path / "dragoman.toml").write_text('[agents.x]\nmcp = "x"\nexclud = ["a"]\n')
    says = "dragoman.toml [agents.x]: there is no setting `exclud` beside `mcp`; did you mean `exclude`?"
    assert refused(tmp_path) == (2, f"dragoman: {says}\n")


def test_an_unknown_default_tool_is_an_error_that_lists_the_tools(tmp_path: Path) -> None:
    flags = ["--mcp", shlex.join(tools(tmp_path, "few")), "--default-tool", "pit"]
    assert refused(tmp_path, *flags) == (2, "dragoman: default_tool: there is no tool `pit`; there are: more, pid\n")


def test_a_revision_that_the_server_does_not_speak_is_an_error(tmp_path: Path) -> None:
    flags = ["--mcp", shlex.join(tools(tmp_path, "few")), "--mcp-revision", "2026-07-28"]
    says = "the MCP server `handshake_server` speaks revision 2025-11-25, and not 2026-07-28"
    assert refused(tmp_path, *flags) == (2, f"dragoman: {says}\n")


def test_a_server_that_dies_at_its_start_is_an_error_with_its_last_output(tmp_path: Path) -> None:
    code, problem = refused(tmp_path, "--mcp", shlex.join(tools(tmp_path, "dies")))
    assert code == 3
    assert problem.startswith("dragoman: the MCP server `handshake_server` cannot be used: it ended before it answered")
    assert problem.endswith("\n  starting up\n  no license key found\n")
