"""The errors of Dragoman, as one tree.

DragomanError
├── ConfigError                     a setting, a target or a skill is wrong; says what to type instead
├── CannotConnect                   there is no server at that address, or the connection was lost
│   └── TimedOut                    there was no answer in time
├── BadCard                         the agent card cannot be read
├── BadResponse                     the response is not A2A
│   └── ResponseTooLarge            it is larger than the limit (.limit)
├── AuthError                       not authenticated or not allowed
├── InputRequired                   the task waits for the caller (.question .task)
├── TaskEnded                       the task ended without a result (.task)
│   ├── TaskFailed
│   ├── TaskRejected
│   └── TaskCanceled
├── Failed, Rejected                raised by an agent: the caller reads the text
└── A2AError                        an error of the protocol (.code .reason .details)
    ├── ParseError  InvalidRequest  MethodNotFound  InvalidParams (.field)  InternalError
    ├── TaskNotFound  TaskNotCancelable  PushNotificationNotSupported  UnsupportedOperation
    ├── ContentTypeNotSupported  InvalidAgentResponse  ExtendedAgentCardNotConfigured
    ├── ExtensionSupportRequired  VersionNotSupported  TaskGenerationMismatch
    └── ServerError  Unauthenticated  Unauthorized  Overloaded
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

if TYPE_CHECKING:
    from dragoman.model.task import Task


class DragomanError(Exception):
    """Base class of Dragoman's errors.

    `reason` is a stable string for programs. `status` is the HTTP status of the response that caused the error, if any.
    """

    reason: str = "DRAGOMAN_ERROR"
    status: int | None = None


class ConfigError(DragomanError):
    """A setting, a target or a skill is wrong; the text says what to do."""

    reason = "CONFIG"


CLIENT_CLOSED = "CLIENT_CLOSED"
"""The reason of a CannotConnect whose request was in flight when its own client was closed."""


class CannotConnect(DragomanError):
    """The server cannot be reached, or the connection was lost.

    `reason` is one of `CANNOT_CONNECT`, `NO_SUCH_HOST`, `BAD_ADDRESS`, `TLS`, `TIMED_OUT`, `CONNECTION_LOST`,
    `NOT_HTTP`, `UNAVAILABLE` and `CLIENT_CLOSED`. `arrived` is False when the server cannot have read the request, and
    None when that is unknown. `status` is set once an answer has begun, also if it broke off.
    """

    reason = "CANNOT_CONNECT"

    def __init__(
        self, text: str, *, reason: str | None = None, arrived: bool | None = None, status: int | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason or type(self).reason
        self.arrived = arrived
        self.status = status


class TimedOut(CannotConnect):
    """The server did not answer in time. `reason` is `TIMED_OUT`."""

    reason = "TIMED_OUT"


class BadCard(DragomanError):
    """The agent card is missing or invalid, or (with `trust`) lacks a valid signature.

    For a signature, `reason` is `NOT_SIGNED`, `UNKNOWN_KEY` or `BAD_SIGNATURE`.
    """

    reason = "BAD_CARD"

    def __init__(self, text: str, *, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason or type(self).reason


class BadResponse(DragomanError):
    """The server's response is not A2A."""

    reason = "BAD_RESPONSE"

    def __init__(self, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class ResponseTooLarge(BadResponse):
    """The server's response is larger than `.limit` bytes. The task itself continues."""

    reason = "RESPONSE_TOO_LARGE"

    def __init__(self, text: str, *, limit: int, status: int | None = None) -> None:
        super().__init__(text, status=status)
        self.limit = limit


class AuthError(DragomanError):
    """The caller is not authenticated (`UNAUTHENTICATED`) or not allowed to do this (`PERMISSION_DENIED`)."""

    reason = "UNAUTHENTICATED"

    def __init__(self, text: str, *, reason: str | None = None, status: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason or type(self).reason
        self.status = status


class InputRequired(DragomanError):
    """The task waits for an answer to `.question`; `.task` is the task to continue."""

    reason = "INPUT_REQUIRED"

    def __init__(self, question: str, *, task: Task) -> None:
        super().__init__(question)
        self.question = question
        self.task = task


class TaskEnded(DragomanError):
    """The task ended without a result; `.task` is its final state."""

    reason = "TASK_ENDED"

    def __init__(self, text: str, *, task: Task) -> None:
        super().__init__(text)
        self.task = task


class TaskFailed(TaskEnded):
    """The task failed."""

    reason = "TASK_FAILED"


class TaskRejected(TaskEnded):
    """The agent refused the task."""

    reason = "TASK_REJECTED"


class TaskCanceled(TaskEnded):
    """The task was canceled."""

    reason = "TASK_CANCELED"


class Failed(DragomanError):
    """Raise it in an agent: the task fails and the caller reads this text."""


class Rejected(DragomanError):
    """Raise it in an agent: the task is rejected and the caller reads this text."""


class A2AError(DragomanError):
    """An error that a server sends to its caller. `reason` is stable; `code` is its JSON-RPC number.

    `text` is the default message. `details` and `metadata` are sent with the error. Raised by an agent's code, it
    reaches the caller, unless the code has `received` it from another agent.
    """

    code: ClassVar[int] = -32603
    reason = "INTERNAL_ERROR"
    text: ClassVar[str] = "Internal error"
    received: bool = False

    def __init__(self, message: str | None = None, *, details: Any = None, **metadata: str) -> None:
        super().__init__(message or self.text)
        self.details = details
        self.metadata = metadata

    @property
    def message(self) -> str:
        """The human-readable text."""
        return str(self)

    def with_content(self, message: str, details: Any, metadata: dict[str, str]) -> Self:
        """Return a copy with this text, details and metadata. The original is its cause."""
        copy = type(self).__new__(type(self), message)
        vars(copy).update(vars(self), details=details, metadata=metadata)
        copy.__cause__ = self
        return copy


E = TypeVar("E", bound=A2AError)


def as_received(error: E) -> E:
    """Mark an error as the answer of another agent, and return it."""
    error.received = True
    return error


class ParseError(A2AError):
    """The payload is not JSON."""

    code = -32700
    reason = "PARSE_ERROR"
    text = "Invalid JSON payload"


class InvalidRequest(A2AError):
    """The JSON is not a request."""

    code = -32600
    reason = "INVALID_REQUEST"
    text = "Request payload validation error"


class MethodNotFound(A2AError):
    """There is no such method or path."""

    code = -32601
    reason = "METHOD_NOT_FOUND"
    text = "Method not found"


class InvalidParams(A2AError):
    """A parameter is missing or wrong; `.field` names it."""

    code = -32602
    reason = "INVALID_PARAMS"
    text = "Invalid parameters"

    def __init__(self, message: str | None = None, *, field: str = "", **metadata: str) -> None:
        super().__init__(message, **metadata)
        self.field = field


class InternalError(A2AError):
    """An internal error of the server."""


class ServerError(A2AError):
    """The server cannot do this now."""

    code = -32000
    reason = "SERVER_ERROR"
    text = "Server error"


class Overloaded(ServerError):
    """The server or the caller has reached a limit; retry later."""

    reason = "RESOURCE_EXHAUSTED"
    text = "The server is busy: try again later"


class TaskNotFound(A2AError):
    """The task does not exist, or belongs to another caller."""

    code = -32001
    reason = "TASK_NOT_FOUND"
    text = "Task not found"


class TaskNotCancelable(A2AError):
    """The task has already ended."""

    code = -32002
    reason = "TASK_NOT_CANCELABLE"
    text = "Task cannot be canceled"


class PushNotificationNotSupported(A2AError):
    """This agent sends no webhooks."""

    code = -32003
    reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    text = "Push notifications are not supported"


class UnsupportedOperation(A2AError):
    """The operation does not apply to this agent or this task."""

    code = -32004
    reason = "UNSUPPORTED_OPERATION"
    text = "This operation is not supported"


class ContentTypeNotSupported(A2AError):
    """The agent cannot read this media type."""

    code = -32005
    reason = "CONTENT_TYPE_NOT_SUPPORTED"
    text = "Content type not supported"


class InvalidAgentResponse(A2AError):
    """The agent's output is not allowed by the protocol."""

    code = -32006
    reason = "INVALID_AGENT_RESPONSE"
    text = "Invalid agent response"


class ExtendedAgentCardNotConfigured(A2AError):
    """The agent declares an extended card and has none."""

    code = -32007
    reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    text = "Extended agent card is not configured"


class ExtensionSupportRequired(A2AError):
    """The agent requires an extension that the request does not declare."""

    code = -32008
    reason = "EXTENSION_SUPPORT_REQUIRED"
    text = "The agent requires an extension"


class VersionNotSupported(A2AError):
    """The requested protocol version is not supported."""

    code = -32009
    reason = "VERSION_NOT_SUPPORTED"
    text = "Protocol version not supported"


class TaskGenerationMismatch(A2AError):
    """The task is not at the generation that the caller expects."""

    code = -32010
    reason = "TASK_GENERATION_MISMATCH"
    text = "The task has changed"


class Unauthenticated(A2AError):
    """The request has no credentials, or invalid ones."""

    code = -31401
    reason = "UNAUTHENTICATED"
    text = "Authentication required"


class Unauthorized(A2AError):
    """The caller lacks the permission for this."""

    code = -31403
    reason = "PERMISSION_DENIED"
    text = "Not allowed"
