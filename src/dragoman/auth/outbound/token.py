"""Requests to a token endpoint, and the cache of expiring tokens with one fetch for all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from math import inf, isfinite
from typing import Any, NamedTuple
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import msgspec

from dragoman.auth.outbound.credential import check_sendable
from dragoman.auth.outbound.untrusted import as_object, redact
from dragoman.model.error import AuthError, BadResponse, CannotConnect, DragomanError
from dragoman.model.json import decode_any
from dragoman.net.exchange import HttpClient, HttpRequest

_MAX_RESPONSE = 1024 * 1024
# Seconds without a byte from the token endpoint after which it is given up.
_READ_TIMEOUT = 30.0


class TokenResponse(NamedTuple):
    """The response of a token endpoint. `secrets` are values of the request that must not appear in errors."""

    url: str
    status: int
    body: dict[str, Any]
    secrets: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        """True for a successful response."""
        return 200 <= self.status < 300 and not self.error

    @property
    def error(self) -> str:
        """The OAuth 2 error code; empty when there is none."""
        code = self.body.get("error")
        return code if isinstance(code, str) else ""

    def refusal(self) -> AuthError:
        """Build the error for a response that is not successful."""
        where = redact(self.url.partition("?")[0])
        if 300 <= self.status < 400:
            return AuthError(
                f"no token from {where}: it answers with a redirect ({self.status}), which is not followed"
            )
        if not self.error:
            return AuthError(f"no token from {where}: it answers with HTTP {self.status}")
        described = self.body.get("error_description")
        more = f": {redact(described, self.secrets)}" if isinstance(described, str) and described else ""
        return AuthError(f"no token from {where}: {redact(self.error, self.secrets)}{more}")


async def post_to_issuer(
    http: HttpClient,
    url: str,
    form: dict[str, str],
    *,
    headers: dict[str, str] | None = None,
    connect: float | None = 10.0,
    secrets: Iterable[str] = (),
) -> TokenResponse:
    """Post a form to an issuer and return its response, refusals included.

    Raises:
        AuthError: the response is too large, or successful without a JSON object.
        CannotConnect: the issuer does not answer.
    """
    all_headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    request = HttpRequest(
        "POST",
        url,
        all_headers,
        urlencode(form).encode(),
        operation="token",
        connect_timeout=connect,
        read_timeout=_READ_TIMEOUT,
    )
    try:
        response = await http.send(request)
        status = response.status
        data = await response.read(_MAX_RESPONSE)
    except CannotConnect as error:
        # The request that needs the token was not sent, so it can be retried.
        raise CannotConnect(f"no token: {error}", reason=error.reason, arrived=False) from error
    except BadResponse as error:
        raise AuthError(f"no token from {redact(url.partition('?')[0])}: {error}") from None
    try:
        body = as_object(decode_any(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = {}
    token_response = TokenResponse(url, status, body, tuple(secrets))
    if token_response.is_success and not body:
        raise AuthError(f"no token from {redact(url.partition('?')[0])}: the answer is not a JSON object")
    return token_response


# A token is replaced this long before it expires, so that it does not expire in transit.
_MARGIN = 30.0
_MARGIN_PART = 0.1


class Token(NamedTuple):
    """An access token. `until` is the time to stop using it, `refresh` the refresh token, if any."""

    access: str
    until: float
    refresh: str | None = None


def read_token(response: TokenResponse, requested_at: float, refresh: str | None = None) -> Token:
    """Read the token of a response. `refresh` is kept when the response has no newer refresh token.

    Raises:
        AuthError: the response is a refusal, or the token cannot be sent in a request.
    """
    if not response.is_success:
        raise response.refusal()
    where = redact(response.url.partition("?")[0])
    kind = response.body.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise AuthError(f"the token from {where} is of the type {redact(kind, response.secrets)!r}, not a bearer token")
    access = check_sendable(response.body.get("access_token"), f"access_token from {where}", AuthError)
    newer = response.body.get("refresh_token")
    return Token(access, requested_at + _lifetime(response.body.get("expires_in")), _text(newer) or refresh)


class TokenCache:
    """Caches one token and its refresh token. Concurrent callers share one fetch, and its error if it fails."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._token: Token | None = None
        self._refresh: str | None = None
        self._failures = 0
        self._failure: DragomanError | None = None
        # A lock belongs to one event loop; a credential may be used in several.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def get(self, fetch: Callable[[str | None], Awaitable[Token]]) -> str:
        """Return the token, fetched if need be. `fetch` gets the refresh token, if there is one.

        Raises whatever `fetch` raises.
        """
        if (fresh := self._fresh()) is not None:
            return fresh
        failures_before = self._failures
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if (fresh := self._fresh()) is not None:
                return fresh
            if self._failure is not None and self._failures != failures_before:
                raise copy(self._failure)
            try:
                token = await fetch(self._refresh)
            except DragomanError as error:
                self._failures += 1
                self._failure = copy(error)
                raise
            self._token, self._refresh, self._failure = token, token.refresh, None
            return token.access

    def drop_access_token(self) -> bool:
        """Drop the token. Returns True when there is a refresh token to replace it with."""
        self._token = None
        return self._refresh is not None

    def clear(self) -> None:
        """Drop the token and the refresh token."""
        self._token = self._refresh = None

    def _fresh(self) -> str | None:
        token = self._token
        return token.access if token is not None and self._now() < token.until else None


def _lifetime(expires_in: Any) -> float:
    try:
        seconds = inf if expires_in is None else float(expires_in)
    except (TypeError, ValueError):
        seconds = inf
    if not isfinite(seconds):
        # Without an expiry it is used until the server refuses it.
        return inf
    return max(0.0, seconds - min(_MARGIN, seconds * _MARGIN_PART))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
