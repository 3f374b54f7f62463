"""Work that goes on to its end when whoever waits for it gives up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

# A pending task is referenced by nobody else for certain.
_running: set[asyncio.Task[Any]] = set()


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run work that must not stop halfway. When its caller is canceled, it goes on, and its outcome is dropped.

    An HTTP request is never canceled. A gRPC call is, at any await: its caller hangs up, or its deadline passes.
    """
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return await asyncio.shield(task)
