"""Keeps exceptions of agents from stopping the event loop.

An asyncio task passes KeyboardInterrupt and SystemExit on to the loop, which then stops with everything on it. The
engine catches what a run raises, but runs create tasks of their own: LangGraph one per node, Pydantic AI one per tool.
A task factory makes those fail with a RuntimeError instead, which propagates to the run that awaits them.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from msgspec import Struct

from dragoman.telemetry.log_context import LOG_CONTEXT, fields_of_caller

if TYPE_CHECKING:
    from collections.abc import Generator
    from weakref import ref

    from dragoman.engine.execute.run import Run

    TaskFactory = Callable[..., asyncio.Future[Any]]


class RunOwner(Struct, frozen=True):
    """The agent of a run and the caller it runs for: a quota key, empty for this process itself.

    The rest is for the log. The reference is weak, because contexts live on with whatever a run has left behind.
    """

    agent: str
    caller: str
    task: str = ""
    context: str = ""
    run: ref[Run] | None = None

    @property
    def skill(self) -> str:
        """The skill that runs; empty when it is the agent as a whole, or the run is over."""
        run = None if self.run is None else self.run()
        return "" if run is None else run.skill

    def log_fields(self) -> dict[str, str]:
        """Return what lines of the log are about."""
        fields = {"agent": self.agent, "skill": self.skill, "task": self.task, "context": self.context}
        return {name: value for name, value in fields.items() if value} | fields_of_caller(self.caller)


_run_owner: contextvars.ContextVar[RunOwner | None] = cast("Any", LOG_CONTEXT.run)


# The owner of the run that the current code belongs to; None outside of runs.
current_run_owner: Callable[[], RunOwner | None] = _run_owner.get
set_run_owner: Callable[[RunOwner], object] = _run_owner.set


_EXITS = (KeyboardInterrupt, SystemExit)
# The factories installed here, while their loops use them.
_FACTORIES: WeakSet[Any] = WeakSet()


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Install the task factory on a loop, so that no task created by a run can stop it. Idempotent."""
    existing: Any = loop.get_task_factory()
    if existing not in _FACTORIES:
        loop.set_task_factory(_factory(existing))


def _factory(existing: TaskFactory | None) -> Any:
    """Build a task factory that wraps the coroutines of runs and leaves all others to the existing factory.

    It is a closure, not an object with `__call__`, for speed: it is called for every request.
    """
    make: Any = existing
    task: Any = asyncio.Task

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        owner = current_run_owner()
        if owner is not None:
            coro = _ContainedCoroutine(coro, owner)
        return task(coro, loop=loop, **options) if make is None else make(loop, coro, **options)

    _FACTORIES.add(factory)
    return factory


def find_run_owner(task: asyncio.Task[Any]) -> RunOwner | None:
    """Return the owner of the run that has created an asyncio task; None for other tasks. Any thread may ask."""
    coroutine = task.get_coro()
    return coroutine.owner if isinstance(coroutine, _ContainedCoroutine) else None


class _ContainedCoroutine(Coroutine[Any, Any, Any]):
    """Wraps a coroutine and raises RuntimeError in place of its KeyboardInterrupt and SystemExit.

    This is not an `async def` around it: one whose task is canceled before it starts would never await the inner one.
    """

    __slots__ = ("_coroutine", "owner")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], owner: RunOwner) -> None:
        self._coroutine = coroutine
        self.owner = owner

    def send(self, value: Any, /) -> Any:
        """Resume the coroutine."""
        try:
            return self._coroutine.send(value)
        except _EXITS as error:
            raise _to_runtime_error(error) from error

    def throw(self, *error: Any) -> Any:
        """Resume the coroutine with an exception."""
        try:
            return self._coroutine.throw(*error)
        except _EXITS as exit_:
            raise _to_runtime_error(exit_) from exit_

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """Await it from another coroutine."""
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        """Delegate to the coroutine: debuggers and task groups read its frame, name and state."""
        return getattr(self._coroutine, name)


def _to_runtime_error(error: BaseException) -> RuntimeError:
    return RuntimeError(f"the agent tried to end the program: {type(error).__name__}")
