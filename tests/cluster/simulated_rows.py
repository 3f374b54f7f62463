"""The rows of the simulated database that say who works on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.stores.postgres.database import NodeInfo

if TYPE_CHECKING:
    from dragoman.engine.ports.store import TaskRow


class OwnershipRow:
    """The columns of a task or draft that say who works on it."""

    __slots__ = (
        "attempts",
        "begun",
        "claimed_at",
        "context",
        "draft",
        "epoch",
        "mail",
        "owner",
        "queued_at",
        "row",
        "snapshot_mail",
    )

    def __init__(self, row: TaskRow, owner: int | None, *, draft: bool) -> None:
        self.row = row
        self.owner = owner
        self.epoch = 0 if owner is None else 1
        self.begun = False
        self.attempts = 0
        self.mail = 0
        self.snapshot_mail = 0
        self.claimed_at = 0.0
        self.queued_at = 0  # the arrival of its last message, among all
        self.draft = draft
        self.context = (row.scope, row.context_id)


class ContextRow:
    """The row of a context: the task whose turn it is, and the node it is pinned to."""

    __slots__ = ("home", "running")

    def __init__(self) -> None:
        self.running: int | None = None
        self.home: str | None = None


class NodeRow:
    """The row of a node."""

    __slots__ = ("beat", "dead", "info", "runs", "seen", "stopped")

    def __init__(self, info: NodeInfo, seen: float) -> None:
        self.info = info
        self.beat = 0
        self.dead = False
        self.stopped = False
        self.runs = True
        self.seen = seen

    @property
    def agents(self) -> tuple[str, ...]:
        """Those whose tasks it runs."""
        return self.info.agents if self.runs else ()
