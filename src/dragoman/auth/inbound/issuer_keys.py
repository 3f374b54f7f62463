"""The public keys that tokens are verified with: from a file, or fetched from the issuer and cached."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, cast

import msgspec

from dragoman.clock import Clock, wait
from dragoman.engine.shielded import shielded
from dragoman.model.error import BadResponse, CannotConnect, ConfigError, ServerError, TimedOut
from dragoman.model.json import decode_any
from dragoman.net.exchange import HttpClient, HttpRequest, is_loopback, redact_url

logger = logging.getLogger("dragoman.auth")

Json = dict[str, Any]
# The least time between fetches that an unknown key id triggers: anybody can send one.
REFRESH_MS = 30_000
# The delay before a failed fetch is retried.
RETRY_MS = 5_000
# How long fetched keys are used: a key that the issuer has withdrawn must stop working.
MAX_AGE_MS = 3_600_000
# How long keys are used while the issuer does not answer.
STALE_MS = 24 * 3_600_000
# How long a fetch may take as a whole: an issuer that sends a byte now and then keeps nobody waiting longer.
FETCH_SECONDS = 20.0
MAX_DOCUMENT = 1024 * 1024
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 10.0


class IssuerKeys(Protocol):
    """A key set that may change. `version` changes with it."""

    @property
    def version(self) -> int:
        """A number that changes whenever the keys change."""
        ...

    async def current(self, kid: str) -> Json:
        """Return the key set to look up a key id in. Raises ServerError when none is available."""
        ...

    async def refresh(self) -> Json | None:
        """Fetch the key set again because a key id is missing. None when there is nothing newer to try."""
        ...


class StaticKeys:
    """Keys from a file, which never change. Without `has_kid` they match whatever key id a token names."""

    version = 0

    def __init__(self, jwks: Json, *, has_kid: bool = True) -> None:
        self._jwks = jwks
        self._has_kid = has_kid

    async def current(self, kid: str) -> Json:
        """Return the key set."""
        return self._jwks if self._has_kid else {"keys": [{**each, "kid": kid} for each in self._jwks["keys"]]}

    async def refresh(self) -> Json | None:
        """Return None: a file is not fetched again."""
        return None


class FetchedKeys:
    """Keys from a URL, fetched when first needed, once an hour, and when a key id is missing.

    With an `issuer`, the URL is that of the issuer's metadata document, which names the URL of its keys.
    """

    def __init__(self, http: HttpClient, url: str, clock: Clock, issuer: str | None = None) -> None:
        self._http = http
        self._url = url
        self._issuer = issuer
        self._clock = clock
        self._jwks: Json | None = None
        self._fetched_at = 0
        self._requested_at = -STALE_MS
        self._lock = asyncio.Lock()
        self.version = 0

    async def current(self, kid: str) -> Json:
        """Return the key set, fetched if need be.

        Raises:
            ServerError: there is none yet, or it is too old, and the issuer does not answer.
        """
        now = self._clock.now()
        jwks = self._jwks
        if jwks is not None and (now - self._fetched_at < MAX_AGE_MS or not self._may_fetch(now)):
            return self._check_age(jwks, now)
        await self._fetch(now)
        if self._jwks is None:
            raise ServerError("the keys of the issuer of tokens are not available now: the log says why")
        return self._check_age(self._jwks, now)

    async def refresh(self) -> Json | None:
        """Fetch the key set again. None when that was done less than 30 s ago, fails, or returns the same keys."""
        now = self._clock.now()
        if not self._may_fetch(now) and not self._lock.locked():
            return None
        before = self.version
        await self._fetch(now)
        return self._jwks if self.version != before else None

    def _may_fetch(self, now: int) -> bool:
        return now - self._requested_at >= REFRESH_MS

    def _check_age(self, jwks: Json, now: int) -> Json:
        if now - self._fetched_at >= STALE_MS:
            raise ServerError("the keys of the issuer of tokens are too old: the log says why")
        return jwks

    async def _fetch(self, now: int) -> None:
        """Fetch the keys once for all waiting callers. A failure is logged and not retried for a while.

        It goes on when the caller who began it hangs up: else anybody could keep the others from their keys.
        """
        await shielded(self._fetch_once(now))

    async def _fetch_once(self, now: int) -> None:
        async with self._lock:
            if not self._may_fetch(now):
                return
            self._requested_at = now
            try:
                jwks = await self._fetch_in_time()
            except (CannotConnect, BadResponse) as error:
                logger.warning("no keys from the issuer of tokens: %s", error)
                self._requested_at = now - REFRESH_MS + RETRY_MS
                return
            self._fetched_at = now
            if jwks != self._jwks:
                self._jwks = jwks
                self.version += 1

    async def _fetch_in_time(self) -> Json:
        fetching = asyncio.create_task(self._fetch_key_set())
        try:
            if not await wait(self._clock, fetching, FETCH_SECONDS):
                raise TimedOut(f"{redact_url(self._url)} did not answer within {FETCH_SECONDS:g} s")
            return fetching.result()
        finally:
            if not fetching.done():
                fetching.cancel()
                await asyncio.gather(fetching, return_exceptions=True)

    async def _fetch_key_set(self) -> Json:
        url = await self._jwks_url()
        jwks = await fetch_object(self._http, url)
        if not isinstance(jwks.get("keys"), list):
            raise BadResponse(f"{redact_url(url)} has no list of keys")
        return jwks

    async def _jwks_url(self) -> str:
        """Return the URL of the keys, from the metadata document if there is an issuer.

        Raises:
            CannotConnect: the issuer does not answer.
            BadResponse: the document is not a JSON object, names another issuer, or has no secure `jwks_uri`.
        """
        if self._issuer is None:
            return self._url
        document = await fetch_object(self._http, self._url)
        if document.get("issuer") != self._issuer:
            raise BadResponse(f"{redact_url(self._url)} speaks for another issuer than {self._issuer}")
        found = document.get("jwks_uri")
        if not isinstance(found, str) or not is_secure_url(found):
            raise BadResponse(f"{redact_url(self._url)} has no jwks_uri that begins with https://")
        return found


async def fetch_object(http: HttpClient, url: str) -> Json:
    """Fetch a JSON object.

    Raises:
        CannotConnect: the server does not answer.
        BadResponse: the status is not 200 (redirects are not followed), or the body is too large or not a JSON object.
    """
    request = HttpRequest(
        "GET", url, {"Accept": "application/json"}, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS
    )
    response = await http.send(request)
    try:
        if response.status != 200:
            raise BadResponse(f"{redact_url(url)} answers with HTTP {response.status}", status=response.status)
        body: Any = decode_any(await response.read(MAX_DOCUMENT))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadResponse(f"the answer of {redact_url(url)} is not JSON") from None
    finally:
        await response.close()
    if not isinstance(body, dict):
        raise BadResponse(f"the answer of {redact_url(url)} is not a JSON object")
    return cast("Json", body)


def is_secure_url(url: str) -> bool:
    """True for https, and for http to this machine: nobody on the way can change the response."""
    return url.startswith("https://") or (url.startswith("http://") and is_loopback(url))


def require_secure_url(url: str, source: str) -> str:
    """Return a URL from the settings. Raises ConfigError when it is neither https nor http to this machine."""
    if not is_secure_url(url):
        raise ConfigError(f"{source}: must begin with https:// (http:// on this machine only)")
    return url
