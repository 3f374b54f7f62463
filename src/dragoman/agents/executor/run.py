"""An executor as the `run` of an agent."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from dragoman.agents.executor.execution import Execution, asked_status, canceled
from dragoman.agents.executor.nouns import Situation, executor_of, installed_nouns
from dragoman.agents.offers import NamedSkill, offers_of
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.executor.nouns import Nouns
    from dragoman.engine.execute.context import Context

logger = logging.getLogger("dragoman.agent")

# The engine closes a text that has the name of the skill. None of an executor's artifacts is its own.
_SKILL = "dragoman.executor"
_SUFFIX = re.compile(r"(?<=.)(Agent)?Executor$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ExecutorRuns:
    """Runs an AgentExecutor of a2a-sdk as it is.

    Every message has a task, which is completed when `execute` returns without a word about that; a2a-sdk would leave
    it unfinished. What it raises is hidden from callers, except errors of a2a-sdk's, which are made for them.
    `nouns` are those of the a2a-sdk that is installed, unless others are given.

    Raises:
        ConfigError: this is no executor.
    """

    def __init__(self, executor: object, *, nouns: Nouns | None = None) -> None:
        self._executor = executor_of(executor)
        self._nouns = nouns or installed_nouns()
        # Those that said the end before they returned.
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

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Let the executor work on a message."""
        ctx.skill = _SKILL
        execution = Execution(self._executor, self._nouns, ctx)
        try:
            async with aclosing(execution.outputs()) as outputs:
                async for output in outputs:
                    yield output
        except asyncio.CancelledError:
            if ctx.cancelled and not execution.over:
                await self._tell(execution.cancel, ctx.task_id)
            await _stop(execution.work)
            raise
        finally:
            if not execution.over:
                await _stop(execution.work)
            elif execution.work is not None:
                # Also when it has returned already: what it raised after the end is told nowhere else.
                self._finishing.add(execution.work)
                execution.work.add_done_callback(partial(self._finished, ctx.task_id))

    async def canceled(self, ref: Any) -> None:
        """Tell the executor that nobody will answer what it asked."""
        status = asked_status(ref)
        if status is None:
            return
        situation = Situation(ref["task"], ref["context"], task=Task(ref["task"], ref["context"], status))

        async def nobody(event: Any) -> None:
            """The task has ended."""

        async def tell() -> None:
            await canceled(self._executor, self._nouns, self._nouns.queue(nobody), situation)

        await self._tell(tell, situation.task_id)

    async def close(self) -> None:
        """Stop what goes on after its task has ended."""
        for work in tuple(self._finishing):
            await _stop(work)

    async def _tell(self, cancel: Any, task_id: str) -> None:
        try:
            await cancel()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its own, and the task is canceled all the same
            logger.warning("the executor could not cancel task %s: %s: %s", task_id, type(error).__name__, error)

    def _finished(self, task_id: str, work: asyncio.Task[None]) -> None:
        self._finishing.discard(work)
        error = None if work.cancelled() else work.exception()
        if error is not None:
            logger.warning("an executor failed after the end of task %s", task_id, exc_info=error)


async def _stop(work: asyncio.Task[None] | None) -> None:
    if work is not None and not work.done():
        work.cancel()
        await asyncio.wait((work,))
