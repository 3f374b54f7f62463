"""Who is calling: by the schemes that the settings turn on, or by a function of the author's own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dragoman.model.error import A2AError, InternalError, Unauthenticated
from dragoman.server.http.cross_site import PageOrigin
from dragoman.transports.http import REQUEST, USER, Disconnected, with_headers

if TYPE_CHECKING:
    from dragoman.auth.inbound.chain import Chain
    from dragoman.auth.inbound.login import Login
    from dragoman.auth.inbound.passwords import Passwords
    from dragoman.auth.inbound.scheme import AddressOf
    from dragoman.clock import Clock
    from dragoman.model.user import User
    from dragoman.net.exchange import HttpClient
    from dragoman.server.http.cross_site import CrossSiteCheck
    from dragoman.server.http.lazy import LazyKeys
    from dragoman.server.http.limiter import Refuse
    from dragoman.stores.sqlite.users import SqliteUsers
    from dragoman.transports.http import AsgiApp, AsgiScope, Header, Receive, Request, Send

logger = logging.getLogger("dragoman.server")
Security = tuple[dict[str, Any], list[dict[str, Any]]]
OPEN: Security = ({}, [])
# The words of `Authorization` that browsers send by themselves, once a person has signed in to a site.
_BROWSER_SCHEMES = ("", "basic", "digest", "negotiate", "ntlm")


class Authentication:
    """Asks a function who is calling. It has nothing to open, and says nothing on the card."""

    login: Login | None = None

    def __init__(self, function: Callable[[Request], Awaitable[User | None]]) -> None:
        self._function = function

    async def open(self) -> None:
        """Make ready. Raises ConfigError."""

    async def close(self) -> None:
        """Let go."""

    async def user(self, request: Request, *, ambient: bool = True) -> User | None:
        """Who is calling; None only where strangers are welcome. Without `ambient`, see `identify`.

        Raises:
            Unauthenticated: nobody says, or not convincingly.
            Unauthorized: the caller may not do this.
        """
        user = await self.identify(request, ambient=ambient)
        if user is None:
            raise Unauthenticated
        return user

    async def identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """Who is calling; None when nobody says.

        Without `ambient`, credentials that browsers add by themselves do not count: cookies, Basic, certificates. What
        the function looks at is unknown, so then it is asked only about an `Authorization` that no browser makes.

        Raises:
            Unauthenticated: what is presented is wrong.
            Unauthorized: the caller may not do this.
        """
        if not ambient and not _has_explicit_credential(request):
            return None
        try:
            return await self._function(request)
        except (A2AError, Disconnected):
            raise
        except Exception:
            logger.exception("the function that says who is calling broke")
            raise InternalError from None

    async def try_identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """Who looks at the card, if they say so."""
        return None

    def challenge(self, error: A2AError) -> list[Header]:
        """What a refusal says in `WWW-Authenticate`."""
        return []

    def security(self) -> Security:
        """The schemes and the requirements for the card, in the form of 1.0."""
        return OPEN

    def anonymous_refusal(self) -> Unauthenticated:
        """The error for a stranger who was let in, and asks for what only known callers get."""
        return Unauthenticated(
            f"say who you are, by one of these schemes of the agent's card: {', '.join(self.security()[0])}"
        )


class SchemeAuthentication(Authentication):
    """Asks the schemes of the settings. With `strangers`, who says nothing is let in as nobody.

    `address_of` says where a request comes from, for the limits on wrong passwords.
    """

    def __init__(
        self,
        settings: AuthSettings,
        store: Path | None,
        keys: LazyKeys,
        clock: Clock,
        http: HttpClient,
        *,
        address_of: AddressOf,
        allow_anonymous: bool = False,
    ) -> None:
        self._settings = settings
        self._store = store
        self._keys = keys
        self._clock = clock
        self._http = http
        self._address_of = address_of
        self._allow_anonymous = allow_anonymous
        self._chain: Chain | None = None
        self._users: SqliteUsers | None = None
        self._passwords: Passwords | None = None

    async def open(self) -> None:
        """See `Authentication.open`. The store must be open: users are in the same file."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        from dragoman.auth.inbound.audit import Audit
        from dragoman.auth.inbound.chain import Chain
        from dragoman.auth.inbound.config import build_schemes
        from dragoman.auth.inbound.cookie import CookieScheme
        from dragoman.auth.inbound.login import Login
        from dragoman.auth.inbound.passwords import Passwords
        from dragoman.stores.sqlite.users import SqliteUsers

        settings, audit = self._settings, Audit()
        self._users = SqliteUsers(self._store, self._clock)
        await self._users.open()
        self._passwords = Passwords(self._users, self._clock)
        ring = self._keys.ring if "cookie" in settings.names else None
        schemes = build_schemes(
            settings.names,
            settings.tables,
            self._users,
            ring,
            self._http,
            self._clock,
            passwords=self._passwords,
            base=settings.base,
            address_of=self._address_of,
        )
        self._chain = Chain(schemes, audit)
        cookie = next((scheme for scheme in schemes if isinstance(scheme, CookieScheme)), None)
        if cookie is not None and ring is not None:
            self.login = Login(self._passwords, cookie, ring, self._clock, audit, address_of=self._address_of)

    async def close(self) -> None:
        """See `Authentication.close`."""
        if self._passwords is not None:
            self._passwords.close()
            self._passwords = None
        if self._users is not None:
            await self._users.close()
            self._users = None
        await self._http.close()

    async def user(self, request: Request, *, ambient: bool = True) -> User | None:
        """See `Authentication.user`."""
        assert self._chain is not None
        ask = self._chain.identify if self._allow_anonymous else self._chain
        return await ask(request, ambient=ambient)

    async def identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """See `Authentication.identify`."""
        assert self._chain is not None
        return await self._chain.identify(request, ambient=ambient)

    async def try_identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """See `Authentication.visitor`. Who says something wrong sees what everybody sees."""
        try:
            return await self.identify(request, ambient=ambient)
        except A2AError:
            return None

    def challenge(self, error: A2AError) -> list[Header]:
        """See `Authentication.challenge`."""
        return [] if self._chain is None else self._chain.challenge_headers(error)

    def security(self) -> Security:
        """See `Authentication.security`. Where strangers are welcome, nothing is required."""
        if self._chain is None:
            return OPEN
        schemes, requirements = self._chain.security()
        return schemes, [] if self._allow_anonymous else requirements


