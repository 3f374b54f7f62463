"""The login page: signing in and out in a browser. The A2A endpoints do not use it.

Forms carry a CSRF token bound to a cookie of the same browser and to its session: a page of another site can make a
browser send a form, but can neither read nor guess that token.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl

from dragoman.auth.inbound.cookie import CookieScheme
from dragoman.auth.inbound.passwords import MAX_LENGTH, WRONG_CREDENTIALS, Passwords
from dragoman.auth.inbound.scheme import AddressOf, InboundRequest, InvalidCredential, client_address, cookie_value
from dragoman.clock import Clock
from dragoman.keys.errors import BadSeal
from dragoman.keys.ring import KeyRing
from dragoman.model.error import Overloaded
from dragoman.model.user import Account, User
from dragoman.telemetry.audit import Audit

_STYLE = (
    "body{font:16px system-ui,sans-serif;max-width:20rem;margin:15vh auto;padding:0 1rem}"
    "label{display:block;margin:1rem 0 .25rem}input{width:100%;box-sizing:border-box;padding:.5rem;font:inherit}"
    "button{margin-top:1.5rem;padding:.5rem 1.5rem;font:inherit}p[role=alert]{color:#b00020}"
)
_DIGEST = b64encode(sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>Sign in</title><style>{style}</style><body>{body}</body></html>"
)
_SIGN_IN = (
    '<h1>Sign in</h1>{problem}<form method="post" action="login"><input type="hidden" name="csrf" value="{token}">'
    '<input type="hidden" name="next" value="{next}">'
    '<label for="name">Name</label><input id="name" name="name" autocomplete="username" required autofocus>'
    '<label for="password">Password</label><input id="password" name="password" type="password" '
    'autocomplete="current-password" required><button>Sign in</button></form>'
)
_SIGNED_IN = (
    "<h1>Signed in</h1><p>You are {name}.</p>{onward}"
    '<form method="post" action="logout"><input type="hidden" name="csrf" value="{token}">'
    "<button>Sign out</button></form>"
)


def sign_in_page(token: str, next_path: str, problem: str = "") -> bytes:
    """Render the form; `problem` says why the last attempt failed."""
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return _page(_SIGN_IN.format(problem=alert, token=escape(token), next=escape(next_path)))


def signed_in_page(name: str, token: str, home: str | None = None) -> bytes:
    """Render the page for users who are signed in, with a link to the console if there is one, and a sign-out."""
    onward = "" if home is None else f'<p><a href="{escape(home)}">Open the console</a></p>'
    return _page(_SIGNED_IN.format(name=escape(name), token=escape(token), onward=onward))


def _page(body: str) -> bytes:
    return _PAGE.format(style=_STYLE, body=body).encode()


Header = tuple[bytes, bytes]
MAX_FORM = 8 * 1024
PURPOSE = "csrf"
FORM_SECONDS = 3600.0
_STALE = "the form is too old or was not ours: try again"
_SAFE_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: with it browsers hide the Origin of a form, which is checked here.
    (b"referrer-policy", b"same-origin"),
)


class LoginResponse(NamedTuple):
    """The HTTP response of the login page."""

    status: int
    headers: list[Header]
    body: bytes
    content_type: bytes = b"text/html; charset=utf-8"


class Login:
    """Handles `GET /login`, `POST /login` and `POST /logout`.

    `secure` says that the browser uses TLS to this server or to a trusted proxy, and `origin` is this server's origin
    as the browser sees it, such as `https://agents.example.com`. `address_of` returns the client address of a request.
    `home` is where a sign-in leads that names no other page, relative to the login page.
    """

    def __init__(
        self,
        passwords: Passwords,
        cookies: CookieScheme,
        ring: KeyRing,
        clock: Clock,
        audit: Audit | None = None,
        *,
        address_of: AddressOf = client_address,
        home: str | None = None,
    ) -> None:
        self._home = home
        self._passwords = passwords
        self._cookies = cookies
        self._ring = ring
        self._clock = clock
        self._audit = audit or Audit()
        self._address_of = address_of

    async def show(self, request: InboundRequest, *, secure: bool) -> LoginResponse:
        """Handle `GET /login`: return the form, or the page of the signed-in user."""
        user = await self._user(request)
        if user is None:
            return self._form(request, 200, self._next_path(request.query.get("next", "")), secure=secure)
        seed, fresh = self._seed(request, secure=secure)
        page = signed_in_page(user.name, self._token(request, seed), self._home)
        return LoginResponse(200, [*_SAFE_HEADERS, *fresh], page)

    async def sign_in(self, request: InboundRequest, body: bytes, *, secure: bool, origin: str) -> LoginResponse:
        """Handle `POST /login`: set the cookie and redirect to `next`, or return the form with what was wrong.

        Raises:
            ServerError: the store is unavailable.
        """
        form = _parse_form(request, body)
        next_path = self._next_path(form.get("next", ""))
        if not self._is_own_form(request, form, secure=secure, origin=origin):
            self._audit.record_denial(scheme="login", reason="csrf", address=client_address(request))
            return self._form(request, 403, next_path, _STALE, secure=secure)
        try:
            account = await self._account(request, form)
        except Overloaded as error:
            response = self._form(request, 429, next_path, str(error), secure=secure)
            response.headers.append((b"retry-after", error.metadata["retryAfter"].encode()))
            return response
        except InvalidCredential as error:
            self._audit.record_denial(
                scheme="login", reason=error.cause, user=error.user, address=client_address(request)
            )
            return self._form(request, 401, next_path, str(error), secure=secure)
        self._audit.record_sign_in(user=account.user.name, address=client_address(request))
        age = int(self._cookies.max_age)
        session_cookie = _set_cookie(self._cookies.cookie_name, self._cookies.seal(account), age, "Lax", secure=secure)
        # The next form gets a new seed: a previous user of this browser may have seen the old one.
        expired_seed = _set_cookie(_seed_name(secure), "", 0, "Strict", secure=secure)
        return _redirect(next_path, [session_cookie, expired_seed])

    async def sign_out(self, request: InboundRequest, body: bytes, *, secure: bool, origin: str) -> LoginResponse:
        """Handle `POST /logout`: expire the browser's cookies."""
        if not self._is_own_form(request, _parse_form(request, body), secure=secure, origin=origin):
            self._audit.record_denial(scheme="logout", reason="csrf", address=client_address(request))
            return self._form(request, 403, "login", _STALE, secure=secure)
        user = await self._user(request)
        if user is not None:
            self._audit.record_sign_out(user=user.name, address=client_address(request))
        return _redirect("login", self.expired_cookies(secure=secure))

    def expired_cookies(self, *, secure: bool) -> list[Header]:
        """Build the headers that end the session of a browser."""
        names = ((self._cookies.cookie_name, "Lax"), (_seed_name(secure), "Strict"))
        return [_set_cookie(name, "", 0, site, secure=secure) for name, site in names]

    def _next_path(self, text: str) -> str:
        """Return where a sign-in leads: a path on this server, else the home, else the login page."""
        return self._home if self._home is not None and text in ("", self._home) else local_path(text)

    async def _account(self, request: InboundRequest, form: dict[str, str]) -> Account:
        name, password = form.get("name", ""), form.get("password", "")
        if not name or not name.isprintable() or len(password) > MAX_LENGTH:
            raise InvalidCredential(WRONG_CREDENTIALS, cause="malformed")
        return await self._passwords.check(name, password, self._address_of(request))

    async def _user(self, request: InboundRequest) -> User | None:
        try:
            return await self._cookies.identify(request)
        except InvalidCredential:  # an old cookie: sign in again
            return None

    def _form(
        self, request: InboundRequest, status: int, next_path: str, problem: str = "", *, secure: bool
    ) -> LoginResponse:
        seed, fresh = self._seed(request, secure=secure)
        page = sign_in_page(self._token(request, seed), next_path, problem)
        return LoginResponse(status, [*_SAFE_HEADERS, *fresh], page)

    def _seed(self, request: InboundRequest, *, secure: bool) -> tuple[str, list[Header]]:
        """Return the sealed seed of the browser's CSRF tokens, and the headers that store a new one."""
        existing = self._read_seed(request, secure=secure)
        if existing is not None:
            return existing, []
        seed = self._ring.seal(PURPOSE, secrets.token_bytes(16), now=self._clock.now() / 1000).decode()
        return seed, [_set_cookie(_seed_name(secure), seed, int(FORM_SECONDS), "Strict", secure=secure)]

    def _read_seed(self, request: InboundRequest, *, secure: bool) -> str | None:
        try:
            seed = cookie_value(request, _seed_name(secure))
            if seed is not None:
                now = self._clock.now() / 1000
                self._ring.unseal(PURPOSE, seed.encode("latin-1"), max_age=FORM_SECONDS, now=now)
        except (InvalidCredential, BadSeal):
            return None
        return seed

    def _token(self, request: InboundRequest, seed: str) -> str:
        """Return the CSRF token for forms of this browser in this session."""
        try:
            session = cookie_value(request, self._cookies.cookie_name) or ""
        except InvalidCredential:
            session = ""
        key = self._ring.subkeys(PURPOSE)[0]
        return hmac.new(key, f"{seed}\0{session}".encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def _is_own_form(self, request: InboundRequest, form: dict[str, str], *, secure: bool, origin: str) -> bool:
        sent_origin = request.headers.get("origin")
        if sent_origin is not None and sent_origin != origin:
            return False
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        seed = self._read_seed(request, secure=secure)
        # Compared even without a seed, so that the time tells nothing.
        expected = self._token(request, seed or "")
        fits = hmac.compare_digest(expected.encode(), form.get("csrf", "").encode("utf-8", "surrogatepass"))
        return fits and seed is not None


def local_path(text: str) -> str:
    """Return the redirect target if it is a path on this server, else that of the login page."""
    plain = text.isascii() and text.isprintable() and not set(text) & set('\\ "<>')
    # Browsers read // as another host, and drop tabs and line breaks before parsing.
    return text if plain and text.startswith("/") and not text.startswith("//") else "login"


def _parse_form(request: InboundRequest, body: bytes) -> dict[str, str]:
    """Parse the fields of a form; empty when the body is no form, too long or repeats a field."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded" or len(body) > MAX_FORM:
        return {}
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError:
        return {}
    form = dict(pairs)
    return form if len(form) == len(pairs) else {}


def _seed_name(secure: bool) -> str:
    # Browsers accept a cookie with this prefix from this exact host only, and only over TLS.
    return "__Host-dragoman-form" if secure else "dragoman-form"


def _set_cookie(name: str, value: str, age: int, same_site: str, *, secure: bool) -> Header:
    secure_attribute = "; Secure" if secure else ""
    text = f"{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite={same_site}{secure_attribute}"
    return b"set-cookie", text.encode("latin-1")


def _redirect(place: str, cookies: Sequence[Header]) -> LoginResponse:
    return LoginResponse(HTTPStatus.SEE_OTHER, [*_SAFE_HEADERS, (b"location", place.encode("ascii")), *cookies], b"")
