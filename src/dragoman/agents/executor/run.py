"""An executor as the `run` of an agent."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from dragoman.agents.executor.adapter import ExecutorRequest, check_executor, installed_adapter
from dragoman.agents.executor.execution import Execution, cancel_executor, status_from_ref, stop
from dragoman.agents.offers import NamedSkill, offers_of
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.executor.adapter import Adapter
    from dragoman.engine.execute.context import Context

# The engine closes a text that has the name of the skill. None of an executor's artifacts is its own.
_SKILL = "dragoman.executor"
_SUFFIX = re.compile(r"(?<=.)(Agent)?Executor$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ExecutorRuns:
    """Runs an AgentExecutor of a2a-sdk as it is.

    Every message has a task, which is completed when `execute` returns without a word about that; a2a-sdk would leave
    it unfinished. What it raises is hidden from callers, except errors of a2a-sdk's, which are made for them.
    `adapter` is that of the a2a-sdk that is installed, unless another is given.

    Raises:
        ConfigError: this is no executor.
    """

    def __init__(self, executor: object, *, adapter: Adapter | None = None) -> None:
        self._executor = check_executor(executor)
        self._adapter = adapter or installed_adapter()
        # Those that ended their task before they returned.
        self._finishing: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The name of the executor's class: `TripPlannerExecutor` is `trip-planner`."""
        return _HUMP.sub("-", _SUFFIX.sub("", type(self._executor).__name__)).lower()

    @property
    def description(self) -> str:
        """The first line of what the executor's class says of itself."""
        return (inspect.cleandoc(type(self._executor).__doc__ or "").splitlines() or [""])[0]

    def offers(self) -> tuple[NamedSkill, ...]:
        """One skill, which takes every message."""
        return offers_of(self.name, self.description or "Answers messages", None)

    def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Let the executor work on a message."""
        ctx.skill = _SKILL
        return Execution(self._executor, self._adapter, ctx, self._finishing).run()

    async def canceled(self, ref: Any) -> None:
        """Tell the executor that nobody will answer what it asked."""
        status = status_from_ref(ref)
        if status is None:
            return
        situation = ExecutorRequest(ref["task"], ref["context"], task=Task(ref["task"], ref["context"], status))

        async def ignore(event: Any) -> None:
            """The task has ended."""

        await cancel_executor(self._executor, self._adapter, self._adapter.queue(ignore), situation)

    async def close(self) -> None:
        """Stop what goes on after its task has ended."""
        for work in tuple(self._finishing):
            await stop(work)