def _has_explicit_credential(request: Request) -> bool:
    """True when a request has an `Authorization` that a page elsewhere cannot have its browser send."""
    return request.headers.get("authorization", "").partition(" ")[0].lower() not in _BROWSER_SCHEMES


def authenticate(
    app: AsgiApp, auth: Authentication, cross_site: CrossSiteCheck, base: Callable[[Request], str], refuse: Refuse
) -> AsgiApp:
    """Find out who is calling. Of a foreign page only credentials count that no browser adds by itself."""

    async def identify(request: Request) -> User | None:
        page = cross_site.page_origin(request, base)
        if page is not PageOrigin.FOREIGN:
            return await auth.user(request, ambient=page is PageOrigin.OWN)
        user = await auth.identify(request, ambient=False)
        if user is None:
            raise cross_site.refusal(request)
        return user

    async def middleware(scope: AsgiScope, receive: Receive, send: Send) -> None:
        request: Request = scope[REQUEST]
        try:
            scope[USER] = await identify(request)
        except A2AError as error:
            await refuse(request, send, error)
            return
        except Disconnected:
            return
        await app(scope, receive, send)

    return middleware


def challenge_anonymous(app: AsgiApp, auth: Authentication) -> AsgiApp:
    """Say how to authenticate where an operation is refused to a stranger who was let in for others."""

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope[REQUEST].user is None:
            send = with_headers(send, auth.challenge(auth.anonymous_refusal()), status=401)
        return app(scope, receive, send)

    return middleware


class AuthSettings(Struct, frozen=True):
    """The schemes that are turned on, with their tables. Paths in them are relative to `base`."""

    names: tuple[str, ...]
    tables: Mapping[str, Mapping[str, Any]] = {}
    base: Path = Path()

    def __str__(self) -> str:
        return " ".join(self.names)
