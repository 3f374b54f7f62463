"""Waiting for something that nobody reports, because it happens in another thread or process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 30) -> T:
    """Ask until the answer is true, and return it.

    Raises:
        AssertionError: it was not true in time.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
    raise AssertionError("it did not happen")


async def until_async(condition: Callable[[], object], seconds: float = 10) -> None:
    """As `until`, in an event loop that goes on meanwhile.

    Raises:
        TimeoutError: it was not true in time.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nobody reports it
            await asyncio.sleep(0.001)
