"""Which schemes say who is calling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


class AuthSettings(Struct, frozen=True):
    """The schemes that are turned on, with their tables. Paths in them are relative to `base`."""

    names: tuple[str, ...]
    tables: Mapping[str, Mapping[str, Any]] = {}
    base: Path = Path()

    def __str__(self) -> str:
        return " ".join(self.names)
