"""Builds, signs and posts the HTTP request of one webhook delivery."""

from __future__ import annotations

import asyncio
import hashlib
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import msgspec

from dragoman.dialects.table import row_of
from dragoman.model.error import DragomanError, InvalidParams
from dragoman.net.exchange import HttpRequest, origin_of

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.net.exchange import HttpClient

IDEMPOTENCY_HEADER = "Idempotency-Key"
TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 - a header's name
SIGNATURE_HEADER = "X-Dragoman-Signature"
# Who signs, where a server does not know its own URL, at which receivers would find its keys.
ISSUER = "dragoman"
# Seconds a signature is valid: a receiver's clock may be off by minutes. A retry gets a new signature.
_SIGNATURE_SECONDS = 300
# In characters. All of it is stored with the task, and most of it is sent with each event.
_MAX_LENGTHS = {"url": 4096, "id": 256, "token": 4096, "authentication.credentials": 8192}
_SCHEME_WORD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUES = ("token", "authentication.credentials")
# The body of a response is discarded. Up to this much of it is read, so that the connection can be reused.
_DISCARD_BYTES = 64 * 1024
DISCARD_SECONDS = 5.0


class RequestSigner(Protocol):
    """Signs requests with a key whose public half is at `/.well-known/jwks.json`."""

    def sign_jwt(self, claims: dict[str, Any]) -> str:
        """Return a compact JWT with these claims."""
        ...


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """The secrets of a webhook, which the store keeps sealed."""

    token: str | None = None
    scheme: str | None = None
    credentials: str | None = None


def secrets_of(config: TaskPushNotificationConfig) -> Secrets:
    """Return the secrets that a config asks to have sent with every event.

    Raises:
        InvalidParams: a value of the config, its URL and id included, is too long or malformed.
    """
    authentication = config.authentication
    secrets = Secrets(
        config.token,
        authentication.scheme if authentication else None,
        authentication.credentials if authentication else None,
    )
    values = {
        "url": config.url,
        "id": config.id,
        "token": secrets.token,
        "authentication.credentials": secrets.credentials,
    }
    for name, value in values.items():
        if value and len(value) > _MAX_LENGTHS[name]:
            raise InvalidParams(f"a webhook's {name} has {_MAX_LENGTHS[name]} characters at most", field=name)
        if (
            value
            and name in _HEADER_VALUES
            and not (value.isascii() and value.isprintable() and value == value.strip())
        ):
            raise InvalidParams(f"a webhook's {name} goes into a header: it is plain ASCII", field=name)
    if config.id and not config.id.isprintable():
        raise InvalidParams("a webhook's id is one line of text", field="id")
    if secrets.scheme and not _SCHEME_WORD.fullmatch(secrets.scheme):
        raise InvalidParams(
            "a webhook's authentication.scheme is one word, as in Bearer or Basic", field="authentication.scheme"
        )
    return secrets


def post_request(
    url: str,
    body: bytes,
    key: str,
    secrets: Secrets | None = None,
    *,
    media_type: str = "application/json",
    read_timeout: float = 60.0,
) -> HttpRequest:
    """Build the request that posts an event to a webhook. `key` is its idempotency key."""
    headers = {"Content-Type": media_type, IDEMPOTENCY_HEADER: key, "User-Agent": "dragoman"}
    if secrets is not None and secrets.token:
        headers[TOKEN_HEADER] = secrets.token
    if secrets is not None and secrets.scheme and secrets.credentials:
        headers["Authorization"] = f"{secrets.scheme} {secrets.credentials}"
    return HttpRequest("POST", url, headers, body, operation="Push", read_timeout=read_timeout)


def delivery_request(
    push: Push,
    secrets: Secrets,
    task_id: str,
    generation: int,
    body: bytes,
    media_type: str,
    *,
    signer: RequestSigner | None,
    issuer: str,
    now: int,
) -> HttpRequest:
    """Build the signed request that delivers one event of a task to a webhook."""
    # Ids are chosen by callers, so they are escaped in a header.
    key = f"{quote(task_id, safe='')}/{quote(push.id, safe='')}/{generation}"
    request = post_request(push.url, body, key, secrets, media_type=media_type)
    headers = request.headers
    headers |= row_of(push.dialect).headers
    if signer is not None:
        claims = {
            "iss": issuer,
            "aud": origin_of(push.url),
            "iat": now,
            "exp": now + _SIGNATURE_SECONDS,
            "jti": key,
            "taskId": task_id,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        signed = signer.sign_jwt(claims)
        if "Authorization" in headers:
            headers[SIGNATURE_HEADER] = signed
        else:
            headers["Authorization"] = f"Bearer {signed}"
    return request


async def post(http: HttpClient, request: HttpRequest, seconds: float | None = None) -> tuple[int, str]:
    """Send a request to a webhook; return the status and the `Retry-After` header of the response.

    Raises:
        TimeoutError: there is no response within `seconds`.
        CannotConnect: the connection fails.
        AddressForbidden: the guard of the client does not allow the address.
    """
    async with asyncio.timeout(seconds):
        response = await http.send(request)
    try:
        with suppress(DragomanError, TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await response.read(_DISCARD_BYTES)
    finally:
        await response.close()
    return response.status, response.headers.get("Retry-After", "")
