"""Webhooks: brought from the journal, in order, until they arrive. For those who receive them there is `verify`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Imported when first used, and by name: receivers stand above the courier, who must not know of them. For type checkers
# they are in `__init__.pyi`.
_HOMES = {"verify": "dragoman.client.webhook", "BadSignature": "dragoman.keys.errors"}

__all__ = ["BadSignature", "verify"]
BadSignature: Any
verify: Any


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dragoman.push' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
