"""The OAuth 2 client credentials grant, and what it shares with the device grant."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from dragoman.auth.outbound.credential import BaseCredential, Secret, check_sendable
from dragoman.auth.outbound.place import put_bearer
from dragoman.auth.outbound.requirement import SchemeRequirement, first_scheme
from dragoman.auth.outbound.token import Token, TokenCache, TokenResponse, post_to_issuer, read_token
from dragoman.auth.outbound.untrusted import as_strings, card_url, configured_url
from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError
from dragoman.net.exchange import HttpClient, HttpRequest


class TokenSource(NamedTuple):
    """The URLs and scopes that a token is requested with. Tokens are cached by source."""

    url: str
    refresh_url: str
    scopes: tuple[str, ...]
    device_url: str = ""


class TokenCredential(BaseCredential):
    """Base class of bearer tokens from an issuer, cached until they expire. `flow` is the name of the flow on cards."""

    __slots__ = ("_caches", "_flow", "_id", "_now", "_scopes", "_token_url")

    def __init__(
        self,
        flow: str,
        client_id: str,
        scopes: Iterable[str] | None,
        token_url: str | None,
        now: Callable[[], float],
    ) -> None:
        self._flow = flow
        self._id = check_sendable(client_id, "client_id", ConfigError)
        self._scopes = read_scopes(scopes)
        self._token_url = None if token_url is None else configured_url(token_url, "token_url")
        self._now = now
        self._caches: dict[TokenSource, TokenCache] = {}

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        source = self._source(request, card)
        cache = self._caches.setdefault(source, TokenCache(self._now))
        timeout = request.connect_timeout
        put_bearer(request, await cache.get(lambda refresh: self._fetch(http, source, refresh, timeout)))

    async def _fetch(self, http: HttpClient, source: TokenSource, refresh: str | None, connect: float | None) -> Token:
        raise NotImplementedError

    def _device_url(self, flow: Mapping[str, Any], request_url: str) -> str:
        return ""

    def _source(self, request: HttpRequest, card: AgentCard | None) -> TokenSource:
        scheme = flow_scheme(card, self._flow)
        flow = scheme.flow(self._flow) if scheme else {}
        scopes = self._scopes if self._scopes is not None else card_scopes(scheme, self._flow)
        device_url = self._device_url(flow, request.url)
        if self._token_url is not None:
            return TokenSource(self._token_url, self._token_url, scopes, device_url)
        url = card_url(flow.get("tokenUrl"), request.url, "token_url")
        refresh = flow.get("refreshUrl")
        refresh_url = card_url(refresh, request.url, "token_url") if refresh else url
        return TokenSource(url, refresh_url, scopes, device_url)


class OAuth2(TokenCredential):
    """Fetches a token with a client id and secret, and caches it until it expires or is refused.

    `env` names an environment variable that holds the secret. `token_url` and `scopes` come from the card if they are
    not passed; the former only if it has the agent's own origin, so that no card can collect secrets.

    Raises:
        ConfigError: a value cannot be sent, or `token_url` is not an https URL.
    """

    __slots__ = ("_audience", "_in_body", "_secret")

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        env: str | None = None,
        scopes: Iterable[str] | None = None,
        token_url: str | None = None,
        audience: str | None = None,
        _now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("clientCredentials", client_id, scopes, token_url, _now)
        # Without a secret it is a public client.
        self._secret = None if client_secret is None and env is None else Secret("client_secret", client_secret, env)
        self._audience = audience
        self._in_body = False

    def reject(self) -> bool:
        for cache in self._caches.values():
            cache.clear()
        return True

    def __repr__(self) -> str:
        return f"OAuth2({self._id!r}, {self._secret!r})" if self._secret else f"OAuth2({self._id!r})"

    async def _fetch(self, http: HttpClient, source: TokenSource, refresh: str | None, connect: float | None) -> Token:
        requested_at = self._now()
        if refresh is not None:
            form = {"grant_type": "refresh_token", "refresh_token": refresh}
            try:
                return read_token(await self._request(http, source.refresh_url, form, connect), requested_at, refresh)
            except AuthError:
                # The refresh token has expired too: start over.
                requested_at = self._now()
        form = {"grant_type": "client_credentials"}
        if source.scopes:
            form["scope"] = " ".join(source.scopes)
        if self._audience:
            form["audience"] = self._audience
        return read_token(await self._request(http, source.url, form, connect), requested_at)

    async def _request(self, http: HttpClient, url: str, form: dict[str, str], connect: float | None) -> TokenResponse:
        """Send the client secret by Basic, which RFC 6749 requires issuers to support; if refused, in the form."""
        public = {**form, "client_id": self._id}
        refresh_tokens = (form.get("refresh_token", ""),)
        if self._secret is None:
            return await post_to_issuer(http, url, public, connect=connect, secrets=refresh_tokens)
        secret = self._secret.read()
        pair = b64encode(f"{quote_plus(self._id)}:{quote_plus(secret)}".encode()).decode()
        secrets = (*refresh_tokens, secret, quote_plus(secret), pair)
        full = {**public, "client_secret": secret}
        if self._in_body:
            return await post_to_issuer(http, url, full, connect=connect, secrets=secrets)
        header = {"Authorization": f"Basic {pair}"}
        response = await post_to_issuer(http, url, form, headers=header, connect=connect, secrets=secrets)
        if response.status == 401 or response.error == "invalid_client":
            response = await post_to_issuer(http, url, full, connect=connect, secrets=secrets)
            self._in_body = response.is_success
        return response


def read_scopes(scopes: Iterable[str] | None) -> tuple[str, ...] | None:
    """Read the scopes that a user passed, as a list or as one string with spaces.

    Raises:
        ConfigError: they are not strings.
    """
    if scopes is None:
        return None
    listed = scopes.split() if isinstance(scopes, str) else list(scopes)
    return tuple(check_sendable(each, "scope", ConfigError) for each in listed)


def flow_scheme(card: AgentCard | None, flow: str) -> SchemeRequirement | None:
    """Return the scheme of a card that has a flow, else one whose scopes apply to any token."""
    return first_scheme(card, lambda scheme: bool(scheme.flow(flow))) or first_scheme(
        card, lambda scheme: scheme.kind in ("oauth2", "openIdConnect")
    )


def card_scopes(scheme: SchemeRequirement | None, flow: str) -> tuple[str, ...]:
    """Return the scopes that a card requires; if it names none, all scopes of the flow."""
    return () if scheme is None else scheme.scopes or as_strings(scheme.flow(flow).get("scopes"))
