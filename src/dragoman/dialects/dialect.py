"""What every dialect offers: to the transports that serve, and to those that call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.dialects.table import Row
    from dragoman.model.card import AgentCard
    from dragoman.model.event import StreamResponse
    from dragoman.model.message import Message
    from dragoman.model.operation import ListTasksResponse, Operation, Request, TaskPushNotificationConfig
    from dragoman.model.record import Record
    from dragoman.model.task import Task

    Result = (
        Task
        | Message
        | ListTasksResponse
        | TaskPushNotificationConfig
        | tuple[TaskPushNotificationConfig, ...]
        | AgentCard
        | None
    )


class EventWriter(Protocol):
    """Spells the events of one stream, in their order."""

    def write_event(self, record: Record, *, last: bool) -> bytes:
        """Spell one event of a stream as JSON; `last` says that the stream ends after it."""
        ...


class Dialect(EventWriter, Protocol):
    """One wire format. Pure: no I/O, no state."""

    @property
    def row(self) -> Row:
        """What the table says of its version."""
        ...

    @property
    def version(self) -> str:
        """The protocol version spoken: that of its row."""
        ...

    @property
    def origin(self) -> str:
        """The tag of tasks that begin in it: its version, and after a slash what more is to be remembered."""
        ...

    @property
    def asks(self) -> bool:
        """False when callers of this version expect an answer or a failure, never a question about arguments."""
        ...

    def read_request(self, operation: Operation, params: bytes) -> Request:
        """Read the parameters of an operation from JSON text.

        Raises:
            InvalidParams: with the field named.
            ParseError: the text is not JSON.
            MethodNotFound: this version has no such operation.
        """
        ...

    def read_values(self, operation: Operation, params: dict[str, Any]) -> Request:
        """Read the parameters from a path, a query string or decoded JSON; numbers may be text.

        Raises:
            InvalidParams: with the field named.
            MethodNotFound: this version has no such operation.
        """
        ...

    def write_result(self, operation: Operation, result: Result) -> bytes:
        """Spell the result of an operation as JSON."""
        ...

    def event_writer(self, artifacts: Sequence[str] = ()) -> EventWriter:
        """What spells the events of one stream: the dialect itself, or an object that remembers that stream.

        `artifacts` are the ids of those the task has already, for a stream that goes on in the middle.
        """
        ...


class CallingDialect(Dialect, Protocol):
    """A dialect from the caller's side too: requests are spelled, answers are read."""

    def write_params(self, operation: Operation, request: Request) -> bytes:
        """Spell the parameters of an operation as JSON; what this version cannot say is left out.

        Raises:
            MethodNotFound: this version has no such operation.
        """
        ...

    def read_result(self, operation: Operation, data: Any) -> Result:
        """Read the result of an operation from JSON text or decoded JSON.

        Raises:
            BadResponse: it is not what this version promises.
            BadCard: the extended card cannot be read.
        """
        ...

    def read_task(self, data: bytes | dict[str, Any]) -> Task:
        """Read a task.

        Raises:
            BadResponse: it is not one.
        """
        ...

    def read_message(self, data: bytes | dict[str, Any]) -> Message:
        """Read a message.

        Raises:
            BadResponse: it is not one.
        """
        ...

    def read_event(self, data: bytes | dict[str, Any]) -> StreamResponse:
        """Read one event of a stream.

        Raises:
            BadResponse: it is not one.
        """
        ...
