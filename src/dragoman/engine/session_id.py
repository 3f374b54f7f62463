"""Session ids: unique per conversation, even when callers choose the same context id."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Scope


def session_id(scope: Scope, context_id: str) -> str:
    """Derive a UUID from the scope and the context id: callers choose context ids, and may choose the same one."""
    identity = msgspec.json.encode([*scope, context_id])
    return str(uuid.UUID(bytes=hashlib.sha256(identity).digest()[:16], version=4))
