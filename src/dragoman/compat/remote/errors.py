"""What goes wrong with remote agents, under the source document's names."""

from __future__ import annotations

from dragoman.model.error import BadCard, CannotConnect, DragomanError


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
