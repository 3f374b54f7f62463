"""Authentication of requests, by the schemes of the settings or by a function of the author's own."""

from __future__ import annotations

import asyncio
import inspect
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
    from dragoman.stores.users import Users
    from dragoman.transports.http import AsgiApp, AsgiScope, Header, Receive, Request, Send

logger = logging.getLogger("dragoman.server")
Security = tuple[dict[str, Any], list[dict[str, Any]]]
OPEN: Security = ({}, [])
# The schemes of `Authorization` that browsers send by themselves once a user has signed in.
_BROWSER_SCHEMES = ("", "basic", "digest", "negotiate", "ntlm")


class Authentication:
    """Authenticates with a function of the author's own. It has no login page and nothing on the card.

    A plain `def` runs in a thread, as skills do: it may ask a database without keeping the event loop from others.
    """

    login: Login | None = None

    def __init__(self, function: Callable[[Request], Awaitable[User | None] | User | None]) -> None:
        self._function = function
        self._is_async = any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004

    async def open(self) -> None:
        """Open what it needs. Raises ConfigError."""

    async def close(self) -> None:
        """Release what `open` acquired."""

    async def user(self, request: Request, *, ambient: bool = True) -> User | None:
        """Return the caller; None only where anonymous callers are allowed. `ambient` is as in `identify`.

        Raises:
            Unauthenticated: there is no credential, or it is wrong.
            Unauthorized: the caller may not do this.
            InternalError: the author's function raised an exception.
        """
        user = await self.identify(request, ambient=ambient)
        if user is None:
            raise Unauthenticated
        return user

    async def identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """Return the caller, or None when the request has no credential.

        Without `ambient`, credentials that browsers add by themselves do not count: cookies, Basic, certificates. What
        the function reads is unknown, so then it is called only for an `Authorization` that browsers do not send.

        Raises:
            Unauthenticated: the credential is wrong.
            Unauthorized: the caller may not do this.
            InternalError: the author's function raised an exception.
        """
        if not ambient and not _has_explicit_credential(request):
            return None
        try:
            found = self._function(request) if self._is_async else await asyncio.to_thread(self._call, request)
            user = await found if inspect.isawaitable(found) else found
        except (A2AError, Disconnected):
            raise
        except Exception:
            logger.exception("the function given as auth raised an exception")
            raise InternalError from None
        if user is not None and not user.id.isprintable():  # it names the owner of tasks, in stores and logs
            raise Unauthenticated("the id of the user has characters that cannot be printed")
        return user

    def _call(self, request: Request) -> Awaitable[User | None] | User | None:
        try:
            return self._function(request)
        except StopIteration as error:  # no future can hold it
            raise RuntimeError("the function given as auth raised StopIteration") from error

    async def try_identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """Return who reads the card, or None. Never raises for a wrong credential."""
        return None

    def challenge(self, error: A2AError) -> list[Header]:
        """Return the `WWW-Authenticate` headers for an error."""
        return []

    def security(self) -> Security:
        """Return the security schemes and requirements for the card, in the form of 1.0."""
        return OPEN

    def anonymous_refusal(self) -> Unauthenticated:
        """Build the error for an anonymous caller of an operation that needs authentication."""
        return Unauthenticated(
            f"say who you are, by one of these schemes of the agent's card: {', '.join(self.security()[0])}"
        )


class SchemeAuthentication(Authentication):
    """Authenticates with the schemes of the settings. `allow_anonymous` admits requests without a credential.

    `open_users` returns the users of the store. `address_of` returns the client address of a request, for the limits on
    wrong passwords. `home` is the page after a sign-in, relative to the login page; None for the login page itself.
    """

    def __init__(
        self,
        settings: AuthSettings,
        open_users: Callable[[], Users],
        keys: LazyKeys,
        clock: Clock,
        http: HttpClient,
        *,
        address_of: AddressOf,
        allow_anonymous: bool = False,
        home: str | None = None,
    ) -> None:
        self._settings = settings
        self._open_users = open_users
        self._keys = keys
        self._clock = clock
        self._http = http
        self._address_of = address_of
        self._allow_anonymous = allow_anonymous
        self._home = home
        self._chain: Chain | None = None
        self._users: Users | None = None
        self._passwords: Passwords | None = None

    async def open(self) -> None:
        """Open the users and build the schemes. The store must be open: it creates their tables."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        from dragoman.auth.inbound.chain import Chain
        from dragoman.auth.inbound.config import build_schemes
        from dragoman.auth.inbound.cookie import CookieScheme
        from dragoman.auth.inbound.login import Login
        from dragoman.auth.inbound.passwords import Passwords
        from dragoman.telemetry.audit import Audit

        settings, audit = self._settings, Audit()
        self._users = self._open_users()
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
            self.login = Login(
                self._passwords, cookie, ring, self._clock, audit, address_of=self._address_of, home=self._home
            )

    async def close(self) -> None:
        if self._passwords is not None:
            self._passwords.close()
            self._passwords = None
        if self._users is not None:
            await self._users.close()
            self._users = None
        await self._http.close()

    async def user(self, request: Request, *, ambient: bool = True) -> User | None:
        assert self._chain is not None
        ask = self._chain.identify if self._allow_anonymous else self._chain
        return await ask(request, ambient=ambient)

    async def identify(self, request: Request, *, ambient: bool = True) -> User | None:
        assert self._chain is not None
        return await self._chain.identify(request, ambient=ambient)

    async def try_identify(self, request: Request, *, ambient: bool = True) -> User | None:
        """Return who reads the card; with a wrong credential, None."""
        try:
            return await self.identify(request, ambient=ambient)
        except A2AError:
            return None

    def challenge(self, error: A2AError) -> list[Header]:
        return [] if self._chain is None else self._chain.challenge_headers(error)

    def security(self) -> Security:
        """Return the schemes for the card; where anonymous callers are allowed, none is required."""
        if self._chain is None:
            return OPEN
        schemes, requirements = self._chain.security()
        return schemes, [] if self._allow_anonymous else requirements


def _has_explicit_credential(request: Request) -> bool:
    """True when a request has an `Authorization` that a page of another site cannot make a browser send."""
    return request.headers.get("authorization", "").partition(" ")[0].lower() not in _BROWSER_SCHEMES


def authenticate(
    app: AsgiApp, auth: Authentication, cross_site: CrossSiteCheck, base: Callable[[Request], str], refuse: Refuse
) -> AsgiApp:
    """Authenticate requests. From a foreign page, only credentials count that browsers do not add by themselves."""

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
    """Add challenges to 401 responses for anonymous callers, on a path that refuses these though others admit them."""

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope[REQUEST].user is None:
            send = with_headers(send, auth.challenge(auth.anonymous_refusal()), status=401)
        return app(scope, receive, send)

    return middleware


class AuthSettings(Struct, frozen=True):
    """The enabled schemes with their tables. Paths in these are relative to `base`."""

    names: tuple[str, ...]
    tables: Mapping[str, Mapping[str, Any]] = {}
    base: Path = Path()

    def __str__(self) -> str:
        return " ".join(self.names)
