"""Calls of a context's async methods that nobody has awaited yet: finds a forgotten `await`."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dragoman.model.error import Failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, CoroutineType

    # A call: its coroutine, its method, and the code and the line that it was made from.
    _PendingCall = tuple[CoroutineType[Any, Any, Any], str, CodeType, int]

F = TypeVar("F", bound="Callable[..., Any]")


class ContextCalls:
    """The calls of one context that have not begun. Python itself only warns, and only when they are forgotten."""

    def __init__(self) -> None:
        self._calls: list[_PendingCall] = []

    def add(self, call: _PendingCall) -> None:
        """Add a call, and drop those that have begun: usually it is the only one."""
        if self._calls:
            self._calls = [each for each in self._calls if _is_pending(each[0])]
        self._calls.append(call)

    def check(self) -> None:
        """Raise Failed when a call was not awaited: the text names its line and says what to write."""
        if not self._calls:
            return
        self._calls = [each for each in self._calls if _is_pending(each[0])]
        forgotten = next((each for each in self._calls if not _has_task(each[0])), None)
        if forgotten is not None:
            _, method, code, line = forgotten
            for coroutine, *_ in self._calls:
                coroutine.close()  # Python would warn of it
            self._calls = []
            place = f"{Path(code.co_filename).name}, line {line}"
            raise Failed(f"{place}: `ctx.{method}(...)` is not awaited: write `await ctx.{method}(...)`")


class _HasCalls(Protocol):
    pending_calls: ContextCalls | None


def must_be_awaited(method: F) -> F:
    """Let an async method of a context remember its calls until they are awaited."""

    name = method.__name__

    @wraps(method)
    def call(self: _HasCalls, *args: Any, **keywords: Any) -> CoroutineType[Any, Any, Any]:
        coroutine: CoroutineType[Any, Any, Any] = method(self, *args, **keywords)
        if self.pending_calls is None:
            self.pending_calls = ContextCalls()
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - documented, and faster than `inspect`
        self.pending_calls.add((coroutine, name, frame.f_code, frame.f_lineno))
        return coroutine

    return cast("F", call)


def _is_pending(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    # As `inspect.getcoroutinestate` does, but faster.
    return not coroutine.cr_suspended and not coroutine.cr_running and bool(coroutine.cr_frame)


def _has_task(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    """True when the event loop will run it: a task does not begin at once.

    A task refers to it directly or through a wrapper. A coroutine may just have it in a variable.
    """
    referrers: list[object] = gc.get_referrers(coroutine)
    return any(not inspect.iscoroutine(each) and isinstance(each, (asyncio.Task, Coroutine)) for each in referrers)
