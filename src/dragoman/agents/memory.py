"""What was said in a conversation, for agents that have no memory of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from dragoman.engine.context import Context

# How much JSON is kept: it is read and written with every message of the conversation.
MOST = 1_048_576


class Memory:
    """The turns of a conversation, in its state: a turn is everything from a message to the end of its answer.

    At most `most` bytes are kept. The oldest turns go first, and whole, so that no tool's result is left without its
    call. A turn that alone is larger is not kept.
    """

    def __init__(self, ctx: Context, key: str, most: int = MOST) -> None:
        self._ctx = ctx
        self._key = key
        self._most = most

    @property
    def turns(self) -> list[list[Any]]:
        """What is remembered, by turns."""
        return cast("list[list[Any]]", self._ctx.state.get(self._key, []))

    @property
    def messages(self) -> list[Any]:
        """What is remembered, in a row."""
        return [message for turn in self.turns for message in turn]

    def add(self, turn: list[Any]) -> None:
        """Remember one more turn."""
        self.replace([*self.turns, turn])

    def replace(self, turns: Iterable[list[Any]]) -> None:
        """Remember these turns, and no others."""
        kept: list[list[Any]] = []
        room = self._most
        for turn in reversed(list(turns)):
            size = len(msgspec.json.encode(turn)) + 1
            if size > self._most:
                self._ctx.log.warning("a turn of %d bytes is not remembered: at most %d are", size, self._most)
                continue
            room -= size
            if room < 0:
                break
            kept.append(turn)
        self._ctx.state[self._key] = kept[::-1]
