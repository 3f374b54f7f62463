"""What a way of saying who one is must do."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from dragoman.model.error import Unauthenticated, Unauthorized
from dragoman.model.user import User

REALM = "dragoman"


class Presented(Protocol):
    """What a scheme may look at: an HTTP request, without its body."""

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name; of several with one name, all, joined by commas."""
        ...

    @property
    def query(self) -> dict[str, str]:
        """The parameters after the question mark."""
        ...

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def path(self) -> str:
        """The path, relative to the agent."""
        ...

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """The ASGI scope."""
        ...


class Scheme(Protocol):
    """One way of saying who one is."""

    @property
    def name(self) -> str:
        """Its key among the card's security schemes."""
        ...

    @property
    def scopes(self) -> tuple[str, ...]:
        """What a caller must have been allowed, as the card's security requirements list it."""
        ...

    @property
    def ambient(self) -> bool:
        """True when a browser adds the credential by itself, also to requests that a page elsewhere makes."""
        ...

    def card(self) -> dict[str, Any]:
        """The scheme in the card's 1.0 form."""
        ...

    def challenge(self) -> str:
        """What `WWW-Authenticate` says of it; empty if nothing."""
        ...

    async def identify(self, request: Presented) -> User | None:
        """Who is calling; None when nothing of this kind was presented.

        Raises:
            Denied: something was, and it is wrong.
            Forbidden: it is right, and a scope is missing.
            ServerError: it cannot be judged now.
        """
        ...


class Denied(Unauthenticated):
    """What was presented is wrong. `cause` and `user` are for the audit log, not for the caller."""

    def __init__(self, message: str, *, cause: str, user: str = "", **metadata: str) -> None:
        super().__init__(message, **metadata)
        self.cause = cause
        self.user = user


class Forbidden(Unauthorized):
    """The caller is known and lacks a scope."""

    def __init__(self, message: str, *, cause: str, user: str = "", **metadata: str) -> None:
        super().__init__(message, **metadata)
        self.cause = cause
        self.user = user
