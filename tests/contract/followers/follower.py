"""What the contract needs of a follower of a remote task, whatever calls it: a client, a front, a framework, a host."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from contract.followers.storyteller import Storyteller, until

from dragoman import State

Behavior = Literal[
    "first event lost",
    "acceptance lost",
    "cut anywhere",
    "cut at random",
    "outage",
    "end while away",
    "unreachable",
    "question",
    "cancel",
    "leave",
    "no numbers",
    "no subscriptions",
    "no streams",
    "task lost",
    "refusal",
]


class Outcome(NamedTuple):
    """What a follower reports of a task in the end."""

    state: State | None
    text: str
    problem: str = ""
    """The error, if there is one."""
    pieces: list[str] | None = None
    """The texts as they arrived, where the follower reports them one by one."""
    ends: int = 1
    """How many events reported the end."""
    numbers: list[int] | None = None
    """The numbers of the events, where the follower reads a stream from its beginning."""
    question: str = ""


@dataclass
class Place:
    """Where a follower is made: the address it calls, the agent behind it, and what is closed after the test.

    `has_stream` is set when the beginning of a stream has arrived.
    """

    url: str
    storyteller: Storyteller
    stack: AsyncExitStack
    reconnect: float
    has_stream: asyncio.Event


class Follower(ABC):
    """Follows the tasks of one agent.

    `has_text` is set when a text of the task has arrived, where the follower `reports_texts` before the end.
    """

    reports_texts = True

    def __init__(self, place: Place) -> None:
        self.place = place
        self.has_text = asyncio.Event()

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def follow(self, order: str) -> Outcome:
        """Send an order and follow its task until it ends or pauses."""

    @abstractmethod
    async def answer(self, text: str) -> Outcome:
        """Answer the question of the task that was followed last, and follow it until it ends."""

    @abstractmethod
    async def cancel(self, following: asyncio.Task[Outcome]) -> Outcome | None:
        """Cancel the task that `following` follows, and return its outcome; None where the framework reports none."""

    async def until_paused(self, *, in_stream: bool = True) -> None:
        """Wait until the order `pause` has reached its pause, and its first word or the stream has arrived."""
        await until(self.place.storyteller.paused)
        if self.reports_texts:
            await self.has_text.wait()
        elif in_stream:
            await self.place.has_stream.wait()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of follower.

    `make` makes one; over gRPC where `is_grpc`. `problems` is what it reports where the agent cannot be reached, has
    lost the task, or refuses the message. `lacks` names the rows it cannot have, with the reason.
    """

    name: str
    make: Callable[[Place], Follower]
    is_grpc: bool = False
    problems: Mapping[Literal["unreachable", "task lost", "refusal"], str]
    lacks: Mapping[Behavior, str] = field(default_factory=dict[Behavior, str])
