"""Tokens that expire, the issuer that gives them out, and the one fetch that everybody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from math import inf, isfinite
from typing import Any, NamedTuple
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import msgspec

from dragoman.auth.outbound.credential import sendable
from dragoman.auth.outbound.foreign import as_object, shown
from dragoman.model.error import AuthError, BadResponse, CannotConnect, DragomanError
from dragoman.model.json import decode_any
from dragoman.net.exchange import HttpClient, HttpRequest

_LARGEST = 1024 * 1024
# A token is not thought about: who says nothing for this long will not.
_SILENCE = 30.0


class Answer(NamedTuple):
    """What the issuer said. `secrets` are those it was told, and must not be heard from it again."""

    url: str
    status: int
    body: dict[str, Any]
    secrets: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """True when it gave what it was asked for."""
        return 200 <= self.status < 300 and not self.error

    @property
    def error(self) -> str:
        """The word for what is wrong; empty when it has none."""
        said = self.body.get("error")
        return said if isinstance(said, str) else ""

    def refusal(self) -> AuthError:
        """The error that says what the issuer said."""
        where = shown(self.url.partition("?")[0])
        if 300 <= self.status < 400:
            return AuthError(
                f"no token from {where}: it answers with a redirect ({self.status}), which is not followed"
            )
        if not self.error:
            return AuthError(f"no token from {where}: it answers with HTTP {self.status}")
        described = self.body.get("error_description")
        more = f": {shown(described, self.secrets)}" if isinstance(described, str) and described else ""
        return AuthError(f"no token from {where}: {shown(self.error, self.secrets)}{more}")


async def ask_issuer(
    http: HttpClient,
    url: str,
    form: dict[str, str],
    *,
    headers: dict[str, str] | None = None,
    connect: float | None = 10.0,
    secrets: Iterable[str] = (),
) -> Answer:
    """Send a form to the issuer. What it answers, also in refusal, is returned.

    Raises:
        AuthError: the answer is too large, or is none though it is said to be good.
        CannotConnect: nobody answers.
    """
    sent = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    request = HttpRequest(
        "POST", url, sent, urlencode(form).encode(), operation="token", connect_timeout=connect, read_timeout=_SILENCE
    )
    try:
        response = await http.send(request)
        status = response.status
        data = await response.read(_LARGEST)
    except CannotConnect as error:
        # What the token is for was not sent: that can be tried again.
        raise CannotConnect(f"no token: {error}", reason=error.reason, arrived=False) from error
    except BadResponse as error:
        raise AuthError(f"no token from {shown(url.partition('?')[0])}: {error}") from None
    try:
        body = as_object(decode_any(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = {}
    answer = Answer(url, status, body, tuple(secrets))
    if answer.is_good and not body:
        raise AuthError(f"no token from {shown(url.partition('?')[0])}: the answer is not a JSON object")
    return answer


# A token is replaced this long before it expires, so that it does not do so on its way.
_MARGIN = 30.0
_MARGIN_PART = 0.1


class Token(NamedTuple):
    """An access token. `until` is when to stop using it, `refresh` what it can be replaced with."""

    access: str
    until: float
    refresh: str | None = None


def read_token(answer: Answer, asked_at: float, refresh: str | None = None) -> Token:
    """The token in an answer. `refresh` is the one to keep when the answer has no newer.

    Raises:
        AuthError: the answer is a refusal, or the token is none a request can carry.
    """
    if not answer.is_good:
        raise answer.refusal()
    where = shown(answer.url.partition("?")[0])
    kind = answer.body.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise AuthError(f"the token from {where} is of the type {shown(kind, answer.secrets)!r}, not a bearer token")
    access = sendable(answer.body.get("access_token"), f"access_token from {where}", AuthError)
    newer = answer.body.get("refresh_token")
    return Token(access, asked_at + _lifetime(answer.body.get("expires_in")), _text(newer) or refresh)


class TokenKeeper:
    """Keeps one token fresh. However many want it, one fetches it; when that fails, all who waited hear why."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._token: Token | None = None
        self._refresh: str | None = None
        self._failures = 0
        self._failure: DragomanError | None = None
        # A lock belongs to its event loop; a credential may be used in several.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def get(self, fetch: Callable[[str | None], Awaitable[Token]]) -> str:
        """The token, fetched if need be. `fetch` is given the refresh token, if there is one.

        Raises whatever `fetch` raises.
        """
        if (fresh := self._fresh()) is not None:
            return fresh
        seen = self._failures
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if (fresh := self._fresh()) is not None:
                return fresh
            if self._failure is not None and self._failures != seen:
                raise copy(self._failure)
            try:
                token = await fetch(self._refresh)
            except DragomanError as error:
                self._failures += 1
                self._failure = copy(error)
                raise
            self._token, self._refresh, self._failure = token, token.refresh, None
            return token.access

    def drop(self) -> bool:
        """Forget the token. True when there is a refresh token to replace it with."""
        self._token = None
        return self._refresh is not None

    def forget(self) -> None:
        """Forget everything."""
        self._token = self._refresh = None

    def _fresh(self) -> str | None:
        token = self._token
        return token.access if token is not None and self._now() < token.until else None


def _lifetime(said: Any) -> float:
    try:
        seconds = inf if said is None else float(said)
    except (TypeError, ValueError):
        seconds = inf
    if not isfinite(seconds):
        # Not said: it lasts until the server refuses it.
        return inf
    return max(0.0, seconds - min(_MARGIN, seconds * _MARGIN_PART))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
