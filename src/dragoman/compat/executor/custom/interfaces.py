"""The interfaces of a task store, a push config store and a push sender: plain objects with these methods fit.

Every method may be a coroutine function or a plain function; a plain one is called on the event loop, so it should not
wait for anything. A method that raises, or returns `("error", reason)`, has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from dragoman.compat.executor.params import PushConfig
from dragoman.compat.executor.result import Failure, Ok
from dragoman.compat.executor.types import Task

# What methods may return: a pair, or the value itself; None is "done" or "there is none".
FoundTask: TypeAlias = Ok[Task] | Failure | Task | Mapping[str, Any] | None
FoundConfig: TypeAlias = Ok[PushConfig] | Failure | PushConfig | Mapping[str, Any] | None
FoundConfigs: TypeAlias = Ok[Sequence[PushConfig]] | Failure | Sequence[PushConfig | Mapping[str, Any]] | None
Done: TypeAlias = Ok[Any] | Failure | Literal["ok"] | PushConfig | Task | None


class TaskStoreInterface(Protocol):
    """Stores the tasks of one agent by their ids. `get` returns what was saved last."""

    def get(self, task_id: str) -> Awaitable[FoundTask] | FoundTask:
        """Return a task, as an object or as JSON values; None or `("error", "not_found")` when there is none."""
        ...

    def save(self, task: Task) -> Awaitable[Done] | Done:
        """Store a task in place of the one with the same id."""
        ...

    def delete(self, task_id: str) -> Awaitable[Done] | Done:
        """Delete a task; a missing one is no error."""
        ...


class PushConfigStoreInterface(Protocol):
    """Stores the webhooks of tasks: several for one task, each with an id."""

    def set(self, task_id: str, config: PushConfig) -> Awaitable[Done] | Done:
        """Store a webhook, in place of the one with the same id. It always has an id."""
        ...

    def get(self, task_id: str, config_id: str | None) -> Awaitable[FoundConfig] | FoundConfig:
        """Return a webhook, without an id the first; None or `("error", "not_found")` when there is none."""
        ...

    def list(self, task_id: str) -> Awaitable[FoundConfigs] | FoundConfigs:
        """Return all webhooks of a task."""
        ...

    def delete(self, task_id: str, config_id: str) -> Awaitable[Done] | Done:
        """Delete a webhook; a missing one is no error."""
        ...


class PushSenderInterface(Protocol):
    """Sends tasks to webhooks."""

    def send(self, task: Task, config: PushConfig) -> Awaitable[Done] | Done:
        """Send a task to a webhook, once. When it fails it is called again later, for up to a day."""
        ...
