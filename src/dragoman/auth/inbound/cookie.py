"""The sealed cookie: who signed in, readable to the server only."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from dragoman.auth.inbound.chain import Recall
from dragoman.auth.inbound.passwords import UserStore
from dragoman.auth.inbound.scheme import REALM, Denied, Presented, Scheme, cookie
from dragoman.clock import Clock
from dragoman.keys.errors import BadSeal
from dragoman.keys.ring import KeyRing
from dragoman.model.user import Account, User

PURPOSE = "cookie"
NAME = "user"
MAX_AGE = 30 * 24 * 3600.0
REMEMBERED = 300.0


class Pass(Struct, frozen=True, rename={"name": "u", "epoch": "e", "at": "t"}):
    """What is in the cookie: a user, the epoch it was made in, and when, in milliseconds since 1970."""

    name: str
    epoch: int
    at: int


_decode = msgspec.json.Decoder(Pass).decode


def seal_cookie(ring: KeyRing, account: Account, clock: Clock) -> str:
    """The value of a cookie for a user. It holds until the user is revoked or gets another password, or it is old."""
    now = clock.now()
    told = msgspec.json.encode(Pass(account.user.name, account.epoch, now))
    return ring.seal(PURPOSE, told, now=now / 1000).decode("ascii")


class CookieScheme(Scheme):
    """A cookie that the login page or `dragoman users cookie` made."""

    def __init__(
        self,
        users: UserStore,
        ring: KeyRing,
        clock: Clock,
        *,
        cookie_name: str = NAME,
        max_age: float = MAX_AGE,
    ) -> None:
        # The name of the challenge is no registered one; HTTP wants a 401 to say something.
        challenge = f'Cookie realm="{REALM}", cookie-name="{cookie_name}"'
        card = {"apiKeySecurityScheme": {"location": "cookie", "name": cookie_name}}
        super().__init__("cookie", card, challenge, ambient=True)
        self.cookie_name = cookie_name
        self.max_age = max_age
        self._users = users
        self._ring = ring
        self._clock = clock
        self._recall: Recall[Pass] = Recall(clock, REMEMBERED)

    def seal(self, account: Account) -> str:
        """The value of a cookie for a user."""
        return seal_cookie(self._ring, account, self._clock)

    async def identify(self, request: Presented) -> User | None:
        """See `Scheme.identify`."""
        sealed = cookie(request, self.cookie_name)
        if sealed is None:
            return None
        digest = self._recall.digest(sealed)
        found = self._recall.get(digest)
        if found is None:
            found = self._opened(sealed)
            self._recall.put(digest, found, found.at + self.max_age * 1000)
        account = await self._users.by_name(found.name)
        if account is None or account.epoch != found.epoch:
            user = found.name if account is not None else ""
            raise Denied(f"the cookie {self.cookie_name!r} was revoked: sign in again", cause="revoked", user=user)
        return account.user

    def _opened(self, sealed: str) -> Pass:
        try:
            told = self._ring.unseal(
                PURPOSE, sealed.encode("ascii"), max_age=self.max_age, now=self._clock.now() / 1000
            )
            return _decode(told)
        except (BadSeal, ValueError, msgspec.MsgspecError):
            raise Denied(
                f"the cookie {self.cookie_name!r} is not one of this server, or too old: sign in again",
                cause="bad-cookie",
            ) from None
