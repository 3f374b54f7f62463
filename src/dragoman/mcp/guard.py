"""Where a card may send us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.mcp.problem import ToolProblem
from dragoman.mcp.reach import origin_of
from dragoman.model.error import CannotConnect

if TYPE_CHECKING:
    from dragoman.mcp.reach import Reach
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse


class Guard:
    """An interceptor that lets requests pass to the agent's own host, and to what may be reached anyhow.

    A card names the address that messages are posted to. Whoever writes it must not choose any in our network.
    """

    def __init__(self, address: str, reach: Reach) -> None:
        self._host = origin_of(address)[1]
        self._reach = reach

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass, or not. Raises CannotConnect."""
        try:
            if origin_of(request.url)[1] != self._host:
                self._reach.check(request.url)
        except (ToolProblem, ValueError) as problem:
            text = f"the agent's card sends us elsewhere: {problem}"
            raise CannotConnect(text, reason="BAD_ADDRESS", arrived=False) from None
        return await call_next(request)
