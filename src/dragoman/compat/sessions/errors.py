"""The errors of the source documents, each with an HTTP status and a code."""

from __future__ import annotations

from typing import Any

from dragoman.model.error import AuthError, BadCard, CannotConnect, DragomanError


class ValidationError(BadCard):
    """The agent card arrived, and is none: no JSON object, or without a field it must have.

    Or its URL leads where the guard lets no request go: then nothing was sent, and the text begins `Blocked URL:`.
    """

    reason = "VALIDATION_ERROR"


class ExternalServiceError(CannotConnect):
    """The other side delivers nothing. `status` is its HTTP status, None when it did not even answer.

    `reason` tells how, as in `CannotConnect`; it is `UNAVAILABLE` when there is a status.
    """

    def __init__(
        self, text: str, *, status: int | None = None, reason: str = "UNAVAILABLE", arrived: bool | None = None
    ) -> None:
        super().__init__(text, reason=reason, arrived=arrived)
        self.status = status


class BudgetExceededError(DragomanError):
    """A session may not call that agent, or not yet; nothing was sent.

    `limit` is `calls`, `agents` or `cooldown`. `retry_after_ms` says when to come back, None that it is no use.
    """

    reason = "BUDGET_EXCEEDED"

    def __init__(self, text: str, *, limit: str, retry_after_ms: int | None = None) -> None:
        super().__init__(text)
        self.limit = limit
        self.retry_after_ms = retry_after_ms


class NotFoundError(DragomanError):
    """Something that is needed does not exist: `Agent with default project not found`."""

    reason = "NOT_FOUND"

    def __init__(self, resource: str, id: str | None = None) -> None:
        super().__init__(f"{resource} not found" if id is None else f"{resource} {id} not found")
        self.resource = resource
        self.id = id


class AuthenticationError(AuthError):
    """The caller does not say who it is, or not convincingly."""

    reason = "AUTHENTICATION_ERROR"


class AuthorizationError(AuthError):
    """The caller may not do this."""

    reason = "AUTHORIZATION_ERROR"


class ConflictError(DragomanError):
    """Something is in the way: it exists already, or is in another state."""

    reason = "CONFLICT"


class RateLimitError(DragomanError):
    """It is too much at once. `retry_after` says in how many seconds it is not, if that is known."""

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
    ExternalServiceError: (502, "EXTERNAL_SERVICE_ERROR"),
}


def error_response(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the body `{error, code}` for an error; of one that is not known here it says nothing."""
    for cls in type(error).__mro__:
        if cls in _STATUSES:
            status, code = _STATUSES[cls]
            return status, {"error": str(error), "code": code}
    return 500, {"error": "Internal server error", "code": "INTERNAL_ERROR"}
