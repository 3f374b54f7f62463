"""Calls of a context's async methods that nobody has awaited yet: finds a forgotten `await`."""

from __future__ import annotations

import asyncio
import inspect
import sys
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, CoroutineType

    # A call: its coroutine, its method, and the code and the line that it was made from.
    _PendingCall = tuple[CoroutineType[Any, Any, Any], str, CodeType, int]

F = TypeVar("F", bound="Callable[..., Any]")


class ForgottenAwait(RuntimeError):
    """A mistake in an agent's code: the log, and callers in development, get its text."""


class ContextCalls:
    """The calls of one context that have not begun. Python itself only warns, and only when they are forgotten."""

    def __init__(self) -> None:
        self._calls: list[_PendingCall] = []

    def add(self, call: _PendingCall) -> None:
        """Add a call, and drop those that have begun: usually it is the only one."""
        if self._calls:
            self._calls = [each for each in self._calls if _is_pending(each[0])]
        self._calls.append(call)

    def check(self, output: object = None) -> None:
        """Raise ForgottenAwait when a call was surely forgotten: the text names its line and says what to write.

        It was if nobody but this object refers to it any more, if `output` is or contains it, or if that is an
        exception which complains of it. Any other may be awaited later.
        """
        if not self._calls:
            return
        self._calls = [each for each in self._calls if _is_pending(each[0])]
        for each in self._calls:
            if sys.getrefcount(each[0]) <= _ONE_REFERENCE or output is each[0] or _is_about(output, each[0]):
                _, method, code, line = each
                for coroutine, *_ in self._calls:
                    coroutine.close()  # Python would warn of it
                self._calls = []
                place = f"{Path(code.co_filename).name}, line {line}"
                raise ForgottenAwait(f"{place}: `ctx.{method}(...)` is not awaited: write `await ctx.{method}(...)`")


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

    # Frameworks ask this of callbacks.
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(call)
    else:
        vars(call)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
    return cast("F", call)


def _is_pending(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    # As `inspect.getcoroutinestate` does, but faster.
    return not coroutine.cr_suspended and not coroutine.cr_running and bool(coroutine.cr_frame)


def _is_about(output: object, coroutine: CoroutineType[Any, Any, Any]) -> bool:
    """True when a text contains a coroutine, or an exception says that one is no value of another type."""
    if isinstance(output, str):
        return repr(coroutine) in output
    text = str(output) if isinstance(output, Exception) else ""
    return repr(coroutine) in text or "'coroutine'" in text or "type coroutine" in text


# What `getrefcount` says of an object that only one tuple refers to.
_PROBE = (object(),)
_ONE_REFERENCE = sys.getrefcount(_PROBE[0])
