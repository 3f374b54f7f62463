"""What the contract needs of a bridge: an agent behind it that knows the same orders as all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from dragoman import Agent, File

T = TypeVar("T")

Behavior = Literal[
    "answer",
    "stream",
    "memory",
    "memory after a restart",
    "memory beside a question",
    "pause",
    "wrong answer",
    "answer after a restart",
    "undisturbed question",
    "cancel",
    "hidden error",
    "public error",
    "exit",
    "file in",
    "file out",
    "data in",
    "data out",
    "progress",
    "login",
    "interrupted",
    "run again",
    "caller",
    "trace",
]

SECRET = "password=hunter2"
REASON = "no bread left"
TRIP = {"city": "Porto", "days": 3}
IMAGE = b"\x89PNG\r\n\x1a\n\x00\xff"
PICTURE = File(IMAGE, name="dot.png", media_type="image/png")


@dataclass
class Place:
    """Where the agents of one test live: their folder, their checkpoints, and what is to be closed after the test."""

    folder: Path
    port: int
    restart: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _kept: dict[str, object] = field(default_factory=dict[str, object])

    def once(self, name: str, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Return what outlives a restart of the server: it is made by the first agent and closed after the test."""
        if name not in self._kept:
            self._kept[name] = self._stack.enter_context(make())
        return self._kept[name]  # pyright: ignore[reportReturnType] - of the type that was made

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True, kw_only=True)
class Question:
    """How a bridge asks: its question, an answer it does not take and what it asks then, an answer and its result."""

    text: str = "How many days?"
    wrong: str = "many"
    again: str = "How many days? Please answer with a whole number."
    answer: str = "3"
    result: str = "Well. 3 days."


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """One kind of bridge. `make` creates a fresh agent, as a new process would.

    The agent takes orders; each is the first word of a text:

    | order | what the agent does |
    |---|---|
    | `tell` | says "one ", waits at the checkpoint `tell`, says "two" |
    | `remember WORD` | answers all texts of the conversation that began with `remember`, as a JSON list |
    | `ask` | says "Well. ", asks `question`, and answers with its result |
    | `wait` | waits at the checkpoint `wait`, as deep in the framework as work can be, then answers "done" |
    | `fail` | raises an exception whose text is `SECRET` |
    | `refuse` | fails for a reason that callers may know: `REASON` |
    | `exit` | raises SystemExit |
    | `look` | answers with the media type and the base64 of the file that came with the message, as a JSON list |
    | `draw` | answers with `PICTURE` |
    | `read` | answers with the data that came with the message, as JSON |
    | `plan` | answers with `TRIP` as data |
    | `step` | reports the progress "looking", then answers "found" |
    | `login` | asks for a login |
    | `who` | answers with the id of the caller |
    | `span` | opens the span "in the work", and answers "done" |

    `lacks` names what the bridge does not have, with the reason.
    """

    name: str
    make: Callable[[Place], Agent]
    question: Question = Question()
    login: str = "Log in, please"
    lacks: Mapping[Behavior, str] = field(default_factory=dict[Behavior, str])
