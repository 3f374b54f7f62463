"""Tokens that expire, and the one fetch that everybody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from math import inf, isfinite
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from dragoman.auth.outbound.foreign import shown
from dragoman.auth.outbound.issuer import Answer
from dragoman.auth.outbound.secret import sendable
from dragoman.model.error import AuthError, DragomanError

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
