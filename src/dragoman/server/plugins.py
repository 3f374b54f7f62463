"""Plug-ins: what a server has beside A2A, and the one place that names them.

The server asks its plug-ins once, when it is built. They are named as text and imported then, because they stand above
the server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.engine.operations import EngineSettings
    from dragoman.engine.ports import Store
    from dragoman.server.agent.agent import Agent
    from dragoman.transports.endpoint import Answers

# Where each plug-in is, as "module:attribute".
PLUGINS = ("dragoman.compat.tool_server.plugin:TOOL_SERVER",)


class Plugin:
    """A plug-in overrides what it adds to. None of this is called while a request is answered."""

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """For one server, before its store is opened: what gives the settings of an agent's engine its extra rows."""
        return lambda _, settings: settings

    def answers(self, agent: Agent, store: Store, clock: Clock) -> Answers | None:
        """How the oldest methods are answered for an agent; None when as ever."""
        return None


@cache
def plugins() -> tuple[Plugin, ...]:
    """All plug-ins, imported with the first call."""
    found: list[Plugin] = []
    for place in PLUGINS:
        module, _, name = place.partition(":")
        found.append(getattr(import_module(module), name))
    return tuple(found)
