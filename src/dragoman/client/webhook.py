"""The receiving side of webhooks: verifies and parses webhook requests."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from dragoman.client.event import Event, NumberedEvent, TaskAssembler
from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v1.dialect import V1_1
from dragoman.keys.base64url import from_base64url
from dragoman.keys.errors import BadSignature
from dragoman.model.error import BadResponse, CannotConnect, ConfigError
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.task import Task
from dragoman.net.exchange import is_loopback, redact_url


class _Items(Protocol):
    """The headers object of a web framework, which need not be a Mapping."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return pairs of names and values."""
        ...


Headers = _Items | Iterable[tuple[bytes, bytes]]

SIGNATURE = "x-dragoman-signature"
TOKEN = "x-a2a-notification-token"  # noqa: S105 - a header's name
_BODY_CLAIM = "request_body_sha256"
_ENVELOPE = ("task", "message", "statusUpdate", "artifactUpdate")
_KEYS_TTL = 300.0
# An unknown key id may be a new key: the keys are fetched again, but not for every forged token.
_REFETCH_PAUSE = 10.0
_FETCH_TIMEOUT = 10.0
_MAX_BYTES = 1_000_000


class _CachedJwks(NamedTuple):
    jwks: Mapping[str, Any]
    fetched_at: float


_key_cache: dict[str, _CachedJwks] = {}
_fetch_lock = threading.Lock()


def verify(
    headers: Headers,
    body: bytes,
    *,
    jwks_url: str | None = None,
    token: str | None = None,
    jwks: Mapping[str, Any] | None = None,
    audience: str | None = None,
    now: float | None = None,
) -> Event:
    """Verify a webhook request and return its event.

    With `jwks_url`, or the keys themselves as `jwks`, the signature must be valid, unexpired and over this body; with
    `audience`, it must also be issued for this receiver: scheme, host and port, as in `https://hooks.example.com:443`.
    With `token`, the request must carry the token the webhook was registered with. Keys are cached for five minutes;
    fetching them blocks, so call this through `asyncio.to_thread` in async code. `now` is seconds since
    1970, for tests.

    A webhook may be delivered twice: deduplicate by the header `Idempotency-Key`.

    Raises:
        BadSignature: the request is not authentic; discard it.
        BadResponse: the body is not an A2A event.
        CannotConnect: the keys cannot be fetched now; answer 503 and the webhook is delivered again.
        ConfigError: none of `jwks_url`, `jwks` and `token` is given, or `jwks_url` is not an http(s) URL.
    """
    if jwks_url is None and jwks is None and token is None:
        raise ConfigError("verify needs something to check with: jwks_url=, jwks= or token=")
    values = _lowercase(headers)
    if token is not None and not hmac.compare_digest(values.get(TOKEN, "").encode(), token.encode()):
        raise BadSignature("the webhook has another token, or none")
    key = values.get("idempotency-key", "")
    if jwks_url is not None or jwks is not None:
        signed = signature_of(values)
        if signed is None:
            raise BadSignature("the webhook is not signed", reason="NOT_SIGNED")
        claims = _verify_claims(signed, jwks_url, jwks, audience, now)
        digest = hashlib.sha256(body).hexdigest()
        if not hmac.compare_digest(str(claims.get(_BODY_CLAIM)), digest):
            raise BadSignature("the body of the webhook is not the one that was signed")
        key = str(claims.get("jti") or key)
    return parse_event(body, key)


def signature_of(headers: Headers) -> str | None:
    """Return the signed token of a webhook request, or None."""
    values = _lowercase(headers)
    if SIGNATURE in values:
        return values[SIGNATURE].strip()
    scheme, _, value = values.get("authorization", "").strip().partition(" ")
    # The webhook's own credentials may be a Bearer token too, but not one with three parts.
    return value.strip() if scheme.lower() == "bearer" and value.count(".") == 2 else None


def issuer_of(headers: Headers) -> str:
    """Return the issuer that a webhook claims, unverified; empty when it claims none."""
    return _unverified_claim(signature_of(headers) or "", "iss")


