"""What every credential does."""

from __future__ import annotations

import ssl
from typing import Protocol, runtime_checkable

from dragoman.model.card import AgentCard
from dragoman.net.exchange import HttpClient, HttpRequest


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


class Unchanging:
    """The two answers of a credential that is not cached and not carried by TLS."""

    __slots__ = ()

    def reject(self) -> bool:
        """See `Credential.reject`."""
        return False

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """See `Credential.ssl_context`."""
        return None
