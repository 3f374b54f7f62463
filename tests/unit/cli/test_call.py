"""`dragoman call` on an agent that tells the types of its skills."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from mcp.server import MCPServer

from dragoman import Agent
from dragoman.testing import served

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    server = MCPServer("tools", log_level="ERROR")

    @server.tool()
    def show(
        n: int = 0,
        x: float | None = None,
        ok: bool = False,
        words: list[str] | None = None,
        box: dict[str, Any] | None = None,
        unit: Literal["km", "mi"] = "km",
        text: str = "",
    ) -> dict[str, Any]:
        """Give back what came."""
        return {"n": n, "x": x, "ok": ok, "words": words, "box": box, "unit": unit, "text": text}

    with served(Agent.from_mcp(server)) as url:
        yield url


def test_words_are_read_by_the_types_of_the_skill(run: Run, tools: str) -> None:
    typed = ("n=3", "x=2.5", "ok=true", 'words=["a", "b"]', 'box={"a": 1}', "unit=mi", "text=3")
    done = run("call", tools, "show", *typed)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        **{"n": 3, "x": 2.5, "ok": True, "words": ["a", "b"], "box": {"a": 1}},
        **{"unit": "mi", "text": "3"},
    }


def test_what_is_given_as_json_is_passed_as_it_is(run: Run, tools: str) -> None:
    done = run("call", tools, "show", "n:=3", 'text:="3"', "--wire")
    assert json.loads(done.stdout)["n"] == 3
    asked = f"> GET {tools}/.well-known/skill-schemas.json"
    assert asked not in done.stderr
    assert asked in run("call", tools, "show", "n=3", "--wire").stderr


def test_an_agent_that_is_not_there_is_told_as_ever(run: Run) -> None:
    done, other = (run("call", "http://127.0.0.1:9", "show", said) for said in ("n=3", "n:=3"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "", other.stderr)
    assert done.stderr.startswith("dragoman: ")
