"""OAuth2 for people at a terminal: the device code of RFC 8628."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dragoman.auth.outbound.credential import Unchanging
from dragoman.auth.outbound.foreign import card_address, given_address, shown
from dragoman.auth.outbound.issuer import Answer, ask_issuer
from dragoman.auth.outbound.oauth2 import card_scopes, flow_scheme, read_scopes
from dragoman.auth.outbound.place import put_bearer
from dragoman.auth.outbound.secret import sendable
from dragoman.auth.outbound.token import Token, TokenKeeper, read_token
from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, CannotConnect, ConfigError
from dragoman.net.exchange import HttpClient, HttpRequest

Prompt = Callable[[str, str, str | None], object]

_FLOW = "deviceCode"
_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL = 5.0
_SLOWER = 5.0
# How long a code is good for when the issuer does not say, and the longest anybody is waited for.
_PATIENCE = 1800.0


class _Want(NamedTuple):
    """Where a code and a token come from and what they are for: tokens of different wants are kept apart."""

    device_url: str
    token_url: str
    refresh_url: str
    scopes: tuple[str, ...]


class DeviceCode(Unchanging):
    """Asks a person to allow the access in a browser, waits until they have, and refreshes the token from then on.

    `prompt(verification_uri, user_code, verification_uri_complete)` tells them, as a plain or an async function; the
    last is None when the issuer has no such address. By default it is written to stderr. The addresses are taken from
    the card when they are not given, and only when they are of the agent's own origin.

    Raises:
        ConfigError: a value cannot be sent, or an address is not https.
    """

    __slots__ = ("_device_url", "_id", "_keepers", "_now", "_pause", "_prompt", "_scopes", "_token_url")

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
        self._id = sendable(client_id, "client_id", ConfigError)
        self._scopes = read_scopes(scopes)
        self._device_url = None if device_url is None else given_address(device_url, "device_url")
        self._token_url = None if token_url is None else given_address(token_url, "token_url")
        self._prompt = prompt or _tell
        self._now = _now
        self._pause = _pause
        self._keepers: dict[_Want, TokenKeeper] = {}

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """See `Credential.apply`. Waits for the person, the first time."""
        want = self._want(request, card)
        keeper = self._keepers.setdefault(want, TokenKeeper(self._now))
        put_bearer(request, await keeper.get(lambda refresh: self._fetch(http, want, refresh, request.connect)))

    def reject(self) -> bool:
        """See `Credential.reject`. Without a refresh token it is for the next call to ask the person again."""
        # Every keeper must hear it.
        answers = [keeper.drop() for keeper in self._keepers.values()]
        return any(answers)

    def __repr__(self) -> str:
        return f"DeviceCode({self._id!r})"

    def _want(self, request: HttpRequest, card: AgentCard | None) -> _Want:
        scheme = flow_scheme(card, _FLOW)
        flow = scheme.flow(_FLOW) if scheme else {}
        scopes = self._scopes if self._scopes is not None else card_scopes(scheme, _FLOW)
        device_url = self._device_url or card_address(flow.get("deviceAuthorizationUrl"), request.url, "device_url")
        if self._token_url is not None:
            return _Want(device_url, self._token_url, self._token_url, scopes)
        url = card_address(flow.get("tokenUrl"), request.url, "token_url")
        refresh = flow.get("refreshUrl")
        refresh_url = card_address(refresh, request.url, "token_url") if refresh else url
        return _Want(device_url, url, refresh_url, scopes)

    async def _fetch(self, http: HttpClient, want: _Want, refresh: str | None, connect: float | None) -> Token:
        if refresh is not None:
            form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": self._id}
            asked_at = self._now()
            answer = await ask_issuer(http, want.refresh_url, form, connect=connect, secrets=(refresh,))
            if answer.is_good:
                return read_token(answer, asked_at, refresh)
            # It has expired too, or was taken back: ask the person again.
        return await self._ask_person(http, want, connect)

    async def _ask_person(self, http: HttpClient, want: _Want, connect: float | None) -> Token:
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
        return await self._poll(http, want.token_url, code, interval, deadline, connect)

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
