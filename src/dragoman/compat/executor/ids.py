"""Unique ids for messages, tasks and contexts."""

from __future__ import annotations

from uuid import uuid4


def new_id() -> str:
    """Return a random UUID (version 4) as text."""
    return str(uuid4())
