"""Where a card may send us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.mcp.problem import ToolProblem
from dragoman.mcp.reach import is_loopback, origin_of
from dragoman.model.error import CannotConnect

if TYPE_CHECKING:
    from dragoman.mcp.reach import Reach
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse


class Guard:
    """An interceptor that lets requests pass to the agent's own origin, and to what may be reached anyhow.

    A card names the address that messages are posted to. Whoever writes it must not choose any in our network, nor
    another service on this machine, unless it is on this machine itself.
    """

    def __init__(self, address: str, reach: Reach) -> None:
        self._origin = origin_of(address)
        self._reach = reach

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass, or not. Raises CannotConnect."""
        try:
            self._check(request.url)
        except (ToolProblem, ValueError) as problem:
            text = f"the agent's card sends us elsewhere: {problem}"
            raise CannotConnect(text, reason="BAD_ADDRESS", arrived=False) from None
        return await call_next(request)

    def _check(self, url: str) -> None:
        origin = origin_of(url)
        if origin == self._origin:
            return
        if is_loopback(origin[1]) and not is_loopback(self._origin[1]):
            raise ToolProblem("only an agent on this machine may name an address on this machine")
        self._reach.check(url)
