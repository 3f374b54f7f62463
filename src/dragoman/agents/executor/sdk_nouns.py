"""The request context and the event queue of the installed a2a-sdk: 1.x with protobuf messages, 0.3 with pydantic models."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.dialects.v03.codec import message_to_03, task_to_03
from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.agents.executor.nouns import Situation
    from dragoman.model.user import User


def caller_of(user: User) -> Any:
    """An authenticated caller as an object of a2a-sdk's. Raises ImportError without a2a-sdk."""
    caller = _caller_type()()
    caller.user = user
    return caller


@cache
def _caller_type() -> Any:
    base: Any = import_module("a2a.auth.user").User

    def user_name(self: Any) -> str:
        return self.user.id

    members = {"is_authenticated": property(lambda _: True), "user_name": property(user_name), "user": None}
    return type("Caller", (base,), members)


class ProtoNouns:
    """See `Nouns`. Raises ImportError when a2a-sdk 1.x is not there."""

    def __init__(self) -> None:
        # By name and not by `import`: a2a-sdk is no dependency, so its types are unknown here.
        self._types: Any = import_module("a2a.types")
        self._context: Any = import_module("a2a.server.agent_execution").RequestContext
        self._call: Any = import_module("a2a.server.context").ServerCallContext
        self._error: Any = import_module("a2a.utils.errors").A2AError
        self._parse: Any = import_module("google.protobuf.json_format").ParseDict
        self._queue = queue_type()

    def context(self, situation: Situation) -> Any:
        """See `Nouns.context`."""
        call = self._call(tenant=situation.tenant, requested_extensions=set(situation.extensions))
        if situation.user is not None:
            call.user = caller_of(situation.user)
        request = None
        if situation.message is not None:
            said = {"message": decode_any(encode(situation.message)), "metadata": situation.metadata}
            request = self._message(said, self._types.SendMessageRequest)
            # There, and empty: what a caller wants of the answer is seen to by the server.
            request.configuration.SetInParent()
        task = None
        if situation.task is not None:
            task = self._message(decode_any(encode(situation.task)), self._types.Task)
        return self._context(
            call, request=request, task_id=situation.task_id, context_id=situation.context_id, task=task
        )

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> Any:
        """See `Nouns.queue`."""
        return self._queue(take)

    def public_text(self, error: BaseException) -> str | None:
        """See `Nouns.public_text`."""
        if not isinstance(error, self._error) or type(error).__name__ == "InternalError":
            return None
        return str(error)

    def _message(self, values: dict[str, Any], type_: Any) -> Any:
        return self._parse(values, type_(), ignore_unknown_fields=True)


def queue_type() -> Any:
    """The class of queues that are a2a-sdk's own by type, and hold nothing. Raises ImportError without a2a-sdk."""
    base: Any = import_module("a2a.server.events").EventQueue

    def __init__(self: Any, take: Callable[[Any], Awaitable[None]]) -> None:
        base.__init__(self)
        self.take = take

    async def enqueue_event(self: Any, event: Any) -> None:
        await self.take(event)

    made: Any = type("DirectQueue", (base,), {"__init__": __init__, "enqueue_event": enqueue_event})
    return made


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
