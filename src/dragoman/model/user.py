"""Who is calling."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class User(Struct, frozen=True):
    """An authenticated caller. Tasks belong to `id`; `permissions` open skills."""

    id: str
    name: str = ""
    permissions: frozenset[str] = frozenset()
    claims: dict[str, Any] | None = None
