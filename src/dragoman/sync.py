"""Blocking versions of `Client` and `Context`, for scripts, notebooks and `def` skills."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.agents.functions.sync_context import SyncContext as Context
    from dragoman.client.sync import Client as Client

# Imported when first used: a `def` skill never pays for the client.
_HOMES = {
    "Client": ("dragoman.client.sync", "Client"),
    "Context": ("dragoman.agents.functions.sync_context", "SyncContext"),
}

__all__ = ["Client", "Context"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dragoman.sync' has no attribute {name!r}")
    home, attribute = _HOMES[name]
    value = getattr(import_module(home), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
