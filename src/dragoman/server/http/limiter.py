"""What is held against a request before anybody looks at what it asks for: whose it is, how often, how slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.engine.accept.quota import Memory, Rate, caller_of
from dragoman.transports.limits import Denials, Pace, Patience

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.model.user import User
    from dragoman.server.config.settings import Limits
    from dragoman.server.http.address import Addresses
    from dragoman.transports.http import Request


class Limiter:
    """The limits that count for all agents of a server together."""

    def __init__(self, limits: Limits, clock: Clock, addresses: Addresses, memory: Memory | None = None) -> None:
        self._memory = memory or Memory(limits.memory, limits.caller_memory)
        self.denials = Denials(clock)
        self._addresses = addresses
        self._clock = clock
        self._seconds = limits.patience
        self._rate = Rate(limits.rate, limits.burst, clock) if limits.rate else None
        self.renew()

    def renew(self) -> None:
        """Begin anew, for a new event loop."""
        self._patience = Patience(self._clock, self._seconds) if self._seconds else None
        self._pace = Pace()

    def wait_for(self, request: Request) -> None:
        """Say how long the body of a request may take."""
        request.patience = self._patience

    def admit(self, request: Request, user: User | None) -> None:
        """Note whom a request counts for, and count it. Raises Overloaded when it is one too many."""
        request.caller = caller_of(user, "" if user is not None else self._addresses.caller(request))
        if self._rate is not None:
            self._rate.take(request.caller)

    def share(self, request: Request) -> None:
        """Let a request take memory and turns, beside all others. It must be released in the end."""
        request.memory, request.pace = self._memory, self._pace
