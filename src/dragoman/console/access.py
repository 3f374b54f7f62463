"""Who looks at the console: by its token, which a cookie then stands for, or as a user of the agent."""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote, urlsplit

from dragoman.model.user import User

if TYPE_CHECKING:
    from dragoman.transports.http import Header, Request

ConsoleMode = Literal["token", "auth", "off"]
ADMIN = "admin"
"""The permission of users who see the tasks of all and the server."""
_COOKIE = "dragoman-console"
_TOKEN_BYTES = 24


class Viewer(NamedTuple):
    """Who made a request to the console; without a token and a user, somebody who sees only what is public.

    `token` is True for who has opened the console with its token. `admin` sees the tasks of all and the server.
    """

    user: User | None = None
    admin: bool = False
    token: bool = False


def new_token() -> str:
    """Return a random token for the console."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class ConsoleAddress(NamedTuple):
    """Where the console is: the server for this machine (`local`), the page, and the page with its token (`url`)."""

    local: str
    page: str
    url: str

    @classmethod
    def of(cls, token: str | None, local: str, public: str | None = None) -> ConsoleAddress:
        """Return the addresses of a server that listens at `local`, for browsers perhaps at a public URL."""
        # Cookies and origins are those of the public URL, so nothing else works in a browser.
        page = f"{public or local}/"
        return cls(local, page, page if token is None else f"{page}?token={quote(token, safe='')}")


class ConsoleAccess:
    """Tells who a viewer is. Without a token, or where sign-in decides, only users count.

    The cookie does not hold the token but proves that its browser had it: it is worth nothing after the next start.
    """

    def __init__(self, mode: Literal["token", "auth"], token: str | None = None) -> None:
        self.mode = mode
        self._token = token.encode() if token is not None and mode == "token" else None
        proof = b"" if self._token is None else hmac.digest(self._token, b"console cookie", sha256)
        self._proof = proof.hex()

    def accepts(self, token: str) -> bool:
        """True for the token of the console; the time it takes tells nothing about it."""
        sent = token.encode("utf-8", "surrogatepass")
        return hmac.compare_digest(sha256(sent).digest(), sha256(self._token or b"").digest()) and bool(self._token)

    def viewer(self, request: Request, base: str, user: User | None) -> Viewer:
        """Return who made a request; `base` is the URL of the app for its browser, `user` who it is for the agent."""
        # Another site may have planted a second cookie of that name, which then proves nothing.
        has_token = self._token is not None and any(
            hmac.compare_digest(value.encode("latin-1", "replace"), self._proof.encode())
            for value in _cookies_of(request, cookie_name(base))
        )
        return Viewer(user, has_token or (user is not None and ADMIN in user.permissions), has_token)

    def cookie(self, base: str) -> Header:
        """Build the header that gives a browser the cookie, for the paths of the API only."""
        return _set_cookie(base, self._proof)

    def expired_cookie(self, base: str) -> Header:
        """Build the header that takes the cookie away."""
        return _set_cookie(base, "", "; Max-Age=0")


def cookie_name(base: str) -> str:
    """Return the name of the cookie: browsers do not keep the cookies of two ports apart."""
    parts = urlsplit(base)
    try:
        port = parts.port
    except ValueError:  # a caller chooses the Host, and no browser has one with such a port
        port = None
    return f"{_COOKIE}-{port or (443 if parts.scheme == 'https' else 80)}"


def _set_cookie(base: str, value: str, more: str = "") -> Header:
    parts = urlsplit(base)
    secure = "; Secure" if parts.scheme == "https" else ""
    path = f"{quote(parts.path.rstrip('/'), safe='/%')}/console"
    text = f"{cookie_name(base)}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}{more}"
    return b"set-cookie", text.encode("latin-1", "replace")


def _cookies_of(request: Request, name: str) -> list[str]:
    """Return the values of the cookies of a name."""
    # Over HTTP/2 each cookie may have a header of its own, and those are joined by commas.
    pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").replace(",", ";").split(";"))
    return [value for key, _, value in pairs if key == name]
