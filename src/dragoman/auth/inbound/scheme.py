"""What a way of saying who one is must do."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from dragoman.model.error import Unauthenticated, Unauthorized
from dragoman.model.user import User

REALM = "dragoman"


class InboundRequest(Protocol):
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


class AuthScheme:
    """One way of saying who one is.

    `name` is its key among the card's security schemes, `card` its 1.0 form there, `challenge` what `WWW-Authenticate`
    says of it; empty if nothing. `scopes` are what a caller must have been allowed, as the card's security requirements
    list it. An `ambient` credential is one that a browser adds by itself, also to requests that a page elsewhere makes.
    """

    def __init__(
        self, name: str, card: dict[str, Any], challenge: str, *, scopes: tuple[str, ...] = (), ambient: bool = False
    ) -> None:
        self.name = name
        self.card = card
        self.challenge = challenge
        self.scopes = scopes
        self.ambient = ambient

    async def identify(self, request: InboundRequest) -> User | None:
        """Who is calling; None when nothing of this kind was presented.

        Raises:
            Denied: something was, and it is wrong.
            Forbidden: it is right, and a scope is missing.
            ServerError: it cannot be judged now.
        """
        raise NotImplementedError


class InvalidCredential(Unauthenticated):
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


# Says where a request comes from, which behind a proxy is not where its connection comes from.
AddressOf = Callable[[InboundRequest], str]
# More than any honest token has. What is longer is not even hashed.
MAX_CREDENTIAL = 16 * 1024


def authorization(request: InboundRequest, expected: str) -> str | None:
    """What follows this word in `Authorization`; None when it is missing or begins with another word.

    Raises:
        Denied: it is too long.
    """
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, rest = header.partition(" ")
    return _check_length(rest.strip(" ")) if scheme.lower() == expected else None


def cookie_value(request: InboundRequest, name: str) -> str | None:
    """The value of a cookie, or None.

    Raises:
        Denied: it is there twice, so that somebody else may have put one of them, or is too long.
    """
    header = request.headers.get("cookie")
    if header is None or name not in header:
        return None
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    values = [value for key, _, value in pairs if key == name]
    if not values:
        return None
    if len(values) > 1:
        raise InvalidCredential(f"the cookie {name!r} was sent more than once", cause="two-cookies")
    return _check_length(values[0].strip('"'))


def header_value(request: InboundRequest, name: str) -> str | None:
    """The value of a header by its lower-case name, or None. Raises Denied when it is too long."""
    value = request.headers.get(name)
    return None if value is None else _check_length(value)


def query_value(request: InboundRequest, name: str) -> str | None:
    """The value of a query parameter, or None. Raises Denied when it is too long."""
    value = request.query.get(name)
    return None if value is None else _check_length(value)


def client_address(request: InboundRequest) -> str:
    """Where the request comes from, as far as the server says."""
    client = request.scope.get("client")
    return str(client[0]) if client else ""


def _check_length(value: str) -> str:
    if len(value) > MAX_CREDENTIAL:
        raise InvalidCredential("the credentials are too long", cause="too-long")
    return value
