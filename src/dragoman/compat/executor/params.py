"""The parameters of the methods of A2A 0.3."""

from __future__ import annotations

from typing import Any, cast

from dragoman.compat.executor.message import Message
from dragoman.compat.executor.push import PushConfig
from dragoman.compat.executor.wire import Wire, read
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.json import decode_any
from dragoman.model.operation import CancelTaskRequest, Count, GetTaskRequest, Operation, SendMessageRequest


class TaskIDParams(Wire, frozen=True):
    """Which task: for `tasks/cancel` and `tasks/resubscribe`."""

    id: str
    metadata: dict[str, Any] | None = None

    def to_model(self) -> CancelTaskRequest:
        """The request to cancel, in the words of A2A 1.0. Raises InvalidParams when the id is empty."""
        return cast("CancelTaskRequest", V03_RPC.request_from(Operation.CANCEL, self.to_map()))

    @classmethod
    def from_model(cls, request: CancelTaskRequest) -> TaskIDParams:
        """Spell a request of A2A 1.0."""
        return read(cls, decode_any(V03_RPC.params(Operation.CANCEL, request)))


class TaskQueryParams(Wire, frozen=True):
    """Which task, and how much of its history: for `tasks/get`."""

    id: str
    history_length: Count | None = None
    metadata: dict[str, Any] | None = None

    def to_model(self) -> GetTaskRequest:
        """The request in the words of A2A 1.0. Raises InvalidParams when the id is empty."""
        return cast("GetTaskRequest", V03_RPC.request_from(Operation.GET, self.to_map()))

    @classmethod
    def from_model(cls, request: GetTaskRequest) -> TaskQueryParams:
        """Spell a request of A2A 1.0."""
        return read(cls, decode_any(V03_RPC.params(Operation.GET, request)))


class MessageSendConfig(Wire, frozen=True):
    """How a message is to be handled; without `blocking` the server chooses."""

    accepted_output_modes: tuple[str, ...] = ()
    blocking: bool | None = None
    history_length: Count | None = None
    push_notification_config: PushConfig | None = None


class MessageSendParams(Wire, frozen=True):
    """A message and how to handle it: for `message/send` and `message/stream`."""

    message: Message
    configuration: MessageSendConfig | None = None
    metadata: dict[str, Any] | None = None

    def to_model(self) -> SendMessageRequest:
        """The request in the words of A2A 1.0. Raises InvalidParams when the message cannot be sent."""
        return cast("SendMessageRequest", V03_RPC.request_from(Operation.SEND, self.to_map()))

    @classmethod
    def from_model(cls, request: SendMessageRequest) -> MessageSendParams:
        """Spell a request of A2A 1.0."""
        return read(cls, decode_any(V03_RPC.params(Operation.SEND, request)))
