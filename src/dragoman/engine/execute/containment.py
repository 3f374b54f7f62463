"""Keeps what agents raise from ending the event loop.

An asyncio task passes KeyboardInterrupt and SystemExit on to the loop, which then stops with everything on it. The
engine catches what a run raises, but runs make tasks of their own: LangGraph one for every node, Pydantic AI for
tools. Those fail here with an ordinary exception, which comes back to the run that waits for them.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Generator

    TaskFactory = Callable[..., asyncio.Future[Any]]


class Work(NamedTuple):
    """The agent that runs, and the caller it runs for: a key as in `quota`, empty for this process itself."""

    agent: str
    caller: str


_work: contextvars.ContextVar[Work | None] = contextvars.ContextVar("dragoman-work", default=None)


# Whose run this is; None outside of any.
current_work: Callable[[], Work | None] = _work.get
begin_work: Callable[[Work], object] = _work.set


_EXITS = (KeyboardInterrupt, SystemExit)
# The factories that contain exits, for as long as their loops have them.
_FACTORIES: WeakSet[Any] = WeakSet()


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """See to it that no task which a run makes on this loop can stop it. A second call does nothing."""
    before: Any = loop.get_task_factory()
    if before not in _FACTORIES:
        loop.set_task_factory(_factory(before))


def _factory(before: TaskFactory | None) -> Any:
    """Makes tasks as before; those of runs with a coroutine that lets nothing out that stops loops.

    A plain function, because it is called for every request.
    """
    make: Any = before
    task: Any = asyncio.Task

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        if current_work() is not None:
            coro = _Contained(coro)
        return task(coro, loop=loop, **options) if make is None else make(loop, coro, **options)

    _FACTORIES.add(factory)
    return factory


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine whose KeyboardInterrupt and SystemExit are RuntimeErrors.

    No coroutine around it, which would leave it without being awaited when its task is cancelled before it begins.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any, /) -> Any:
        """Go on."""
        try:
            return self._coroutine.send(value)
        except _EXITS as error:
            raise _contained(error) from error

    def throw(self, *error: Any) -> Any:
        """Go on with an exception."""
        try:
            return self._coroutine.throw(*error)
        except _EXITS as exit_:
            raise _contained(exit_) from exit_

    def close(self) -> None:
        """End it."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """Wait for it from another coroutine."""
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        """Debuggers and task groups look at the frame, the name and the state of a coroutine."""
        return getattr(self._coroutine, name)


def _contained(error: BaseException) -> RuntimeError:
    return RuntimeError(f"the agent wanted to end the program: {type(error).__name__}")
