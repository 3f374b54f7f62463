"""The errors of sessions, each with its status and its code."""

from __future__ import annotations

import pytest

from dragoman import errors
from dragoman.compat import sessions
from dragoman.compat.remote import BudgetExceededError


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (sessions.ValidationError("no"), 400, {"error": "no", "code": "VALIDATION_ERROR"}),
        (sessions.AuthenticationError("who?"), 401, {"error": "who?", "code": "AUTHENTICATION_ERROR"}),
        (sessions.AuthorizationError("not you"), 403, {"error": "not you", "code": "AUTHORIZATION_ERROR"}),
        (sessions.NotFoundError("Task", "7"), 404, {"error": "Task 7 not found", "code": "NOT_FOUND"}),
        (sessions.NotFoundError("Task"), 404, {"error": "Task not found", "code": "NOT_FOUND"}),
        (sessions.ConflictError("taken"), 409, {"error": "taken", "code": "CONFLICT"}),
        (sessions.RateLimitError(), 429, {"error": "Too many requests", "code": "RATE_LIMITED"}),
        (BudgetExceededError("no more", limit="calls"), 429, {"error": "no more", "code": "BUDGET_EXCEEDED"}),
        (
            sessions.ExternalServiceError("A2A: Failed", status=500),
            502,
            {"error": "A2A: Failed", "code": "EXTERNAL_SERVICE_ERROR"},
        ),
        (ValueError("a secret"), 500, {"error": "Internal server error", "code": "INTERNAL_ERROR"}),
    ],
)
def test_an_error_has_the_status_and_the_body_of_the_document(error: Exception, status: int, body: object) -> None:
    assert sessions.error_response(error) == (status, body)


def test_every_one_of_them_is_caught_as_an_error_of_dragoman() -> None:
    names = [name for name in sessions.__all__ if name.endswith("Error")]
    assert len(names) == 7
    assert all(issubclass(getattr(sessions, name), errors.DragomanError) for name in names)
