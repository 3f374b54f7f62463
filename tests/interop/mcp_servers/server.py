"""A foreign MCP server: where it lives, how it is started, and every tool it has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.server_process import ServerProcess

from .step import Step

PROGRAMS = Path(__file__).parent.parent / "peers"
INSTALLED = Path(__file__).parents[3] / ".peers"
START_SECONDS = 30
STOP_SECONDS = 5
ADDRESS = re.compile(r"(?:listening|serving MCP) at (http://\S+?)(?:/mcp)?\s")


def nothing(here: Path) -> None:
    """Most servers need no more than a folder."""


def no_variables(here: Path) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class McpServer:
    """A server. `here` is a folder of its own, made anew for each side and the same for both: paths do not differ."""

    name: str
    folder: str
    """Its environment under .peers/, which is there when it has a file `ready`."""
    program: Callable[[Path], Sequence[str | Path]]
    steps: Callable[[Path], Sequence[Step]]
    prepare: Callable[[Path], None] = nothing
    env: Callable[[Path], dict[str, str]] = no_variables
    transport: str = "stdio"
    revision: str = ""
    """The revision of MCP that is spoken with it, if not the newest it has."""

    def __str__(self) -> str:
        return self.name if self.way == "stdio" else f"{self.name}-{self.way}"

    @property
    def way(self) -> str:
        """Its transport, and its revision where that is chosen."""
        return f"{self.transport}, {self.revision}" if self.revision else self.transport

    @property
    def version(self) -> str:
        """The version that is pinned."""
        file = PROGRAMS / f"{self.folder}.txt"
        if file.exists():
            found = re.search(rf"^{re.escape(self.name)}==(.+)$", file.read_text(), re.MULTILINE)
        else:
            wanted = rf'"{re.escape(self.name)}": "(.+)"'
            found = re.search(wanted, (PROGRAMS / self.folder / "package.json").read_text())
        assert found, f"no version of {self.name} is pinned"
        return found[1]

    @property
    def missing(self) -> str:
        """Why it cannot be tried; empty when it can."""
        if (INSTALLED / self.folder / "ready").exists():
            return ""
        needs = ", which needs npm" if (PROGRAMS / self.folder / "package.json").exists() else ""
        return f"no .peers/{self.folder}: run `make .peers/{self.folder}/ready`{needs}"

    def command(self, here: Path) -> list[str]:
        """The program and its arguments."""
        return [str(word) for word in self.program(here)]

    def make(self, here: Path) -> None:
        """Put the folder into the state in which every side begins."""
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        self.prepare(here)


def script(folder: str, name: str) -> Path:
    """A program of a Python package."""
    return INSTALLED / folder / "bin" / name


def node(package: str) -> tuple[str | Path, ...]:
    """A program of a package of .peers/mcp-js."""
    found = INSTALLED / "mcp-js" / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js"
    return "node", found


@contextmanager
def listening(command: Sequence[str]) -> Generator[str, None, None]:
    """A server on a free port of 127.0.0.1, and its URL.

    Raises:
        AssertionError: it does not start.
    """
    program, *arguments = command
    # Servers of peers/mcp-js would listen on all addresses.
    options = ["--require", PROGRAMS / "mcp-js" / "loopback.cjs"] if program == "node" else []
    server = ServerProcess(
        [program, *options, *arguments],
        Path.cwd(),
        # It has a tool that tells its variables to whoever calls: it gets none that matter.
        environment={"PATH": os.environ["PATH"], "PORT": "0"},
        address=ADDRESS.pattern,
        merged=True,
        seconds=START_SECONDS,
    )
    with server:
        yield f"{server.url}/mcp"
        server.stop()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(STOP_SECONDS)
