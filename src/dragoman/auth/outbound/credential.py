"""What every credential does, and the secret values that nobody may read over a shoulder."""

from __future__ import annotations

import os
import ssl
from typing import Protocol, runtime_checkable

from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError, DragomanError
from dragoman.net.exchange import HttpClient, HttpRequest


class Secret:
    """A secret, given or in an environment variable, which is read whenever the secret is used.

    `what` names it in errors; the value is in none of them.

    Raises:
        ConfigError: both or neither are given, or the value cannot be sent.
    """

    __slots__ = ("_env", "_value", "_what")

    def __init__(
        self, what: str, value: str | None = None, env: str | None = None, *, may_be_empty: bool = False
    ) -> None:
        if value is None and env is None:
            raise ConfigError(f"the {what} is missing: give it, or name an environment variable with env=")
        if value is not None and env is not None:
            raise ConfigError(f"the {what} is given twice: give it or env=, not both")
        if env is not None and (not isinstance(env, str) or not env):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("env= is the name of an environment variable")
        self._what = what
        self._env = env
        self._value = None if value is None else check_sendable(value, what, ConfigError, may_be_empty=may_be_empty)

    def read(self) -> str:
        """The value.

        Raises:
            AuthError: the environment variable is not set, or its value cannot be sent.
        """
        if self._env is None:
            return self._value or ""
        value = os.environ.get(self._env)
        if value is None:
            raise AuthError(f"the {self._what} is missing: the environment variable {self._env} is not set")
        return check_sendable(value, f"{self._what} in the environment variable {self._env}", AuthError)

    def __repr__(self) -> str:
        return "…" if self._env is None else f"env={self._env!r}"


def check_sendable(value: object, what: str, error: type[DragomanError], *, may_be_empty: bool = False) -> str:
    """The value, when it is text that cannot break out of its place in a request. Raises `error`, without the value."""
    if not isinstance(value, str):
        raise error(f"the {what} must be a str, not {type(value).__name__}")
    if not value and not may_be_empty:
        raise error(f"the {what} is empty")
    # Surrogates are what the environment makes of bytes that are not UTF-8.
    if any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in value):
        raise error(f"the {what} contains a line break or another control character")
    return value


@runtime_checkable
class Credential(Protocol):
    """Something that says who is calling. It is applied anew to every request, a repeated one too."""

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """Put the credential on the request. `http` is there to fetch a token with.

        Raises:
            AuthError: there is no credential to send, or it does not suit what the card demands.
            ConfigError: a setting is missing that the card cannot be trusted to give.
            CannotConnect: the token endpoint does not answer; the request itself was not sent.
        """
        ...

    def reject(self) -> bool:
        """Hear that the server answered 401: forget what was cached. True when trying once more makes sense."""
        ...

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """The TLS settings that carry the credential; None when it is not carried by TLS.

        `verify` is what the user said about the server's certificate: True, False, a context of their own, or a file
        or folder of authorities.

        Raises:
            ConfigError: a file cannot be read.
        """
        ...


class BaseCredential:
    """The two answers of a credential that is not cached and not carried by TLS."""

    __slots__ = ()

    def reject(self) -> bool:
        """See `Credential.reject`."""
        return False

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """See `Credential.ssl_context`."""
        return None
