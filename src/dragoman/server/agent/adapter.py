"""An agent as the engine runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from dragoman.model.error import Failed

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Skill
    from dragoman.engine.execute.context import Context
    from dragoman.server.agent.base import BareAgent


class _Run(Protocol):
    def __call__(self, ctx: Context) -> AsyncIterator[Any]: ...


class EngineAgent:
    """What the engine asks of an agent, decided as far as can be when it is hosted. See `Runnable`."""

    def __init__(self, agent: BareAgent) -> None:
        backend = agent.backend
        self.name = agent.name
        self.extensions = agent.extensions
        self.closing: Literal["whole", "last"] = agent.closing
        self.parallel = agent.parallel
        self.marks = backend.marks
        self._backend = backend
        self._functions = agent.functions
        self.open, self.close = backend.open, agent.close
        capabilities: Any = agent.card.get("capabilities")
        self.streams = not (
            isinstance(capabilities, Mapping) and cast("Mapping[str, Any]", capabilities).get("streaming") is False
        )
        self.run: _Run = agent.functions.run if backend.run is None else self._run

    def _run(self, ctx: Context) -> AsyncIterator[Any]:
        run = self._backend.run
        return self._functions.run(ctx) if run is None or self._functions.named(ctx) is not None else run(ctx)

    def _uses_backend(self, ctx: Context) -> bool:
        return self._backend.run is not None and self._functions.named(ctx) is None

    def may_reply(self, ctx: Context) -> bool:
        """True when this message may be answered without a task."""
        if self._backend.run is not None and self._uses_backend(ctx):
            return self._backend.replies
        skill = self._chosen(ctx) if self._functions.may_reply else None
        return skill is not None and skill.may_reply

    def restarts(self, ctx: Context) -> bool:
        """True when the chosen skill, or the backend, may run again after a crash."""
        if self._backend.run is not None and self._uses_backend(ctx):
            tools = self._backend.tools
            return self._backend.restarts if tools is None else tools.restarts(ctx)
        skill = self._chosen(ctx)
        return skill is not None and skill.restart

    def _chosen(self, ctx: Context) -> Skill | None:
        try:
            return self._functions.choose(ctx)[0]
        except Failed:
            return None

    def prepare(self, ctx: Context) -> Callable[[], Awaitable[None]] | None:
        """What is to be called before the work begins, if anything is."""
        prepare = self._backend.prepare
        return partial(prepare, ctx) if prepare is not None and self._uses_backend(ctx) else None

    async def canceled(self, ref: Any) -> None:
        """Pass on that a waiting task was canceled."""
        if self._backend.canceled is not None:
            await self._backend.canceled(ref)
