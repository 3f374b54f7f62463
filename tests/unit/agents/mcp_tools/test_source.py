"""MCP servers as users name them."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server import MCPServer, Server

from dragoman import Agent
from dragoman.agents.command import environment_of
from dragoman.agents.mcp_tools.source import Source, parse_sources
from dragoman.errors import ConfigError


def named(*servers: object) -> list[str]:
    return [source.name for source in parse_sources(servers, None, None)]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @scope/server-x@1.2", "server-x"),
        ("npx -y @modelcontextprotocol/server-filesystem /data", "server-filesystem"),
        ("npx --package=a b", "b"),
        ("npm exec b", "b"),
        ("uvx mcp-server-fetch@latest", "mcp-server-fetch"),
        ("uvx --from a b", "b"),
        ("uv run --directory /srv/weather weather.py", "weather"),
        ("uv run python -m pkg.mod", "pkg-mod"),
        ("python -m pkg.mod", "pkg-mod"),
        ("/usr/bin/python3.11 -u /srv/tools/server.py", "tools"),
        ("python server.py", "server"),
        ("python -c 'import this'", "python"),
        ("python", "python"),
        ("node /a/b/dist/index.js", "b"),
        ("docker run -i --rm -e TOKEN mcp/fetch", "fetch"),
        ("env A=1 B=2 npx -y foo", "foo"),
        ("/opt/bin/weather --fast", "weather"),
        ("'/opt/my tools/weather.exe'", "weather"),
        ("http://127.0.0.1:8000/mcp", "127-0-0-1"),
        ("https://api.example.com/v1/weather/mcp", "weather"),
        ("https://api.example.com", "api-example-com"),
    ],
)
def test_a_server_is_called_after_what_is_meant(command: str, name: str) -> None:
    assert named(command) == [name]


def test_a_command_is_split_like_a_shell_does_and_a_list_is_not() -> None:
    whole, split = parse_sources(["run 'a b' c", ["run", "a b", "c; d"]], None, None)
    assert whole.argv == ("run", "a b", "c")
    assert split.argv == ("run", "a b", "c; d")


def test_an_object_has_its_own_name() -> None:
    class Around:
        """What frameworks put around a server."""

        name = "around"
        _mcp_server = MCPServer("inner", log_level="ERROR")

    assert named(MCPServer("My tools", log_level="ERROR"), Server("low"), Around()) == ["My-tools", "low", "around"]


def test_servers_of_one_name_are_numbered() -> None:
    assert named("a", "a-2", "a", "a") == ["a", "a-2", "a-3", "a-4"]


def test_variables_go_to_programs_and_headers_to_addresses() -> None:
    program, web = parse_sources(["run", "http://127.0.0.1:1/mcp"], {"A": "1"}, {"X": "2"})
    assert program == Source("run", argv=("run",), env={"A": "1"})
    assert web == Source("127-0-0-1", url="http://127.0.0.1:1/mcp", headers={"X": "2"})


def test_the_ways_to_give_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "own=1")
    assert environment_of(None) == {}
    assert environment_of({"A": "1", "B": ""}) == {"A": "1", "B": ""}
    assert environment_of(["A=1", "B=x=y", "MINE", "C="]) == {"A": "1", "B": "x=y", "MINE": "own=1", "C": ""}
    assert environment_of("MINE") == {"MINE": "own=1"}


def test_a_variable_that_is_not_set_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    with pytest.raises(ConfigError) as caught:
        environment_of(["MISSING"])
    assert str(caught.value) == "env MISSING: the variable is not set here: export it, or write MISSING=VALUE"


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("", "an MCP command is empty"),
        ("  ", "an MCP command is empty"),
        ([], "an MCP command is empty"),
        ("run 'a", "cannot be read: No closing quotation"),
        (5, "an object of type `int` is no MCP server"),
        (None, "an object of type `NoneType` is no MCP server"),
    ],
)
def test_a_configuration_without_a_server_is_refused_at_once(server: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Agent.from_mcp(server)


def test_no_server_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="name an MCP server"):
        Agent.from_mcp()
