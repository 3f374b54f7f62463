"""The session cookie: an encrypted statement of who signed in, readable by the server only."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from dragoman.auth.inbound.chain import CredentialCache
from dragoman.auth.inbound.passwords import UserStore
from dragoman.auth.inbound.scheme import REALM, AuthScheme, InboundRequest, InvalidCredential, cookie_value
from dragoman.clock import Clock
from dragoman.keys.errors import BadSeal
from dragoman.keys.ring import KeyRing
from dragoman.model.user import Account, User

PURPOSE = "cookie"
NAME = "user"
MAX_AGE = 30 * 24 * 3600.0
CACHE_SECONDS = 300.0


class CookiePayload(Struct, frozen=True, rename={"name": "u", "epoch": "e", "at": "t"}):
    """The content of the cookie: a user, the user's epoch, and the time of issue in milliseconds since 1970."""

    name: str
    epoch: int
    at: int


_decode = msgspec.json.Decoder(CookiePayload).decode


def seal_cookie(ring: KeyRing, account: Account, clock: Clock) -> str:
    """Build the cookie value of a user. It is valid until it expires, or the user is revoked or changes passwords."""
    now = clock.now()
    payload = msgspec.json.encode(CookiePayload(account.user.name, account.epoch, now))
    return ring.seal(PURPOSE, payload, now=now / 1000).decode("ascii")


class CookieScheme(AuthScheme):
    """Authenticates by a cookie from the login page or `dragoman users cookie`."""

    def __init__(
        self,
        users: UserStore,
        ring: KeyRing,
        clock: Clock,
        *,
        cookie_name: str = NAME,
        max_age: float = MAX_AGE,
    ) -> None:
        # HTTP requires a challenge with a 401; no registered scheme describes this one.
        challenge = f'Cookie realm="{REALM}", cookie-name="{cookie_name}"'
        card = {"apiKeySecurityScheme": {"location": "cookie", "name": cookie_name}}
        super().__init__("cookie", card, challenge, ambient=True)
        self.cookie_name = cookie_name
        self.max_age = max_age
        self._users = users
        self._ring = ring
        self._clock = clock
        self._cache: CredentialCache[CookiePayload] = CredentialCache(clock, CACHE_SECONDS)

    def seal(self, account: Account) -> str:
        """Build the cookie value of a user."""
        return seal_cookie(self._ring, account, self._clock)

    async def identify(self, request: InboundRequest) -> User | None:
        sealed = cookie_value(request, self.cookie_name)
        if sealed is None:
            return None
        digest = self._cache.digest(sealed)
        payload = self._cache.get(digest)
        if payload is None:
            payload = self._unseal(sealed)
            self._cache.put(digest, payload, payload.at + self.max_age * 1000)
        account = await self._users.by_name(payload.name)
        if account is None or account.epoch != payload.epoch:
            user = payload.name if account is not None else ""
            raise InvalidCredential(
                f"the cookie {self.cookie_name!r} was revoked: sign in again", cause="revoked", user=user
            )
        return account.user

    def _unseal(self, sealed: str) -> CookiePayload:
        try:
            data = self._ring.unseal(
                PURPOSE, sealed.encode("ascii"), max_age=self.max_age, now=self._clock.now() / 1000
            )
            return _decode(data)
        except (BadSeal, ValueError, msgspec.MsgspecError):
            raise InvalidCredential(
                f"the cookie {self.cookie_name!r} is not one of this server, or too old: sign in again",
                cause="bad-cookie",
            ) from None