def parse_event(body: bytes, key: str = "") -> Event:
    """Parse the body of a webhook of any version. Raises BadResponse."""
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        raise BadResponse("the body of the webhook is not JSON") from None
    if not isinstance(decoded, dict):
        raise BadResponse("the body of the webhook is not a JSON object")
    data = cast("dict[str, Any]", decoded)
    last = key.rpartition("/")[2]
    number = int(last) if last.isascii() and last.isdecimal() and len(last) < 16 else 0
    payload = _parse_payload(data)
    task_id = payload.id if isinstance(payload, Task) else payload.task_id
    if not task_id and not isinstance(payload, Message):
        raise BadResponse("the body of the webhook is no event of a task")
    return TaskAssembler().add(NumberedEvent(number, payload))


def _parse_payload(data: dict[str, Any]) -> Task | Message | StatusUpdate | ArtifactUpdate:
    if any(name in data for name in _ENVELOPE):
        return V1_1.read_event(data).payload
    if "kind" in data:
        return V03_RPC.read_event(data).payload
    state = (
        cast("dict[str, Any]", data.get("status") or {}).get("state") if isinstance(data.get("status"), dict) else ""
    )
    return V1_1.read_task(data) if str(state).startswith("TASK_STATE_") else V01_RPC.read_task(data)


def _verify_claims(
    signed: str, jwks_url: str | None, jwks: Mapping[str, Any] | None, audience: str | None, now: float | None
) -> dict[str, Any]:
    from dragoman.keys.signer import verify_jwt

    def check(keys: Mapping[str, Any]) -> dict[str, Any]:
        expected = audience if audience is not None else _unverified_claim(signed, "aud") or None
        return verify_jwt(signed, keys, audience=expected, required=("exp", _BODY_CLAIM), now=now)

    if jwks is not None:
        return check(jwks)
    assert jwks_url is not None
    keys = _cached_keys(jwks_url, _KEYS_TTL)
    try:
        return check(keys)
    except BadSignature as error:
        if error.reason != "UNKNOWN_KEY":
            raise
    return check(_cached_keys(jwks_url, _REFETCH_PAUSE))


def _unverified_claim(signed: str, name: str) -> str:
    """Return a claim of a token whose signature has not been verified; empty when there is none."""
    try:
        value = json.loads(from_base64url(signed.split(".")[1])).get(name)
        first = cast("list[Any]", value)[0] if isinstance(value, list) else value
        return "" if first is None else str(first)
    except (ValueError, IndexError, AttributeError, RecursionError):
        return ""


def _cached_keys(url: str, age: float) -> Mapping[str, Any]:
    with _fetch_lock:
        cached = _key_cache.get(url)
        if cached is None or time.monotonic() - cached.fetched_at > age:
            cached = _key_cache[url] = _CachedJwks(_fetch_keys(url), time.monotonic())
        return cached.jwks


def _fetch_keys(url: str) -> dict[str, Any]:
    from http.client import HTTPException
    from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"jwks_url is an http or https URL, not {redact_url(url)}")
    # No handlers for redirects, files or cookies. The environment's proxy is not used for loopback addresses.
    opener = OpenerDirector()
    for handler in (ProxyHandler({} if is_loopback(url) else None), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    try:
        with opener.open(Request(url, headers={"Accept": "application/json"}), timeout=_FETCH_TIMEOUT) as response:  # noqa: S310
            if response.status != 200:
                raise CannotConnect(
                    f"the keys at {redact_url(url)} cannot be fetched: HTTP {response.status}", reason="HTTP"
                )
            body = response.read(_MAX_BYTES + 1)
    except (OSError, HTTPException) as error:
        cause: Any = getattr(error, "reason", error)  # urllib's own text is `<urlopen error …>`
        text = getattr(cause, "strerror", None) or cause
        raise CannotConnect(f"the keys at {redact_url(url)} cannot be fetched: {text}") from error
    try:
        keys = json.loads(body) if len(body) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, dict):
        raise CannotConnect(f"what is at {redact_url(url)} is no key set", reason="NOT_A_KEY_SET")
    return cast("dict[str, Any]", keys)


def _lowercase(headers: Headers) -> dict[str, str]:
    items = getattr(headers, "items", None)
    pairs = cast("Iterable[tuple[Any, Any]]", items() if items is not None else headers)
    return {_text(name).lower(): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
