"""`Authorization: Basic`: a name and a password (RFC 7617)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

from dragoman.auth.inbound.passwords import LONGEST, Passwords
from dragoman.auth.inbound.presented import AddressOf, address, authorization
from dragoman.auth.inbound.scheme import REALM, Denied, Presented
from dragoman.model.user import User


class BasicScheme:
    """Users with passwords."""

    scopes: tuple[str, ...] = ()
    ambient = True

    def __init__(self, passwords: Passwords, *, name: str = "basic", address_of: AddressOf = address) -> None:
        self.name = name
        self._passwords = passwords
        self._address_of = address_of

    def card(self) -> dict[str, Any]:
        """See `Scheme.card`."""
        return {"httpAuthSecurityScheme": {"scheme": "Basic"}}

    def challenge(self) -> str:
        """See `Scheme.challenge`."""
        return f'Basic realm="{REALM}", charset="UTF-8"'

    async def identify(self, request: Presented) -> User | None:
        """See `Scheme.identify`."""
        said = authorization(request, "basic")
        if said is None:
            return None
        name, password = _name_and_password(said)
        account = await self._passwords.check(name, password, self._address_of(request))
        return account.user


def _name_and_password(said: str) -> tuple[str, str]:
    try:
        text = b64decode(said.encode("ascii"), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise Denied("the credentials for Basic are not base64 of UTF-8", cause="malformed") from None
    name, colon, password = text.partition(":")
    if not colon or not name or not text.isprintable() or len(password) > LONGEST:
        raise Denied("the credentials for Basic are not a name, a colon and a password", cause="malformed")
    return name, password
