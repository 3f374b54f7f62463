"""For receivers of webhooks: `verify` checks the signature of a push notification."""

from __future__ import annotations

from dragoman.client.webhook import verify
from dragoman.keys.errors import BadSignature

__all__ = ["BadSignature", "verify"]
