"""Runs an AgentExecutor as an agent."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from dragoman.agents.executor.adapter import ExecutorRequest, check_executor, installed_adapter
from dragoman.agents.executor.execution import Execution, cancel_executor, status_from_ref, stop
from dragoman.agents.offers import NamedSkill, offers_from_tool_names
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.executor.adapter import Adapter
    from dragoman.engine.execute.context import Context

# The engine closes the text artifact named after the skill: no executor's artifact has this name.
_SKILL = "dragoman.executor"
_SUFFIX = re.compile(r"(?<=.)(Agent)?Executor$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ExecutorRuns:
    """Runs an AgentExecutor of a2a-sdk unchanged.

    A Message that is the first event is an answer without a task. Otherwise there is a task, which is completed when
    `execute` returns without reporting an end or a question; a2a-sdk would leave it unfinished. The texts of exceptions
    are hidden from callers, except those of a2a-sdk's own errors, which are meant for them. `adapter` defaults to the
    one for the installed a2a-sdk.

    Raises:
        ConfigError: this is not an executor.
    """

    replies = True

    def __init__(self, executor: object, *, adapter: Adapter | None = None) -> None:
        self._executor = check_executor(executor)
        self._adapter = adapter or installed_adapter()
        # Executors that have ended their task and not returned yet.
        self._finishing: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The name, from the executor's class: `TripPlannerExecutor` is `trip-planner`."""
        return _HUMP.sub("-", _SUFFIX.sub("", type(self._executor).__name__)).lower()

    @property
    def description(self) -> str:
        """The first line of the docstring of the executor's class."""
        return (inspect.cleandoc(type(self._executor).__doc__ or "").splitlines() or [""])[0]

    def offers(self) -> tuple[NamedSkill, ...]:
        """One skill, which handles every message."""
        return offers_from_tool_names(self.name, self.description or "Answers messages", None)

    def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Run the executor on a message."""
        ctx.skill = _SKILL
        return Execution(self._executor, self._adapter, ctx, self._finishing).run()

    async def canceled(self, ref: Any) -> None:
        """Tell the executor that its question will not be answered."""
        status = status_from_ref(ref)
        if status is None:
            return
        situation = ExecutorRequest(ref["task"], ref["context"], task=Task(ref["task"], ref["context"], status))

        async def ignore(event: Any) -> None:
            """Drop the event: the task has ended."""

        await cancel_executor(self._executor, self._adapter, self._adapter.queue(ignore), situation)

    async def close(self) -> None:
        """Stop executors that still run after the end of their task."""
        for work in tuple(self._finishing):
            await stop(work)
