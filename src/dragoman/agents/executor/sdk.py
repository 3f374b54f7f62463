"""Adapters for the types of a2a-sdk: 1.x has protobuf messages, 0.3 has pydantic models.

a2a-sdk is imported by name, because it is not a dependency; its types are therefore `Any` here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.dialects.errors import error_from_sdk
from dragoman.dialects.v03.codec import message_to_03, task_to_03
from dragoman.model.error import Failed
from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.agents.executor.adapter import ExecutorRequest
    from dragoman.model.error import DragomanError
    from dragoman.model.user import User


class _SdkAdapter:
    """What both versions share: where the types are, the user, and the queue."""

    one_shot = False

    def __init__(self, error: str) -> None:
        self._types: Any = import_module("a2a.types")
        self._context: Any = import_module("a2a.server.agent_execution").RequestContext
        self._call: Any = import_module("a2a.server.context").ServerCallContext
        self._error: Any = getattr(import_module("a2a.utils.errors"), error)
        self._queue = _queue_type()

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> Any:
        return self._queue(take)

    def _call_context(self, request: ExecutorRequest, **members: Any) -> Any:
        call = self._call(requested_extensions=set(request.extensions), **members)
        if request.user is not None:
            call.user = _sdk_user(request.user)
        return call


class ProtobufAdapter(_SdkAdapter):
    """The adapter for a2a-sdk 1.x. Raises ImportError when that is not installed."""

    def __init__(self) -> None:
        super().__init__("A2AError")
        self._parse: Any = import_module("google.protobuf.json_format").ParseDict

    def context(self, request: ExecutorRequest) -> Any:
        call = self._call_context(request, tenant=request.tenant)
        sdk_request = task = None
        if request.message is not None:
            params = {"message": decode_any(encode(request.message)), "metadata": request.metadata}
            sdk_request = self._message(params, self._types.SendMessageRequest)
            # Present and empty: the server handles the caller's configuration itself.
            sdk_request.configuration.SetInParent()
        if request.task is not None:
            task = self._message(decode_any(encode(request.task)), self._types.Task)
        return self._context(
            call, request=sdk_request, task_id=request.task_id, context_id=request.context_id, task=task
        )

    def public_error(self, error: BaseException) -> DragomanError | None:
        return _public_error(error, str(error)) if isinstance(error, self._error) else None

    def _message(self, values: dict[str, Any], type_: Any) -> Any:
        return self._parse(values, type_(), ignore_unknown_fields=True)


class PydanticAdapter(_SdkAdapter):
    """The adapter for a2a-sdk 0.3. Raises ImportError when that is not installed."""

    def __init__(self) -> None:
        super().__init__("ServerError")

    def context(self, request: ExecutorRequest) -> Any:
        call = self._call_context(request)
        sdk_request = task = None
        if request.message is not None:
            message = decode_any(encode(message_to_03(request.message)))
            sdk_request = self._types.MessageSendParams(
                message=self._types.Message.model_validate(message),
                configuration=self._types.MessageSendConfiguration(),
                metadata=request.metadata or None,
            )
        if request.task is not None:
            task = self._types.Task.model_validate(decode_any(encode(task_to_03(request.task))))
        return self._context(
            sdk_request, task_id=request.task_id, context_id=request.context_id, task=task, call_context=call
        )

    def public_error(self, error: BaseException) -> DragomanError | None:
        cause = getattr(error, "error", None) if isinstance(error, self._error) else None
        return None if cause is None else _public_error(cause, cause.message)


def _public_error(error: object, text: str) -> DragomanError | None:
    """Return what an error of a2a-sdk means; None for an internal error, whose text is not for callers."""
    if type(error).__name__ == "InternalError":
        return None
    return error_from_sdk(type(error).__name__, text) or Failed(text)


def _sdk_user(user: User) -> Any:
    caller = _sdk_user_type()()
    caller.user = user
    return caller


@cache
def _sdk_user_type() -> Any:
    base: Any = import_module("a2a.auth.user").User

    def user_name(self: Any) -> str:
        return self.user.id

    members = {"is_authenticated": property(lambda _: True), "user_name": property(user_name), "user": None}
    return type("Caller", (base,), members)


def _queue_type() -> Any:
    """Build a subclass of a2a-sdk's EventQueue that passes events on and stores none."""
    base: Any = import_module("a2a.server.events").EventQueue

    def __init__(self: Any, take: Callable[[Any], Awaitable[None]]) -> None:
        base.__init__(self)
        self.take = take

    async def enqueue_event(self: Any, event: Any) -> None:
        await self.take(event)

    queue_type: Any = type("DirectQueue", (base,), {"__init__": __init__, "enqueue_event": enqueue_event})
    return queue_type
