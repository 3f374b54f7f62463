"""What an executor is, and the adapters that speak to it in its own types."""

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


class Adapter(Protocol):
    """The request context and the event queue of one kind of executor, such as those of one version of a2a-sdk.

    A `one_shot` executor works on one message: its question stops it, the end of the task counts when it returns,
    messages that come meanwhile are not for it, and its artifacts are passed on as they are.
    """

    @property
    def one_shot(self) -> bool:
        """True when an executor works on one message and no more."""
        ...

    def context(self, request: ExecutorRequest) -> Any:
        """The request context of this situation."""
        ...

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> Any:
        """An event queue that hands over every event at once."""
        ...

    def public_text(self, error: BaseException) -> str | None:
        """What callers may read of an exception; None when it was not meant for them."""
        ...


def installed_adapter() -> Adapter:
    """That of the a2a-sdk that is installed; a plain one where none is."""
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


def check_executor(thing: object) -> Executor:
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


class ExecutorRequest(Struct, frozen=True):
    """A message for a task, or the wish to cancel one, which comes without a message.

    `task` is there when the message goes on with an earlier task.
    """

    task_id: str
    context_id: str
    message: Message | None = None
    task: Task | None = None
    metadata: dict[str, Any] = {}
    user: User | None = None
    tenant: str = ""
    extensions: frozenset[str] = frozenset()
