"""The interface of authentication schemes, and reading credentials from a request."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from dragoman.model.error import Unauthenticated, Unauthorized
from dragoman.model.user import User

REALM = "dragoman"


class InboundRequest(Protocol):
    """The part of an HTTP request that schemes read: everything but the body."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by lower-case name; repeated ones are joined by commas."""
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
    """Base class of authentication schemes.

    `name` is its key among the card's security schemes, `card` its 1.0 form there, `challenge` its `WWW-Authenticate`
    value, empty for none. `scopes` are the required scopes, as the card's security requirements list them. An `ambient`
    credential is one that browsers add by themselves, even to requests from pages of other sites.
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
        """Return the caller, or None when the request has no credential of this scheme.

        Raises:
            InvalidCredential: the credential is wrong.
            Forbidden: the credential is valid and lacks a scope.
            ServerError: the credential cannot be checked now.
        """
        raise NotImplementedError


class InvalidCredential(Unauthenticated):
    """The credential is wrong. `cause` and `user` are for the audit log, not for the caller."""

    def __init__(self, message: str, *, cause: str, user: str = "", **metadata: str) -> None:
        super().__init__(message, **metadata)
        self.cause = cause
        self.user = user


class Forbidden(Unauthorized):
    """The caller is authenticated and lacks a scope."""

    def __init__(self, message: str, *, cause: str, user: str = "", **metadata: str) -> None:
        super().__init__(message, **metadata)
        self.cause = cause
        self.user = user


# Returns the client address of a request, which behind a proxy is not that of its connection.
AddressOf = Callable[[InboundRequest], str]
# Longer than any legitimate token. Anything longer is not even hashed.
MAX_CREDENTIAL = 16 * 1024


def authorization(request: InboundRequest, expected: str) -> str | None:
    """Return the credentials in `Authorization` for a scheme; None when it is missing or of another scheme.

    Raises:
        InvalidCredential: they are too long.
    """
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, rest = header.partition(" ")
    return _check_length(rest.strip(" ")) if scheme.lower() == expected else None


def cookie_value(request: InboundRequest, name: str) -> str | None:
    """Return the value of a cookie, or None.

    Raises:
        InvalidCredential: the cookie was sent twice, one perhaps planted by another site, or is too long.
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
    """Return a header by its lower-case name, or None. Raises InvalidCredential when it is too long."""
    value = request.headers.get(name)
    return None if value is None else _check_length(value)


def query_value(request: InboundRequest, name: str) -> str | None:
    """Return a query parameter, or None. Raises InvalidCredential when it is too long."""
    value = request.query.get(name)
    return None if value is None else _check_length(value)


def client_address(request: InboundRequest) -> str:
    """Return the peer address of the connection, empty when the server does not say."""
    client = request.scope.get("client")
    return str(client[0]) if client else ""


def _check_length(value: str) -> str:
    if len(value) > MAX_CREDENTIAL:
        raise InvalidCredential("the credentials are too long", cause="too-long")
    return value
