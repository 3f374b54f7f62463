"""For those who receive webhooks: `verify` checks that one comes from the server it should come from."""

from __future__ import annotations

from dragoman.client.webhook import verify
from dragoman.keys.errors import BadSignature

__all__ = ["BadSignature", "verify"]
