"""The interface of a dialect, for servers and for clients."""

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
    """Writes the events of one stream, in order."""

    def write_event(self, record: Record, *, last: bool) -> bytes:
        """Encode one event of a stream as JSON; `last` says that the stream ends after it."""
        ...


class Dialect(EventWriter, Protocol):
    """One wire format, from the server side: reads requests, writes results and events. Pure: no I/O, no state."""

    @property
    def row(self) -> Row:
        """Its row in the version table."""
        ...

    @property
    def version(self) -> str:
        """Its protocol version."""
        ...

    @property
    def origin(self) -> str:
        """The origin stored with tasks created in it: its version, and after a slash the variant, if any."""
        ...

    @property
    def asks(self) -> bool:
        """False when callers of this version expect a result or a failure, never a question about missing arguments."""
        ...

    @property
    def appends(self) -> bool:
        """False when its caller does not append the chunks of a streamed text, and needs the whole text at its end."""
        ...

    def read_request(self, operation: Operation, params: bytes) -> Request:
        """Read the request of an operation from the JSON text of its parameters.

        Raises:
            InvalidParams: a value is missing or invalid; the error names its field.
            ParseError: the text is not JSON.
            MethodNotFound: this version has no such operation.
        """
        ...

    def read_values(self, operation: Operation, params: dict[str, Any]) -> Request:
        """Read the request from a path, a query string or decoded JSON; numbers may be text.

        Raises:
            InvalidParams: a value is missing or invalid; the error names its field.
            MethodNotFound: this version has no such operation.
        """
        ...

    def write_result(self, operation: Operation, result: Result) -> bytes:
        """Encode the result of an operation as JSON.

        Raises:
            MethodNotFound: this version has no such operation.
        """
        ...

    def event_writer(self, artifacts: Sequence[str] = ()) -> EventWriter:
        """Return the writer of one stream: the dialect itself, or an object with the state of that stream.

        `artifacts` are the ids of the artifacts the task already has, for a stream that is resumed.
        """
        ...


class CallingDialect(Dialect, Protocol):
    """A dialect that also serves clients: writes requests, reads results and events."""

    def write_params(self, operation: Operation, request: Request) -> bytes:
        """Encode the parameters of an operation as JSON; what this version cannot express is left out.

        Raises:
            MethodNotFound: this version has no such operation.
        """
        ...

    def read_result(self, operation: Operation, data: Any) -> Result:
        """Read the result of an operation from JSON text or decoded JSON.

        Raises:
            BadResponse: it does not follow this version.
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
