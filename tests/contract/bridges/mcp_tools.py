"""The tool of an MCP server, which is a process of its own."""

from __future__ import annotations

from pathlib import Path

import warm_start
from contract.bridges.bridge import Bridge, Place, Question

from dragoman import Agent

NO_CONVERSATION = "a tool has no conversation: each call is by itself"
PROGRAM = Path(__file__).with_name("mcp_program.py")


def make(place: Place) -> Agent:
    words = ["again"] if place.restart else []
    return Agent.from_mcp(warm_start.program(PROGRAM, str(place.port), *words), name="worker")


BRIDGES = [
    Bridge(
        name="mcp tools",
        make=make,
        question=Question(again='`the answer`: `days` must be an integer, not "many"\nHow many days?'),
        lacks={
            "stream": "the result of a tool comes as a whole",
            "memory": NO_CONVERSATION,
            "memory after a restart": NO_CONVERSATION,
            "memory beside a question": NO_CONVERSATION,
            "hidden error": "the text of a tool's error is meant for whoever calls it",
            "exit": "the server is a process of its own",
            "file in": "a tool takes JSON: mcp_tools/test_choice.py",
            "data in": "data are the arguments of the tool: mcp_tools/test_choice.py",
            "trace": "the server is a process of its own: mcp_tools/test_trace.py",
        },
    ),
]
