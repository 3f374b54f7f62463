"""Unique ids."""

from __future__ import annotations

from uuid import uuid4


def new_id() -> str:
    """A new UUID, version 4, in its usual spelling."""
    return str(uuid4())
