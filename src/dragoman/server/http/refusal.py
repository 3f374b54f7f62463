"""Answers to requests that are not let in, in the form of what they ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from dragoman.transports.http import with_headers

if TYPE_CHECKING:
    from dragoman.model.error import A2AError
    from dragoman.server.http.authentication import Authentication
    from dragoman.server.http.limiter import Limiter
    from dragoman.transports.http import Request, Send

Refuse = Callable[["Request", "Send", "A2AError"], Awaitable[None]]


class Form(Protocol):
    """How a binding spells an error; `challenged` when a header says how to authenticate."""

    def __call__(self, request: Request, send: Send, error: A2AError, *, challenged: bool) -> Awaitable[None]:
        """Answer with an error."""
        ...


def refusing(form: Form, limiter: Limiter, auth: Authentication | None) -> Refuse:
    """What refuses requests: it counts strangers, writes down which limit was reached, and says how to authenticate."""

    async def refuse(request: Request, send: Send, error: A2AError) -> None:
        error = limiter.counted(request, error)
        limiter.denials.note(request.caller, error)
        challenge = [] if auth is None else auth.challenge(error)
        await form(request, with_headers(send, challenge) if challenge else send, error, challenged=bool(challenge))

    return refuse
