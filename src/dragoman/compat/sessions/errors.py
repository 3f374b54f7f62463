"""The exceptions of the source documents, and the HTTP responses for them."""

from __future__ import annotations

from typing import Any

from dragoman.model.error import AuthError, BadCard, CannotConnect, DragomanError


class ValidationError(BadCard):
    """Invalid input: a request body, an agent card, or a URL that the guard blocks (the text begins `Blocked URL:`)."""

    reason = "VALIDATION_ERROR"


class ExternalServiceError(CannotConnect):
    """A remote agent does not respond, or with an error. `status` is its HTTP status, None without a response.

    `reason` is that of `CannotConnect`; it is `UNAVAILABLE` when there is a status.
    """

    def __init__(
        self, text: str, *, status: int | None = None, reason: str = "UNAVAILABLE", arrived: bool | None = None
    ) -> None:
        super().__init__(text, reason=reason, arrived=arrived)
        self.status = status


class BudgetExceededError(DragomanError):
    """A call would exceed the budget of its session; nothing was sent.

    `limit` is `calls`, `agents` or `cooldown`. `retry_after_ms` is set for `cooldown` only: the others do not pass.
    """

    reason = "BUDGET_EXCEEDED"

    def __init__(self, text: str, *, limit: str, retry_after_ms: int | None = None) -> None:
        super().__init__(text)
        self.limit = limit
        self.retry_after_ms = retry_after_ms


class NotFoundError(DragomanError):
    """A resource does not exist: `Agent with default project not found`."""

    reason = "NOT_FOUND"

    def __init__(self, resource: str, id: str | None = None) -> None:
        super().__init__(f"{resource} not found" if id is None else f"{resource} {id} not found")
        self.resource = resource
        self.id = id


class AuthenticationError(AuthError):
    """The caller has no credentials, or invalid ones."""

    reason = "AUTHENTICATION_ERROR"


class AuthorizationError(AuthError):
    """The caller lacks the permission."""

    reason = "AUTHORIZATION_ERROR"


class ConflictError(DragomanError):
    """The resource exists already, or is in a state that does not allow the request."""

    reason = "CONFLICT"


class RateLimitError(DragomanError):
    """Too many requests or tasks. `retry_after` is the number of seconds to wait, if known."""

    reason = "RATE_LIMITED"

    def __init__(self, text: str = "Too many requests", *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


_STATUSES: dict[type[DragomanError], tuple[int, str]] = {
    ValidationError: (400, "VALIDATION_ERROR"),
    AuthenticationError: (401, "AUTHENTICATION_ERROR"),
    AuthorizationError: (403, "AUTHORIZATION_ERROR"),
    NotFoundError: (404, "NOT_FOUND"),
    ConflictError: (409, "CONFLICT"),
    RateLimitError: (429, "RATE_LIMITED"),
    BudgetExceededError: (429, "BUDGET_EXCEEDED"),
    ExternalServiceError: (502, "EXTERNAL_SERVICE_ERROR"),
}


def error_response(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the body `{error, code}` for an exception.

    An exception of any other class is a 500 that does not reveal its text.
    """
    for cls in type(error).__mro__:
        if cls in _STATUSES:
            status, code = _STATUSES[cls]
            return status, {"error": str(error), "code": code}
    return 500, {"error": "Internal server error", "code": "INTERNAL_ERROR"}
