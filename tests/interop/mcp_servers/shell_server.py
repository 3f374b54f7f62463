"""mcp-shell-server: one tool, which runs programs."""

from __future__ import annotations

from pathlib import Path

from .server import McpServer, script
from .step import Step

NAME = "mcp-shell-server"


def prepare(here: Path) -> None:
    (here / "poem.txt").write_text("one\ntwo\n")


def env(here: Path) -> dict[str, str]:
    return {"ALLOW_COMMANDS": "cat,ls,echo,sleep", "LC_ALL": "C"}


def steps(here: Path) -> list[Step]:
    place = {"directory": str(here)}
    return [
        Step("shell_execute", {"command": ["cat", "poem.txt"], **place}),
        Step("shell_execute", {"command": ["cat"], "stdin": "naïve — ☃\n", **place}),
        Step("shell_execute", {"command": ["echo", "-n"], **place}),
        Step("shell_execute", {"command": ["ls", "nowhere"], **place}),
        Step("shell_execute", {"command": ["sleep", "30"], "timeout": 1, **place}),
        Step("shell_execute", {"command": ["rm", "poem.txt"], **place}),
    ]


SERVER = McpServer(NAME, NAME, lambda here: [script(NAME, NAME)], steps, prepare, env)
