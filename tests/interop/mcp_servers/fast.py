"""FastMCP: a server of its own kinds of results, in the newest revision and in the one in which its tools can ask."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .server import PROGRAMS, McpServer, script
from .step import Answer, Step

NAME = "fastmcp"
PROGRAM = PROGRAMS / "fastmcp_server.py"
OLDER = "2025-11-25"
ADA = {"name": "Ada", "age": 36}


def steps(here: Path) -> list[Step]:
    return [
        Step("echo", {"text": "naïve — ☃ \U0001f600\n"}),
        Step("echo", {"text": "7"}),
        Step("add", {"a": 2}),
        Step("add", {"a": 2, "b": 3}),
        Step("is_even", {"n": 2}),
        Step("nothing"),
        Step("perhaps", {"n": 0}),
        Step("perhaps", {"n": 5}),
        Step("person", ADA),
        Step("counts", {"words": ["one", "three"]}),
        Step("texts", {"n": 3}),
        Step("texts", {"n": 1}),
        Step("texts", {"n": 0}),
        Step("numbers", {"n": 2}),
        Step("people"),
        Step("matrix"),
        Step("untyped"),
        Step("image"),
        Step("audio"),
        Step("file"),
        Step("mixed"),
        Step("link"),
        Step("own_result"),
        Step("refuse"),
        Step("crash"),
        Step("count", {"steps": 3}),
    ]


def asking_steps(here: Path) -> list[Step]:
    person = {"label": "it"}
    return [
        *steps(here),
        Step("ask_person", person, answers=(Answer("accept", ADA),)),
        Step("ask_person", person, answers=(Answer("decline"),)),
        Step("ask_person", person, answers=(Answer("cancel"),)),
        Step("ask_text", answers=(Answer("accept", {"value": "red"}), Answer("accept", {"value": "large"}))),
        Step("ask_text", answers=(Answer("accept", {"value": "red"}), Answer("decline"))),
        Step("approve", answers=(Answer("accept", {"value": True}),)),
        Step("approve", answers=(Answer("decline"),)),
    ]


def program(*words: str) -> list[str | Path]:
    return [script(NAME, "python"), PROGRAM, *words]


SERVER = McpServer(NAME, NAME, lambda here: program("stdio"), steps)
OVER_HTTP = replace(SERVER, program=lambda here: program("http"), transport="streamable HTTP")
ASKING = replace(SERVER, program=lambda here: program("stdio", "asking"), steps=asking_steps, revision=OLDER)
ASKING_OVER_HTTP = replace(ASKING, program=lambda here: program("http", "asking"), transport="streamable HTTP")
