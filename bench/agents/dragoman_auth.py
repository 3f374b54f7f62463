"""The agent on Dragoman, with a settings file that says who may call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.agents.dragoman_agent import agent
from dragoman.server.build import build
from dragoman.server.config.loader import load_settings
from dragoman.server.listen.serve import tune_gc
from dragoman.stores.memory import MemoryStore


def app(store: str, config: str) -> Any:
    """The ASGI app. With "memory" the tasks are there; users are in the file that the settings name in any case.

    `dragoman serve` has both in one place. Users in memory could not be made from outside.
    """
    tune_gc()
    settings = load_settings({}, environ={}, config=Path(config), cwd=Path(config).parent)
    return build([agent], settings, store=MemoryStore() if store == "memory" else None)
