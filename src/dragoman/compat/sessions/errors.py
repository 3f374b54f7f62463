"""What goes wrong with sessions, under the source document's names: each with a status of HTTP and a code."""

from __future__ import annotations

from typing import Any

from dragoman.compat.remote.errors import ExternalServiceError, NotFoundError, ValidationError
from dragoman.model.error import AuthError, DragomanError


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
