"""Tokens of an OAuth 2 server or an OpenID Connect provider."""

from __future__ import annotations

from typing import Any

from dragoman.auth.inbound.bearer import bearer_token
from dragoman.auth.inbound.scheme import REALM, Presented
from dragoman.auth.inbound.tokens import Tokens
from dragoman.auth.inbound.users import KEY_PREFIX
from dragoman.model.user import User


class IssuedTokenScheme:
    """A bearer token that somebody else gives out; the card says who and how."""

    ambient = False

    def __init__(self, name: str, tokens: Tokens, card: dict[str, Any], scopes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.scopes = scopes
        self._tokens = tokens
        self._card = card

    def card(self) -> dict[str, Any]:
        """See `Scheme.card`."""
        return self._card

    def challenge(self) -> str:
        """See `Scheme.challenge`."""
        scope = f', scope="{" ".join(self.scopes)}"' if self.scopes else ""
        return f'Bearer realm="{REALM}"{scope}'

    async def identify(self, request: Presented) -> User | None:
        """See `Scheme.identify`. A user's key is none of an issuer's business."""
        token = bearer_token(request)
        if token is None or token.startswith(KEY_PREFIX):
            return None
        return await self._tokens.user(token)
