"""`Authorization: Bearer`: users' keys, and the tokens of an issuer."""

from __future__ import annotations

import re
from typing import Any

from dragoman.auth.inbound.apikey import user_of_key
from dragoman.auth.inbound.presented import authorization
from dragoman.auth.inbound.scheme import REALM, Denied, Presented
from dragoman.auth.inbound.tokens import Tokens
from dragoman.auth.inbound.users import KEY_PREFIX, UserStore
from dragoman.model.user import User

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def bearer_token(request: Presented) -> str | None:
    """The token in `Authorization: Bearer`, or None.

    Raises:
        Denied: it is none, or there are several.
    """
    token = authorization(request, "bearer")
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise Denied("the bearer token has characters that no token has, or there are several", cause="malformed")
    return token


class BearerScheme:
    """Users' keys where `users` is given, the tokens of an issuer where `tokens` is."""

    ambient = False

    def __init__(
        self,
        users: UserStore | None,
        tokens: Tokens | None = None,
        *,
        name: str = "bearer",
        scopes: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.scopes = scopes
        self._users = users
        self._tokens = tokens

    def card(self) -> dict[str, Any]:
        """See `Scheme.card`."""
        form = {"bearerFormat": "JWT"} if self._tokens is not None else {}
        return {"httpAuthSecurityScheme": {"scheme": "Bearer", **form}}

    def challenge(self) -> str:
        """See `Scheme.challenge`."""
        return f'Bearer realm="{REALM}"'

    async def identify(self, request: Presented) -> User | None:
        """See `Scheme.identify`."""
        token = bearer_token(request)
        if token is None:
            return None
        if self._users is not None and token.startswith(KEY_PREFIX):
            return await user_of_key(self._users, token)
        if self._tokens is None:
            raise Denied("the bearer token is no key of a user", cause="no-key")
        return await self._tokens.user(token)
