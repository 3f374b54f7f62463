"""The four functions of `dragoman.compat.client` for code without an event loop; they take the same arguments.

    from dragoman.compat.sync_client import discover, send_task

    _, card = discover("https://localhost")
    outcome, task = send_task("https://localhost", "Hello!", cookie=cookie)

They also work while an event loop runs in the same thread, as in a notebook; that loop waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dragoman.client.sync import run_blocking
from dragoman.compat import client

__all__ = ["cancel_task", "discover", "get_task", "send_task"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(function(*args, **kwargs))

    return call


discover = _blocking(client.discover)
send_task = _blocking(client.send_task)
get_task = _blocking(client.get_task)
cancel_task = _blocking(client.cancel_task)
