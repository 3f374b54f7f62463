"""The way to a remote agent, kept open between its turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from dragoman.client.client import Client
from dragoman.client.connection import InProcess
from dragoman.model.card import AgentCard

# What a stranger says of himself is read by a model with every request.
_LONGEST = 1024


class RemoteLine:
    """Clients of one agent. A connection belongs to an event loop, so each loop has a client of its own.

    A copy has clients of its own; the target is the same one, also when that is an object.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the card given cannot be read.
    """

    def __init__(self, target: object, options: Mapping[str, Any]) -> None:
        self._target = target
        self._options = dict(options)
        # Made at once: what is wrong is told where the agent is written, and not when it is first called.
        self._spare: Client | None = Client(target, **self._options)
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        self._latest: asyncio.AbstractEventLoop | None = None
        self._moved = False

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteLine:
        return RemoteLine(self._target, self._options)

    def __reduce__(self) -> tuple[type[RemoteLine], tuple[object, dict[str, Any]]]:
        return RemoteLine, (self._target, self._options)

    def client(self) -> Client:
        """The client of the running loop."""
        here = asyncio.get_running_loop()
        if here not in self._clients:
            for gone in [loop for loop in self._clients if loop.is_closed()]:
                del self._clients[gone]
            spare, self._spare = self._spare, None
            self._clients[here] = spare or Client(self._target, **self._options)
            self._moved = self._moved or self._latest not in (None, here)
            self._latest = here
        return self._clients[here]

    async def close(self) -> None:
        """Let go of the agent on this loop. The next call opens the way again."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @property
    def forgot(self) -> bool:
        """True when tasks may be gone because they went with the event loop that an agent in this process ran on."""
        return self._moved and isinstance(self._target, InProcess)

    @property
    def idle_timeout(self) -> float | None:
        """After so many seconds without any news an agent is given up; None for never."""
        return self._options.get("idle_timeout")

    @property
    def known_description(self) -> str | None:
        """What the agent says of itself, where that is known without asking."""
        target: Any = self._target
        if isinstance(target, Mapping):
            said = cast("Mapping[str, Any]", target).get("description")
        elif isinstance(target, AgentCard) or hasattr(target, "in_process"):
            said = getattr(target, "description", None)
        else:
            return None
        return _plain(said) if isinstance(said, str) else None

    async def description(self) -> str | None:
        """What the card says of the agent, on one line; None when it says nothing.

        Raises:
            CannotConnect: nobody answers.
            BadCard: there is no card that can be read.
        """
        return _plain((await self.client().card()).description)


def _plain(text: str) -> str | None:
    return " ".join(text.split())[:_LONGEST] or None
