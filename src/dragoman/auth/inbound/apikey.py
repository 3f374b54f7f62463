"""Users' keys in a header, a query parameter or a cookie."""

from __future__ import annotations

from typing import Any, Literal

from dragoman.auth.inbound.presented import cookie, header, parameter
from dragoman.auth.inbound.scheme import REALM, Denied, Presented
from dragoman.auth.inbound.users import UserStore, is_key, key_digest
from dragoman.model.user import User

Location = Literal["header", "query", "cookie"]


class ApiKeyScheme:
    """A key that `dragoman users key` made."""

    scopes: tuple[str, ...] = ()

    def __init__(
        self, users: UserStore, *, name: str = "apikey", location: Location = "header", key_name: str = "X-API-Key"
    ) -> None:
        self.name = name
        self.ambient = location == "cookie"
        self._users = users
        self._location: Location = location
        self._key_name = key_name
        self._find = {"header": header, "query": parameter, "cookie": cookie}[location]
        self._wanted = key_name.lower() if location == "header" else key_name

    def card(self) -> dict[str, Any]:
        """See `Scheme.card`."""
        return {"apiKeySecurityScheme": {"location": self._location, "name": self._key_name}}

    def challenge(self) -> str:
        """See `Scheme.challenge`. The name is no registered one; HTTP wants a 401 to say something."""
        return f'ApiKey realm="{REALM}", in="{self._location}", name="{self._key_name}"'

    async def identify(self, request: Presented) -> User | None:
        """See `Scheme.identify`."""
        key = self._find(request, self._wanted)
        return None if key is None else await user_of_key(self._users, key)


async def user_of_key(users: UserStore, key: str) -> User:
    """Who a key was given to. Raises Denied when nobody has it, or not any more."""
    account = await users.by_key(key_digest(key)) if is_key(key) else None
    if account is None:
        raise Denied("the key is unknown, was revoked or has run out", cause="unknown-key")
    return account.user
