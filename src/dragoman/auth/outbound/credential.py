"""The interface of client credentials, and secret values that never appear in errors or reprs."""

from __future__ import annotations

import os
import ssl
from typing import Protocol, runtime_checkable

from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError, DragomanError
from dragoman.net.exchange import HttpClient, HttpRequest


class Secret:
    """A secret, passed directly or by the name of an environment variable, which is read on each use.

    `what` names it in errors, which never contain the value.

    Raises:
        ConfigError: both or neither are passed, or the value cannot be sent.
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
        """Return the value.

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
    """Return a value if it is text without control characters, else raise `error`, without the value in it."""
    if not isinstance(value, str):
        raise error(f"the {what} must be a str, not {type(value).__name__}")
    if not value and not may_be_empty:
        raise error(f"the {what} is empty")
    # `os.environ` decodes bytes that are not UTF-8 to surrogates.
    if any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in value):
        raise error(f"the {what} contains a line break or another control character")
    return value


@runtime_checkable
class Credential(Protocol):
    """A client credential. It is applied to every request, retries included."""

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """Add the credential to the request. `http` is for fetching a token.

        Raises:
            AuthError: there is no credential to send, or it does not satisfy the card.
            ConfigError: a setting is missing that the card is not trusted to supply.
            CannotConnect: the token endpoint does not answer; the request itself was not sent.
        """
        ...

    def reject(self) -> bool:
        """Drop cached tokens after a 401. Returns True when one more attempt makes sense."""
        ...

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """Return the TLS context that carries the credential; None when TLS does not carry it.

        `verify` is the user's option for the server's certificate: True, False, a context of their own, or a file or
        folder of authorities.

        Raises:
            ConfigError: a file cannot be read.
        """
        ...


class BaseCredential:
    """Base class with the defaults for a credential that is not cached and not carried by TLS."""

    __slots__ = ()

    def reject(self) -> bool:
        """Return False: there is no cached token to drop."""
        return False

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """Return None: TLS carries no credential."""
        return None
