"""How an executor is known."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Protocol, cast

from dragoman.model.error import ConfigError


class Executor(Protocol):
    """What a2a-sdk calls an AgentExecutor."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        """Work on a message, and say what happens by `await event_queue.enqueue_event(event)`."""
        ...

    def cancel(self, context: Any, event_queue: Any) -> Awaitable[None]:
        """Stop working on a task."""
        ...


def is_executor(thing: object) -> bool:
    """True when a thing has `execute` and `cancel` as a2a-sdk wants them: async, for a context and an event queue."""
    return not isinstance(thing, type) and all(_takes_two(getattr(thing, name, None)) for name in ("execute", "cancel"))


def executor_of(thing: object) -> Executor:
    """The thing itself, when it is an executor.

    Raises:
        ConfigError: it is none.
    """
    if is_executor(thing):
        return cast("Executor", thing)
    if isinstance(thing, type):
        raise ConfigError(f"{thing.__name__} is a class: give an object of it")
    raise ConfigError(
        f"a {type(thing).__name__} is no executor: that has `async def execute(context, event_queue)` and "
        "`async def cancel(context, event_queue)`"
    )


def _takes_two(method: Any) -> bool:
    if not inspect.iscoroutinefunction(method):
        return False
    try:
        given = inspect.signature(method).bind(None, None).arguments
    except TypeError:
        return False
    # Those of dragoman.compat.executor find the queue in the context, and get the task's id.
    return "task_id" not in given
