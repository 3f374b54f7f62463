"""Detects executors, and defines the adapter between the engine's types and theirs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

from dragoman.agents.executor.plain import PlainAdapter
from dragoman.agents.executor.sdk import ProtobufAdapter, PydanticAdapter
from dragoman.model.error import ConfigError
from dragoman.model.message import Message
from dragoman.model.task import Task
from dragoman.model.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.model.error import DragomanError


class Adapter(Protocol):
    """Builds the request context and the event queue for one kind of executor, such as those of one a2a-sdk version.

    A `one_shot` executor handles a single message: its question stops it, the end of the task counts when it returns,
    messages that arrive meanwhile are not passed to it, and its artifacts are passed on unchanged.
    """

    @property
    def one_shot(self) -> bool:
        """True when an executor handles a single message."""
        ...

    def context(self, request: ExecutorRequest) -> Any:
        """Build the executor's request context."""
        ...

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> Any:
        """Build an event queue that passes every event to `take` at once."""
        ...

    def public_error(self, error: BaseException) -> DragomanError | None:
        """Return what an exception means for callers; None when it means nothing beside itself."""
        ...


def installed_adapter() -> Adapter:
    """Return the adapter for the installed a2a-sdk, or a plain one where there is none."""
    try:
        import_module("a2a.server.agent_execution")
        import_module("a2a.server.events")
        types: Any = import_module("a2a.types")
    except ImportError:
        return PlainAdapter()
    if hasattr(types, "SendMessageRequest") and hasattr(types.Message, "DESCRIPTOR"):
        return ProtobufAdapter()
    return PydanticAdapter() if hasattr(types, "MessageSendParams") else PlainAdapter()


class Executor(Protocol):
    """The interface of a2a-sdk's AgentExecutor."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        """Handle a message, reporting through `await event_queue.enqueue_event(event)`."""
        ...

    def cancel(self, context: Any, event_queue: Any) -> Awaitable[None]:
        """Stop working on a task."""
        ...


def is_executor(candidate: object) -> bool:
    """True for an object with async `execute(context, event_queue)` and `cancel(context, event_queue)`."""
    return not isinstance(candidate, type) and all(
        _takes_two(getattr(candidate, name, None)) for name in ("execute", "cancel")
    )


def check_executor(candidate: object) -> Executor:
    """Return the object when it is an executor.

    Raises:
        ConfigError: it is not.
    """
    if is_executor(candidate):
        return cast("Executor", candidate)
    if isinstance(candidate, type):
        raise ConfigError(f"{candidate.__name__} is a class: give an object of it")
    raise ConfigError(
        f"a {type(candidate).__name__} is no executor: that has `async def execute(context, event_queue)` and "
        "`async def cancel(context, event_queue)`"
    )


def _takes_two(method: Any) -> bool:
    if not inspect.iscoroutinefunction(method):
        return False
    try:
        arguments = inspect.signature(method).bind(None, None).arguments
    except TypeError:
        return False
    # Executors of dragoman.compat.executor find the queue in the context and get the task's id as second argument.
    return "task_id" not in arguments


class ExecutorRequest(Struct, frozen=True):
    """A request to an executor: to handle a message, or, without a message, to cancel the task.

    `task` is set when the message continues an earlier task.
    """

    task_id: str
    context_id: str
    message: Message | None = None
    task: Task | None = None
    metadata: dict[str, Any] = {}
    user: User | None = None
    tenant: str = ""
    extensions: frozenset[str] = frozenset()
