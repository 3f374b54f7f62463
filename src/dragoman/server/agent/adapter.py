"""Adapts an agent to the engine's `Runnable` port."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dragoman.engine.ports.agent import Plan

if TYPE_CHECKING:
    from dragoman.engine.call import ClosingChoice
    from dragoman.engine.execute.context import Context
    from dragoman.server.agent.base import BareAgent


class EngineAgent:
    """Implements `Runnable` for an agent. Whatever does not depend on the message is decided at construction."""

    def __init__(self, agent: BareAgent) -> None:
        backend = agent.backend
        self.name = agent.name
        self.extensions = agent.extensions
        self.closing: ClosingChoice = agent.closing
        self.closing_message = agent.closing_message
        self.parallel = agent.parallel
        self.pinned = backend.pinned
        self.output_metadata = backend.output_metadata
        self.foreign = backend.foreign
        self.open, self.close = backend.open, agent.close
        capabilities: Any = agent.card.get("capabilities")
        self.streams = not (
            isinstance(capabilities, Mapping) and cast("Mapping[str, Any]", capabilities).get("streaming") is False
        )
        self._backend = backend
        self._functions = agent.functions
        self.plan = agent.functions.plan if backend.run is None else self._plan

    def _plan(self, ctx: Context) -> Plan:
        """Plan a run by the skill that the message names, else by the backend."""
        run, tools = self._backend.run, self._backend.tools
        if run is None or self._functions.named_skill(ctx) is not None:
            return self._functions.plan(ctx)
        restarts = self._backend.restarts if tools is None else partial(tools.restarts, ctx)
        return Plan(run, self._backend.replies, restarts, self._backend.prepare)

    async def canceled(self, ref: Any) -> None:
        """Tell the backend that a waiting task was canceled."""
        if self._backend.canceled is not None:
            await self._backend.canceled(ref)
