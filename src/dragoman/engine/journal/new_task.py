"""A task that is about to be created."""

from __future__ import annotations

from msgspec import Struct

from dragoman.engine.ports.store import DedupeKey, Push, TaskRow
from dragoman.model.task import Task


class NewTask(Struct, frozen=True):
    """What is written when a task is created.

    `joins_context` is True when its context may have tasks already. `request` is the encoded `StoredRequest`,
    `dedupe_key` the key of its message, and `webhook` the one in the message's configuration.
    """

    row: TaskRow
    task: Task
    joins_context: bool = False
    request: bytes | None = None
    dedupe_key: DedupeKey | None = None
    webhook: Push | None = None
