"""A loop in a thread of its own: the async client for those who do not await, also inside a running loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines on its own loop and waits for them. Open until closed; may be used from any thread."""

    def __init__(self, name: str = "dragoman") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """False once it has been closed."""
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and give its result, or raise what it raises. An interrupt here cancels it there."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a sync Client cannot wait for itself: use dragoman.Client here")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop, once what it still does has been cancelled."""
        if self._loop.is_closed():
            return
        self.run(_finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine on a loop of its own, wherever this is called. Raises what it raises."""
    portal = Portal()
    try:
        return portal.run(coroutine)
    finally:
        portal.close()
