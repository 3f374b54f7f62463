"""Programs, which are processes of their own: one that writes JSON lines, and a coding agent that a profile knows."""

from __future__ import annotations

import sys
from pathlib import Path

from contract.bridges.bridge import Behavior, Bridge, Place, Question

from dragoman import Agent

PROGRAM = str(Path(__file__).with_name("program.py"))
LACKS: dict[Behavior, str] = {
    "hidden error": "what a program writes about its failure is meant for whoever runs it",
    "exit": "a program is a process of its own",
    "login": "a program has no way to ask for a login",
    "run again": "a program may have had effects: there is no option to run it twice",
    "trace": "a program is a process of its own: process/test_trace.py",
}


def lines(place: Place) -> Agent:
    command = [sys.executable, "-S", "-E", PROGRAM, str(place.port), "{prompt}"]
    return Agent.from_command(command, output="jsonl", name="worker")


def coding_agent(place: Place) -> Agent:
    command = [sys.executable, "-S", "-E", PROGRAM, str(place.port), "-p"]
    return Agent.from_command(command, profile="claude", name="worker")


BRIDGES = [
    Bridge(
        name="program",
        make=lines,
        question=Question(wrong="", result="Well. 3 days."),
        lacks={
            **LACKS,
            "wrong answer": "a program gets the line that was sent, whatever it is",
            "answer after a restart": "the program that asked has ended with the server",
            "memory beside a question": "a new message ends the program that waits: process/test_conversations.py",
            "undisturbed question": "a new message ends the program that waits: process/test_conversations.py",
        },
    ),
    Bridge(
        name="profile",
        make=coding_agent,
        lacks={
            **LACKS,
            "stream": "the programs of profiles write whole messages",
            "pause": "the programs of profiles run without asking",
            "wrong answer": "the programs of profiles run without asking",
            "answer after a restart": "the programs of profiles run without asking",
            "memory beside a question": "the programs of profiles run without asking",
            "undisturbed question": "the programs of profiles run without asking",
        },
    ),
]
