"""The authentication schemes for API keys, Basic, bearer tokens and the tokens of an issuer."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any, Literal

from dragoman.auth.inbound.passwords import KEY_PREFIX, MAX_LENGTH, Passwords, UserStore, is_key, key_digest
from dragoman.auth.inbound.scheme import (
    REALM,
    AddressOf,
    AuthScheme,
    InboundRequest,
    InvalidCredential,
    authorization,
    client_address,
    cookie_value,
    header_value,
    query_value,
)
from dragoman.auth.inbound.tokens import TokenVerifier
from dragoman.model.user import User

Location = Literal["header", "query", "cookie"]


class ApiKeyScheme(AuthScheme):
    """Authenticates by a user's key from `dragoman users key`."""

    def __init__(self, users: UserStore, *, location: Location = "header", key_name: str = "X-API-Key") -> None:
        card = {"apiKeySecurityScheme": {"location": location, "name": key_name}}
        # HTTP requires a challenge with a 401; no registered scheme describes this one.
        challenge = f'ApiKey realm="{REALM}", in="{location}", name="{key_name}"'
        super().__init__("apikey", card, challenge, ambient=location == "cookie")
        self._users = users
        self._read_key = {"header": header_value, "query": query_value, "cookie": cookie_value}[location]
        self._key_name = key_name.lower() if location == "header" else key_name

    async def identify(self, request: InboundRequest) -> User | None:
        key = self._read_key(request, self._key_name)
        return None if key is None else await find_key_user(self._users, key)


async def find_key_user(users: UserStore, key: str) -> User:
    """Return the user of a key. Raises InvalidCredential when it is unknown, revoked or expired."""
    account = await users.by_key(key_digest(key)) if is_key(key) else None
    if account is None:
        raise InvalidCredential("the key is unknown, was revoked or has run out", cause="unknown-key")
    return account.user


class BasicScheme(AuthScheme):
    """Authenticates by name and password in `Authorization: Basic`."""

    def __init__(self, passwords: Passwords, *, address_of: AddressOf = client_address) -> None:
        challenge = f'Basic realm="{REALM}", charset="UTF-8"'
        super().__init__("basic", {"httpAuthSecurityScheme": {"scheme": "Basic"}}, challenge, ambient=True)
        self._passwords = passwords
        self._address_of = address_of

    async def identify(self, request: InboundRequest) -> User | None:
        credentials = authorization(request, "basic")
        if credentials is None:
            return None
        name, password = _parse_basic(credentials)
        account = await self._passwords.check(name, password, self._address_of(request))
        return account.user


def _parse_basic(credentials: str) -> tuple[str, str]:
    try:
        text = b64decode(credentials.encode("ascii"), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise InvalidCredential("the credentials for Basic are not base64 of UTF-8", cause="malformed") from None
    name, colon, password = text.partition(":")
    if not colon or not name or not text.isprintable() or len(password) > MAX_LENGTH:
        raise InvalidCredential("the credentials for Basic are not a name, a colon and a password", cause="malformed")
    return name, password


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def bearer_token(request: InboundRequest) -> str | None:
    """Return the token in `Authorization: Bearer`, or None.

    Raises:
        InvalidCredential: it is not a token, or there are several.
    """
    token = authorization(request, "bearer")
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise InvalidCredential(
            "the bearer token has characters that no token has, or there are several", cause="malformed"
        )
    return token


class BearerScheme(AuthScheme):
    """Authenticates by bearer token: users' keys if `users` is given, an issuer's tokens if `tokens` is."""

    def __init__(
        self, users: UserStore | None, tokens: TokenVerifier | None = None, *, scopes: tuple[str, ...] = ()
    ) -> None:
        bearer_format = {"bearerFormat": "JWT"} if tokens is not None else {}
        card = {"httpAuthSecurityScheme": {"scheme": "Bearer", **bearer_format}}
        super().__init__("bearer", card, f'Bearer realm="{REALM}"', scopes=scopes)
        self._users = users
        self._tokens = tokens

    async def identify(self, request: InboundRequest) -> User | None:
        token = bearer_token(request)
        if token is None:
            return None
        if self._users is not None and token.startswith(KEY_PREFIX):
            return await find_key_user(self._users, token)
        if self._tokens is None:
            raise InvalidCredential("the bearer token is no key of a user", cause="no-key")
        return await self._tokens.identify(token)


class IssuedTokenScheme(AuthScheme):
    """Authenticates by a bearer token of an external issuer, which the card describes."""

    def __init__(self, name: str, tokens: TokenVerifier, card: dict[str, Any], scopes: tuple[str, ...] = ()) -> None:
        scope = f', scope="{" ".join(scopes)}"' if scopes else ""
        super().__init__(name, card, f'Bearer realm="{REALM}"{scope}', scopes=scopes)
        self._tokens = tokens

    async def identify(self, request: InboundRequest) -> User | None:
        """Return the caller; a user's key is left to the other schemes."""
        token = bearer_token(request)
        if token is None or token.startswith(KEY_PREFIX):
            return None
        return await self._tokens.identify(token)
