"""Calls that wait for an answer."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from dragoman.agents.mcp_tools.call import ToolCall
from dragoman.model.error import Failed

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock, Timer

# How long a call is held open for an answer.
HELD_SECONDS = 3600.0
# How many there may be: of one user, of all strangers, of everybody. Each costs the server a call that is under way.
OF_A_USER, OF_STRANGERS, OF_ALL = 20, 200, 1000


class _Holding(Struct, frozen=True):
    call: ToolCall
    timer: Timer
    who: tuple[str, str]


class Held:
    """Calls that wait for an answer, open: servers of the handshake era know no other way."""

    def __init__(self) -> None:
        self._calls: dict[str, _Holding] = {}
        self._of = Counter[tuple[str, str]]()
        self._ending: set[asyncio.Task[None]] = set()

    def keep(self, call: ToolCall, clock: Clock) -> str:
        """Keep a call until its answer comes. Gives its key.

        Raises:
            Failed: too many questions wait already. The call is still the caller's to end.
        """
        tenant, user, _ = call.caller
        who = (tenant, user)
        if self._of[who] >= (OF_A_USER if user else OF_STRANGERS):
            raise Failed(f"`{call.tool}` asks, but {self._of[who]} questions wait for you: answer or cancel one first")
        if len(self._calls) >= OF_ALL:
            raise Failed(f"`{call.tool}` asks, but too many questions wait for their answers here: try it again later")
        key = secrets.token_hex(16)

        def expire() -> None:
            found = self.take(key)
            if found is not None:
                ending = asyncio.get_running_loop().create_task(found.cancel())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

        self._calls[key] = _Holding(call, clock.call_later(HELD_SECONDS, expire), who)
        self._of[who] += 1
        return key

    def take(self, key: object) -> ToolCall | None:
        """The call of a key, if it is still there."""
        holding = self._calls.pop(str(key), None)
        if holding is None:
            return None
        holding.timer.cancel()
        self._of[holding.who] -= 1
        if not self._of[holding.who]:
            del self._of[holding.who]
        return holding.call

    async def drop(self, ref: Any) -> None:
        """Nobody will answer: cancel the call."""
        key = cast("dict[str, Any]", ref).get("key") if isinstance(ref, dict) else None
        call = self.take(key)
        if call is not None:
            await call.cancel()

    async def close(self) -> None:
        """Cancel all of them."""
        calls = [self.take(key) for key in tuple(self._calls)]
        await asyncio.gather(*(call.cancel() for call in calls if call is not None), *self._ending)
