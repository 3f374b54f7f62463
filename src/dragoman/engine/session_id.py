"""The id of a conversation that no other caller's conversation has."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Scope


def session_id(scope: Scope, context_id: str) -> str:
    """A UUID for one conversation: callers choose the names of their contexts, and may choose the same."""
    words = msgspec.json.encode([*scope, context_id])
    return str(uuid.UUID(bytes=hashlib.sha256(words).digest()[:16], version=4))
