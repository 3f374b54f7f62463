"""Per-session limits for calls to remote agents."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.clock import SystemClock
from dragoman.compat.remote.exchange import join_url
from dragoman.compat.sessions.errors import BudgetExceededError
from dragoman.compat.sessions.invocation_guard import limit_of
from dragoman.net.addresses import parse_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.clock import Clock

MAX_CALLS = 10
MAX_AGENTS = 3
COOLDOWN_MS = 5000
# How many sessions are tracked at once. The least recently used one is dropped, and starts anew.
MAX_SESSIONS = 10_000

Origin = tuple[str, str, int]


class SessionBudget:
    """Limits the calls of each session: `max_calls` in all, `max_agents` agents, `cooldown_ms` between calls of one.

    An agent is an origin: scheme, host and port. 0 means no limit, or no cooldown. One budget serves many sessions.
    """

    def __init__(
        self,
        max_calls: int = MAX_CALLS,
        max_agents: int = MAX_AGENTS,
        cooldown_ms: int = COOLDOWN_MS,
        clock: Clock | None = None,
    ) -> None:
        self._max_calls = max_calls
        self._max_agents = max_agents
        self._cooldown_ms = cooldown_ms
        self._clock = clock or SystemClock()
        self._sessions: OrderedDict[str, _SessionUsage] = OrderedDict()

    @classmethod
    def from_env(cls, environ: Mapping[str, str], clock: Clock | None = None) -> SessionBudget:
        """Build a budget from environment variables.

        `A2A_SESSION_MAX_CALLS`, `A2A_SESSION_MAX_AGENTS` and `A2A_SESSION_COOLDOWN_MS` are whole numbers from 0 on.
        For an invalid value a warning is logged, and the default is used.
        """
        return cls(
            limit_of(environ, "A2A_SESSION_MAX_CALLS", MAX_CALLS),
            limit_of(environ, "A2A_SESSION_MAX_AGENTS", MAX_AGENTS),
            limit_of(environ, "A2A_SESSION_COOLDOWN_MS", COOLDOWN_MS),
            clock,
        )

    def __len__(self) -> int:
        """The number of sessions that are tracked."""
        return len(self._sessions)

    def take(self, session: str | None, base_url: str) -> None:
        """Count a call before it is made. Calls without a session share one. A refused call is not counted.

        Raises:
            BudgetExceededError: the call would exceed a limit, or the agent's cooldown is not over.
            CannotConnect: the base URL is invalid.
        """
        origin = _origin(base_url)
        key = session or ""
        usage = self._sessions.pop(key, None) or _SessionUsage()
        self._sessions[key] = usage
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        now = self._clock.now()
        self._check(usage, origin, now)
        usage.calls += 1
        usage.agents.pop(origin, None)
        usage.agents[origin] = now
        if not self._max_agents:
            self._forget_idle_agents(usage, now)

    def forget(self, session: str | None) -> None:
        """Drop a session that is over; an unknown one is ignored."""
        self._sessions.pop(session or "", None)

    def _check(self, usage: _SessionUsage, origin: Origin, now: int) -> None:
        if self._max_calls and usage.calls >= self._max_calls:
            text = f"Session budget exceeded: {self._max_calls} calls of remote agents are all a session has"
            raise BudgetExceededError(text, limit="calls")
        if self._max_agents and origin not in usage.agents and len(usage.agents) >= self._max_agents:
            text = f"Session budget exceeded: {self._max_agents} remote agents are all a session may call"
            raise BudgetExceededError(text, limit="agents")
        remaining_ms = self._cooldown_left_ms(usage.agents.get(origin), now)
        if remaining_ms:
            text = f"Session budget exceeded: the same agent may be called again in {remaining_ms} ms"
            raise BudgetExceededError(text, limit="cooldown", retry_after_ms=remaining_ms)

    def _cooldown_left_ms(self, last_call_ms: int | None, now: int) -> int:
        """Return the remaining cooldown in milliseconds; none if the clock has been set back since the last call."""
        if last_call_ms is None or last_call_ms > now:
            return 0
        return max(0, last_call_ms + self._cooldown_ms - now)

    def _forget_idle_agents(self, usage: _SessionUsage, now: int) -> None:
        # Agents are not limited, so an entry is only needed for its cooldown. The first one was called first.
        while usage.agents and not self._cooldown_left_ms(next(iter(usage.agents.values())), now):
            usage.agents.popitem(last=False)


class _SessionUsage:
    """How many calls a session has made, and when each agent was called last."""

    __slots__ = ("agents", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self.agents: OrderedDict[Origin, int] = OrderedDict()


def _origin(base_url: str) -> Origin:
    parts = urlsplit(join_url(base_url, ""))
    host = parts.hostname or ""
    try:
        parsed = parse_host(host)
    except ValueError:
        name = host.lower()
    else:
        # An IP address is one origin, however it is written.
        name = parsed.name if parsed.address is None else str(parsed.address)
    return parts.scheme, name, parts.port or (443 if parts.scheme == "https" else 80)
