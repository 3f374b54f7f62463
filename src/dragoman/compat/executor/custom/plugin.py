"""The plug-in for `Agent.from_executor` with stores or a push sender of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.server.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.compat.executor.custom.parts import CustomParts
    from dragoman.engine.ports.store import Store
    from dragoman.engine.settings import EngineSettings
    from dragoman.server.agent.agent import Agent
    from dragoman.webhooks.sender import WebhookSender


class CustomPartsPlugin(Plugin):
    """Adds the stores of the user's own to the engines of agents that have some."""

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """Return a function that puts an agent's own stores before the engine's.

        The function raises ConfigError when one of them lacks a method.
        """

        def refine(agent: Agent, settings: EngineSettings) -> EngineSettings:
            parts = _parts_of(agent)
            if parts is None:
                return settings
            from dragoman.compat.executor.task_store import TaskStore

            return parts.refine(settings, TaskStore(store, agent=agent.name, clock=clock))

        return refine

    def sender(self, agent: Agent) -> WebhookSender | None:
        """Return the push sender of an agent, if it has one. Raises ConfigError when that lacks a method."""
        parts = _parts_of(agent)
        return None if parts is None else parts.sender


def _parts_of(agent: Agent) -> CustomParts | None:
    given = (agent.task_store, agent.push_config_store, agent.push_sender)
    if given == (None, None, None):
        return None
    # Only then: every server that starts imports this module.
    from dragoman.compat.executor.custom.parts import CustomParts

    return CustomParts(*given)


CUSTOM_PARTS = CustomPartsPlugin()
