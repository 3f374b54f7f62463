"""MCP servers that are really there: a plain one of the handshake era, and one made with the official SDK."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import warm_start
from mcp.server import MCPServer

from dragoman.model.part import Part

HERE = Path(__file__).parent


@pytest.fixture
def handshake(tmp_path: Path) -> Callable[..., list[str]]:
    """The command of the plain server; what its tools notice is left in `tmp_path`."""

    def command(*words: str) -> list[str]:
        return [sys.executable, "-S", "-E", str(HERE / "handshake_server.py"), str(tmp_path), *words]

    return command


@pytest.fixture(scope="session")
def sdk_server() -> ModuleType:
    """The module with the server made with the official SDK."""
    from unit.agents.mcp_tools import sdk_server

    return sdk_server


@pytest.fixture
def kit(sdk_server: ModuleType, tmp_path: Path) -> MCPServer:
    """That server, as an object; what its tools notice is left in `tmp_path`."""
    return sdk_server.build(tmp_path)


@pytest.fixture
def sdk_command(tmp_path: Path) -> list[str]:
    """The same server as a program."""
    return warm_start.program(HERE / "sdk_server.py", "stdio", str(tmp_path))


def tool_part(tool: str, /, **arguments: Any) -> Part:
    return Part(data={"tool": tool, "arguments": arguments})


@pytest.fixture(name="tool_part", scope="session")
def tool_part_fixture() -> Callable[..., Part]:
    """The part of a message that calls a tool."""
    return tool_part
