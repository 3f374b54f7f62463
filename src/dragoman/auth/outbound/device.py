"""OAuth2 for people at a terminal: the device code of RFC 8628."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from dragoman.auth.outbound.foreign import card_address, given_address, shown
from dragoman.auth.outbound.oauth2 import FetchedToken, Want
from dragoman.auth.outbound.token import Answer, Token, ask_issuer, read_token
from dragoman.model.error import AuthError, CannotConnect
from dragoman.net.exchange import HttpClient

Prompt = Callable[[str, str, str | None], object]

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL = 5.0
_SLOWER = 5.0
# How long a code is good for when the issuer does not say, and the longest anybody is waited for.
_PATIENCE = 1800.0


class DeviceCode(FetchedToken):
    """Asks a person to allow the access in a browser, waits until they have, and refreshes the token from then on.

    `prompt(verification_uri, user_code, verification_uri_complete)` tells them, as a plain or an async function; the
    last is None when the issuer has no such address. By default it is written to stderr. The addresses are taken from
    the card when they are not given, and only when they are of the agent's own origin.

    Raises:
        ConfigError: a value cannot be sent, or an address is not https.
    """

    __slots__ = ("_given_device_url", "_pause", "_prompt")

    def __init__(
        self,
        client_id: str,
        *,
        scopes: Iterable[str] | None = None,
        device_url: str | None = None,
        token_url: str | None = None,
        prompt: Prompt | None = None,
        _now: Callable[[], float] = time.monotonic,
        _pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__("deviceCode", client_id, scopes, token_url, _now)
        self._given_device_url = None if device_url is None else given_address(device_url, "device_url")
        self._prompt = prompt or _tell
        self._pause = _pause

    def reject(self) -> bool:
        """See `Credential.reject`. Without a refresh token it is for the next call to ask the person again."""
        # Every keeper must hear it.
        answers = [keeper.drop() for keeper in self._keepers.values()]
        return any(answers)

    def __repr__(self) -> str:
        return f"DeviceCode({self._id!r})"

    def _device_url(self, flow: Mapping[str, Any], request_url: str) -> str:
        said = flow.get("deviceAuthorizationUrl")
        return self._given_device_url or card_address(said, request_url, "device_url")

    async def _fetch(self, http: HttpClient, want: Want, refresh: str | None, connect: float | None) -> Token:
        if refresh is not None:
            form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": self._id}
            asked_at = self._now()
            answer = await ask_issuer(http, want.refresh_url, form, connect=connect, secrets=(refresh,))
            if answer.is_good:
                return read_token(answer, asked_at, refresh)
            # It has expired too, or was taken back: ask the person again.
        return await self._ask_person(http, want, connect)

    async def _ask_person(self, http: HttpClient, want: Want, connect: float | None) -> Token:
        form = {"client_id": self._id}
        if want.scopes:
            form["scope"] = " ".join(want.scopes)
        started = self._now()
        answer = await ask_issuer(http, want.device_url, form, connect=connect)
        if not answer.is_good:
            raise answer.refusal()
        code = _text(answer, "device_code")
        said = self._prompt(_link(answer), _text(answer, "user_code"), _complete_link(answer))
        if inspect.isawaitable(said):
            await said
        interval = max(1.0, _seconds(answer.body.get("interval"), _INTERVAL))
        deadline = started + min(_PATIENCE, _seconds(answer.body.get("expires_in"), _PATIENCE))
        return await self._poll(http, want.url, code, interval, deadline, connect)

    async def _poll(
        self, http: HttpClient, url: str, code: str, interval: float, deadline: float, connect: float | None
    ) -> Token:
        form = {"grant_type": _GRANT, "device_code": code, "client_id": self._id}
        while True:
            await self._pause(min(interval, max(0.0, deadline - self._now())))
            asked_at = self._now()
            if asked_at >= deadline:
                raise AuthError("nobody allowed the access in time: the code has expired")
            try:
                answer = await ask_issuer(http, url, form, connect=connect, secrets=(code,))
            except CannotConnect:
                # The person may be about to allow it; a network that comes back must not cost them that.
                interval *= 2
                continue
            if answer.error == "slow_down" or answer.status == 429:
                interval += _SLOWER
            elif answer.status >= 500:
                interval *= 2
            elif answer.error == "access_denied":
                raise AuthError("the access was not allowed (access_denied)")
            elif answer.error == "expired_token":
                raise AuthError("nobody allowed the access in time: the code has expired (expired_token)")
            elif answer.error != "authorization_pending":
                return read_token(answer, asked_at)


def _tell(link: str, code: str, complete_link: str | None) -> None:
    shortcut = f"\nor open {complete_link}" if complete_link else ""
    sys.stderr.write(f"To allow the access, open {link} and enter the code {code}{shortcut}\n")
    sys.stderr.flush()


def _link(answer: Answer) -> str:
    # Some issuers kept the name of an early draft.
    link = _web_link(answer.body.get("verification_uri") or answer.body.get("verification_url"))
    if link is None:
        raise AuthError(f"{shown(answer.url.partition('?')[0])} gives no web address to allow the access at")
    return link


def _complete_link(answer: Answer) -> str | None:
    return _web_link(answer.body.get("verification_uri_complete"))


def _web_link(said: object) -> str | None:
    # It is put before a person, in a terminal: nothing but a web address will do.
    if not isinstance(said, str) or not said.isprintable() or len(said) > 2000:
        return None
    try:
        return said if urlsplit(said).scheme in ("https", "http") else None
    except ValueError:
        return None


def _text(answer: Answer, key: str) -> str:
    said = answer.body.get(key)
    if not isinstance(said, str) or not said or not said.isprintable():
        raise AuthError(f"{shown(answer.url.partition('?')[0])} gives no {key}")
    return said


def _seconds(said: Any, usual: float) -> float:
    return float(said) if isinstance(said, (int, float)) and 0 < said < float("inf") else usual
