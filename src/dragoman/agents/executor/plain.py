"""The adapter for use without a2a-sdk: a request context and an event queue of the same shapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dragoman.model.operation import SendMessageConfiguration

if TYPE_CHECKING:
    from dragoman.agents.executor.adapter import ExecutorRequest
    from dragoman.model.message import Message
    from dragoman.model.task import Task


class PlainContext:
    """Stands in for a2a-sdk's RequestContext; its message and task are those of `dragoman.model`."""

    def __init__(self, request: ExecutorRequest) -> None:
        user = request.user
        self.task_id: str = request.task_id
        self.context_id: str = request.context_id
        self.message: Message | None = request.message
        self.current_task: Task | None = request.task
        self.related_tasks: list[Task] = []
        self.metadata: dict[str, Any] = dict(request.metadata)
        self.configuration = SendMessageConfiguration() if request.message is not None else None
        self.call_context = SimpleNamespace(
            user=SimpleNamespace(is_authenticated=user is not None, user_name="" if user is None else user.id),
            tenant=request.tenant,
            requested_extensions=set(request.extensions),
            activated_extensions=set[str](),
            state={},
        )

    @property
    def tenant(self) -> str:
        """The tenant named in the request, or an empty string."""
        return self.call_context.tenant

    @property
    def requested_extensions(self) -> set[str]:
        """The extensions the caller requested."""
        return self.call_context.requested_extensions

    def get_user_input(self, delimiter: str = "\n") -> str:
        """The texts of the message, joined."""
        parts = self.message.parts if self.message is not None else ()
        return delimiter.join(part.text for part in parts if part.text is not None)

    def attach_related_task(self, task: Task) -> None:
        """Add a task to `related_tasks`."""
        self.related_tasks.append(task)

    def add_activated_extension(self, uri: str) -> None:
        """Record that an extension is in use."""
        self.call_context.activated_extensions.add(uri)


class PlainQueue:
    """Stands in for a2a-sdk's EventQueue, as far as executors use one."""

    def __init__(self, take: Callable[[Any], Awaitable[None]]) -> None:
        self._take = take

    async def enqueue_event(self, event: Any) -> None:
        """Publish an event. Raises InvalidAgentResponse when it is not one."""
        await self._take(event)


class PlainAdapter:
    """The adapter for executors that run without a2a-sdk."""

    one_shot = False

    def context(self, request: ExecutorRequest) -> PlainContext:
        return PlainContext(request)

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> PlainQueue:
        return PlainQueue(take)

    def public_error(self, error: BaseException) -> None:
        """There are no errors to translate."""
