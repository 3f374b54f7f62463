"""Moving all that one store has into another: the tables that both sides agree on, and what they count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from dragoman.model.state import State

# What a store consists of, in the order it is copied, with the columns of each table. Plug-in tables come after these.
# `created_ms` is always that of the task, and `attempts` how often its run was started so far. `task` is None in a
# dedupe key that no task has: its message was answered without one.
CONTENTS: dict[str, tuple[str, ...]] = {
    "scopes": ("scope", "agent", "tenant", "owner"),
    "users": ("user", "name", "password", "created_ms", "epoch", "revoked"),
    "grants": ("user", "permission", "until_ms"),
    "api_keys": ("digest", "user", "hint", "created_ms", "until_ms"),
    "tasks": (
        "number",
        "created_ms",
        "id",
        "scope",
        "agent",
        "context_id",
        "origin",
        "state",
        "status_ms",
        "generation",
        "mail",
        "attempts",
    ),
    "drafts": ("number", "created_ms", "id", "scope", "agent", "context_id", "origin", "attempts"),
    "draft_snapshots": ("task", "created_ms", "generation", "mail", "body"),
    "snapshots": ("task", "created_ms", "generation", "mail", "body"),
    "events": ("task", "created_ms", "generation", "at_ms", "body"),
    "notes": ("task", "created_ms", "note", "generation", "kind", "mail", "body"),
    "contexts": ("scope", "context_id", "state"),
    "repeats": ("key", "task", "created_ms", "task_id", "until_ms", "reply"),
    "pushes": (
        "push",
        "task",
        "created_ms",
        "id",
        "dialect",
        "url",
        "secrets",
        "cursor",
        "registered_ms",
        "tries",
        "failing_ms",
        "due_ms",
        "state",
        "error",
    ),
}
Row: TypeAlias = tuple[Any, ...]


class StoreCounts(NamedTuple):
    """How much a store has: the rows of each table of `CONTENTS` and of plug-ins, and the tasks by their state."""

    rows: dict[str, int]
    states: dict[State, int]

    @property
    def total(self) -> int:
        """How many rows there are in all."""
        return sum(self.rows.values())


class CopiedRows(NamedTuple):
    """Consecutive rows of one table, and how many of the table come before them."""

    table: str
    skipped: int
    rows: Sequence[Row]

    @property
    def end(self) -> int:
        """How many rows of the table there are up to the last of these."""
        return self.skipped + len(self.rows)


class MigrationPosition(NamedTuple):
    """How far a migration has come: so many rows of this table, and all of the tables before it.

    `begun` is False for one that begins now, and `complete` is True when nothing is left to do.
    """

    table: str
    rows: int
    begun: bool = True
    complete: bool = False


class Difference(NamedTuple):
    """Rows of a table that are not as they should be: how many, and the key of the first."""

    table: str
    rows: int
    key: str
