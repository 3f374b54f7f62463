"""What an executor is told about a request, before it is put into anybody's types."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.message import Message
from dragoman.model.task import Task
from dragoman.model.user import User


class Situation(Struct, frozen=True):
    """A message for a task, or the wish to cancel one, which comes without a message.

    `task` is there when the message goes on with an earlier task.
    """

    task_id: str
    context_id: str
    message: Message | None = None
    task: Task | None = None
    metadata: dict[str, Any] = {}
    user: User | None = None
    tenant: str = ""
    extensions: frozenset[str] = frozenset()
