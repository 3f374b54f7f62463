"""The request context and the event queue of a2a-sdk 0.3, whose types are pydantic models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.agents.executor.proto_nouns import caller_of, queue_type
from dragoman.dialects.v03.codec import message_to_03, task_to_03
from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.agents.executor.nouns import Situation


class PydanticNouns:
    """See `Nouns`. Raises ImportError when a2a-sdk 0.3 is not there."""

    def __init__(self) -> None:
        self._types: Any = import_module("a2a.types")
        self._context: Any = import_module("a2a.server.agent_execution").RequestContext
        self._call: Any = import_module("a2a.server.context").ServerCallContext
        self._error: Any = import_module("a2a.utils.errors").ServerError
        self._queue = queue_type()

    def context(self, situation: Situation) -> Any:
        """See `Nouns.context`."""
        call = self._call(requested_extensions=set(situation.extensions))
        if situation.user is not None:
            call.user = caller_of(situation.user)
        request = None
        if situation.message is not None:
            message = decode_any(encode(message_to_03(situation.message)))
            request = self._types.MessageSendParams(
                message=self._types.Message.model_validate(message),
                configuration=self._types.MessageSendConfiguration(),
                metadata=situation.metadata or None,
            )
        task = None
        if situation.task is not None:
            task = self._types.Task.model_validate(decode_any(encode(task_to_03(situation.task))))
        return self._context(
            request, task_id=situation.task_id, context_id=situation.context_id, task=task, call_context=call
        )

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> Any:
        """See `Nouns.queue`."""
        return self._queue(take)

    def public_text(self, error: BaseException) -> str | None:
        """See `Nouns.public_text`."""
        told = getattr(error, "error", None) if isinstance(error, self._error) else None
        return None if told is None or type(told).__name__ == "InternalError" else told.message
