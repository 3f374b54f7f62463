"""The author's side: what does the work, and what it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.compat.executor.event_queue import EventQueue
    from dragoman.compat.executor.message import Message
    from dragoman.compat.executor.result import Failure
    from dragoman.compat.executor.task import Task


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What an executor knows about a request. `task` is there when the message goes on with an earlier task."""

    task_id: str
    context_id: str
    message: Message
    queue: EventQueue
    task: Task | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class AgentExecutor(ABC):
    """Does the work of an agent, and says what happens by `await context.queue.enqueue(event)`.

    Returning ends the task as completed, unless an event said otherwise. Raising ends it as failed.
    """

    @abstractmethod
    async def execute(self, context: RequestContext, task_id: str) -> Failure | None:
        """Work on a message. `("error", reason)` fails the task with "execution failed: reason"."""

    @abstractmethod
    async def cancel(self, context: RequestContext, task_id: str) -> Failure | None:
        """Stop working on a task that has been canceled; afterwards `execute` is itself cancelled."""


ExecutorSpec: TypeAlias = AgentExecutor | type[AgentExecutor] | tuple[type[AgentExecutor], Any]


def executor_of(spec: ExecutorSpec) -> AgentExecutor:
    """The executor a spec means: one, a class of one, or a class and the configuration to make one with.

    Raises:
        ConfigError: it is none of these.
    """
    made = cast("object", spec)
    if isinstance(made, tuple):
        implementation, config = cast("tuple[Any, Any]", made)
        made = implementation(config) if isinstance(implementation, type) else None
    elif isinstance(made, type):
        made = made()
    if not isinstance(made, AgentExecutor):
        raise ConfigError("an executor is an AgentExecutor, a class of one, or a pair of such a class and its config")
    return made
