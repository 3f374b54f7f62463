"""One request to a webhook: what it carries so that its receiver can trust it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dragoman.net.exchange import HttpRequest, origin_of

if TYPE_CHECKING:
    from dragoman.engine.ports import Push

IDEMPOTENCY = "Idempotency-Key"
TOKEN = "X-A2A-Notification-Token"  # noqa: S105 - a header's name
SIGNATURE = "X-Dragoman-Signature"
# A receiver's clock may be wrong by some minutes; nothing is repeated with an old signature.
_VALID = 300


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is sealed in the store."""

    token: str | None = None
    scheme: str | None = None
    credentials: str | None = None


class Signer(Protocol):
    """Signs what leaves, with a key whose public half is at `/.well-known/jwks.json`."""

    def sign_jwt(self, claims: dict[str, Any]) -> str:
        """A compact JWT."""
        ...


def letter(
    push: Push,
    secrets: Secrets,
    task_id: str,
    generation: int,
    body: bytes,
    media_type: str,
    *,
    signer: Signer | None,
    issuer: str,
    now: int,
) -> HttpRequest:
    """The request that brings one event to a webhook."""
    key = f"{task_id}/{push.id}/{generation}"
    headers = {"Content-Type": media_type, IDEMPOTENCY: key, "User-Agent": "dragoman"}
    if push.dialect.startswith("1."):
        headers["A2A-Version"] = push.dialect
    if secrets.token:
        headers[TOKEN] = secrets.token
    if secrets.scheme and secrets.credentials:
        headers["Authorization"] = f"{secrets.scheme} {secrets.credentials}"
    if signer is not None:
        claims = {
            "iss": issuer,
            "aud": origin_of(push.url),
            "iat": now,
            "exp": now + _VALID,
            "jti": key,
            "taskId": task_id,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        signed = signer.sign_jwt(claims)
        if "Authorization" in headers:
            headers[SIGNATURE] = signed
        else:
            headers["Authorization"] = f"Bearer {signed}"
    return HttpRequest("POST", push.url, headers, body, operation="Push", connect=10.0, silence=60.0)
