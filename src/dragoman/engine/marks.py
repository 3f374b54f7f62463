"""What an agent writes on everything it says, for peers that look for it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Marks(Struct, frozen=True):
    """Metadata of an agent's own: `task` is on its tasks and their statuses, `note` on the words of its progress."""

    task: dict[str, Any] = {}
    note: dict[str, Any] = {}
