"""The OAuth 2 device authorization grant (RFC 8628), for people at a terminal."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from dragoman.auth.outbound.oauth2 import TokenCredential, TokenSource
from dragoman.auth.outbound.token import Token, TokenResponse, post_to_issuer, read_token
from dragoman.auth.outbound.untrusted import card_url, configured_url, redact
from dragoman.model.error import AuthError, CannotConnect
from dragoman.net.exchange import HttpClient

Prompt = Callable[[str, str, str | None], object]

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DEFAULT_INTERVAL = 5.0
_SLOW_DOWN_SECONDS = 5.0
# The lifetime of a code when the issuer does not say, and the longest wait for the user.
_MAX_WAIT = 1800.0


class DeviceCode(TokenCredential):
    """Asks the user to authorize in a browser, waits until they have, and refreshes the token from then on.

    `prompt(verification_uri, user_code, verification_uri_complete)` is a plain or async function that shows them the
    code; the last argument is None when the issuer has no such URL. The default writes to stderr. URLs that are not
    passed come from the card, and only if they have the agent's own origin.

    Raises:
        ConfigError: a value cannot be sent, or a URL is not https.
    """

    __slots__ = ("_configured_device_url", "_pause", "_prompt")

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
        self._configured_device_url = None if device_url is None else configured_url(device_url, "device_url")
        self._prompt = prompt or _print_prompt
        self._pause = _pause

    def reject(self) -> bool:
        """Drop the tokens. Returns True only with a refresh token; else the next call asks the user again."""
        # Every cache must be cleared, so no short-circuit.
        retries = [cache.drop_access_token() for cache in self._caches.values()]
        return any(retries)

    def __repr__(self) -> str:
        return f"DeviceCode({self._id!r})"

    def _device_url(self, flow: Mapping[str, Any], request_url: str) -> str:
        card_value = flow.get("deviceAuthorizationUrl")
        return self._configured_device_url or card_url(card_value, request_url, "device_url")

    async def _fetch(self, http: HttpClient, source: TokenSource, refresh: str | None, connect: float | None) -> Token:
        if refresh is not None:
            form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": self._id}
            requested_at = self._now()
            response = await post_to_issuer(http, source.refresh_url, form, connect=connect, secrets=(refresh,))
            if response.is_success:
                return read_token(response, requested_at, refresh)
            # The refresh token has expired or was revoked: ask the user again.
        return await self._ask_user(http, source, connect)

    async def _ask_user(self, http: HttpClient, source: TokenSource, connect: float | None) -> Token:
        form = {"client_id": self._id}
        if source.scopes:
            form["scope"] = " ".join(source.scopes)
        started = self._now()
        response = await post_to_issuer(http, source.device_url, form, connect=connect)
        if not response.is_success:
            raise response.refusal()
        code = _text(response, "device_code")
        result = self._prompt(_link(response), _text(response, "user_code"), _complete_link(response))
        if inspect.isawaitable(result):
            await result
        interval = max(1.0, _seconds(response.body.get("interval"), _DEFAULT_INTERVAL))
        deadline = started + min(_MAX_WAIT, _seconds(response.body.get("expires_in"), _MAX_WAIT))
        return await self._poll(http, source.url, code, interval, deadline, connect)

    async def _poll(
        self, http: HttpClient, url: str, code: str, interval: float, deadline: float, connect: float | None
    ) -> Token:
        form = {"grant_type": _GRANT, "device_code": code, "client_id": self._id}
        while True:
            await self._pause(min(interval, max(0.0, deadline - self._now())))
            requested_at = self._now()
            if requested_at >= deadline:
                raise AuthError("nobody allowed the access in time: the code has expired")
            try:
                response = await post_to_issuer(http, url, form, connect=connect, secrets=(code,))
            except CannotConnect:
                # The user may be about to authorize: a network outage must not end the attempt.
                interval *= 2
                continue
            if response.error == "slow_down" or response.status == 429:
                interval += _SLOW_DOWN_SECONDS
            elif response.status >= 500:
                interval *= 2
            elif response.error == "access_denied":
                raise AuthError("the access was not allowed (access_denied)")
            elif response.error == "expired_token":
                raise AuthError("nobody allowed the access in time: the code has expired (expired_token)")
            elif response.error != "authorization_pending":
                return read_token(response, requested_at)


def _print_prompt(link: str, code: str, complete_link: str | None) -> None:
    shortcut = f"\nor open {complete_link}" if complete_link else ""
    sys.stderr.write(f"To allow the access, open {link} and enter the code {code}{shortcut}\n")
    sys.stderr.flush()


def _link(response: TokenResponse) -> str:
    # Some issuers use the name of an early draft.
    link = _web_link(response.body.get("verification_uri") or response.body.get("verification_url"))
    if link is None:
        raise AuthError(f"{redact(response.url.partition('?')[0])} gives no web address to allow the access at")
    return link


def _complete_link(response: TokenResponse) -> str | None:
    return _web_link(response.body.get("verification_uri_complete"))


def _web_link(value: object) -> str | None:
    # It is printed to a terminal: nothing but a web URL will do.
    if not isinstance(value, str) or not value.isprintable() or len(value) > 2000:
        return None
    try:
        return value if urlsplit(value).scheme in ("https", "http") else None
    except ValueError:
        return None


def _text(response: TokenResponse, key: str) -> str:
    value = response.body.get(key)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise AuthError(f"{redact(response.url.partition('?')[0])} gives no {key}")
    return value


def _seconds(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and 0 < value < float("inf") else default
