"""Calling code that blocks."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor


async def in_thread(fn: Callable[..., Any], *args: Any, pool: Executor | None = None) -> Any:
    """Call `fn` in a thread, by default one of the loop's, with the caller's context variables."""
    call = partial(contextvars.copy_context().run, _call, fn, *args)
    return await asyncio.get_running_loop().run_in_executor(pool, call)


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except StopIteration as error:
        # A future cannot carry it, and whoever waits for that future would wait for ever.
        raise RuntimeError(f"{getattr(fn, '__name__', 'a function')} let StopIteration out") from error
