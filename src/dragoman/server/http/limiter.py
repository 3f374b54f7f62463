"""The limits of a server as a whole: request rate, time for a request to arrive, memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from dragoman.engine.quota import MemoryQuota, RateLimiter, caller_of
from dragoman.model.error import A2AError
from dragoman.server.http.address import network_of
from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.transports.http import REQUEST, USER, SharedResources, with_headers
from dragoman.transports.limits import ArrivalTimer, CpuThrottle, DenialLog

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.model.user import User
    from dragoman.server.config.settings import Limits
    from dragoman.server.http.address import Addresses
    from dragoman.server.http.authentication import Authentication
    from dragoman.server.http.cross_site import CrossSiteCheck
    from dragoman.transports.http import AsgiApp, AsgiScope, Receive, Request, Send


Refuse = Callable[["Request", "Send", A2AError], Awaitable[None]]


class ErrorResponder(Protocol):
    """Sends an error in the format of a binding; `challenged` when a header says how to authenticate."""

    def __call__(self, request: Request, send: Send, error: A2AError, *, challenged: bool) -> Awaitable[None]:
        """Send the error."""
        ...


class Limiter:
    """Applies the limits that all agents of a server share."""

    def __init__(self, limits: Limits, clock: Clock, addresses: Addresses, memory: MemoryQuota | None = None) -> None:
        self._addresses = addresses
        timer = ArrivalTimer(clock, limits.request_timeout) if limits.request_timeout else None
        self.shared = SharedResources(memory or MemoryQuota(limits.memory, limits.caller_memory), CpuThrottle(), timer)
        self.denials = DenialLog(clock)
        self.rate = RateLimiter(limits.rate, limits.burst, clock) if limits.rate else None

    @property
    def has_proxies(self) -> bool:
        """True when the client address of a request may differ from its peer address."""
        return self._addresses.has_proxies

    def caller(self, request: Request) -> str:
        """Return the caller id that an anonymous request counts for, by its client address."""
        return caller_of(None, self._addresses.caller(request))

    def count_refusal(self, request: Request, error: A2AError) -> A2AError:
        """Count a request that was refused before `admit`, and return the error to send: this one, or the rate limit's.

        So guessing credentials is rate-limited too.
        """
        if request.caller:
            return error
        request.admit(None, self.caller(request), False)
        try:
            if self.rate is not None:
                self.rate.take(request.caller)
        except A2AError as rate_error:
            return rate_error
        return error


def build_refuse(send_error: ErrorResponder, limiter: Limiter, auth: Authentication | None) -> Refuse:
    """Build the function that refuses requests: it counts and logs the refusal, and sends it with the challenges."""

    async def refuse(request: Request, send: Send, error: A2AError) -> None:
        error = limiter.count_refusal(request, error)
        limiter.denials.log(request.caller, error)
        challenge = [] if auth is None else auth.challenge(error)
        await send_error(
            request, with_headers(send, challenge) if challenge else send, error, challenged=bool(challenge)
        )

    return refuse


@lru_cache(4096)
def _anonymous_caller(address: str) -> str:
    return caller_of(None, network_of(address) if ":" in address else address)


def admit(app: AsgiApp, limiter: Limiter, cross_site: CrossSiteCheck, refuse: Refuse) -> AsgiApp:
    """Set the caller of a request and apply the rate limit."""
    rate, has_proxies, may_list = limiter.rate, limiter.has_proxies, cross_site.may_list

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        request: Request = scope[REQUEST]
        user: User | None = scope.get(USER)
        if user is not None:
            request.admit(user, caller_of(user), True)
        else:
            server, client = scope.get("server"), scope.get("client")
            if client and not has_proxies and "x-forwarded-for" not in request.headers:
                caller = _anonymous_caller(client[0])
            else:
                caller = limiter.caller(request)
            request.admit(None, caller, may_list(server[0] if server else ""))
        if LOG_CONTEXT.on:
            LOG_CONTEXT.request.set(request)
        if rate is not None:
            try:
                rate.take(request.caller)
            except A2AError as error:
                return refuse(request, send, error)
        return app(scope, receive, send)

    return middleware
