"""Measures commits, the same for every store that outlives its process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.ports.ownership import ContextBusy, MessageRepeated, OwnershipLost
from dragoman.model.error import TaskGenerationMismatch
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.engine.ports.store import Write

# Refusals that are no fault of the store: others were faster.
CONFLICTS: tuple[type[BaseException], ...] = (TaskGenerationMismatch, MessageRepeated, ContextBusy)


class CommitTime(NamedTuple):
    """How long a commit took, in seconds. `sync` is the part until it was on the disk, where that is known."""

    seconds: float
    changes: int
    size: int
    sync: float | None = None


def commit_time(batch: Sequence[Write], seconds: float, sync: float | None = None) -> CommitTime:
    """Return the time of a commit of these changes, with their number and bytes."""
    return CommitTime(seconds, len(batch), sum([write.size for write in batch]), sync)


def record_commits(
    times: Iterable[CommitTime],
    outcomes: Iterable[BaseException | None],
    conflicts: tuple[type[BaseException], ...] = CONFLICTS,
) -> None:
    """Record commits, and the changes that were refused. Call it on the event loop, while metrics are on."""
    for seconds, changes, size, sync in times:
        METRICS.commits.observe(seconds)
        METRICS.commit_records.observe(changes)
        METRICS.commit_bytes.add(size)
        if sync is not None:
            METRICS.syncs.observe(sync)
    for error in outcomes:
        if error is not None:
            lost = "lost" if isinstance(error, OwnershipLost) else "error"
            METRICS.refused_writes.add(1, ("conflict" if isinstance(error, conflicts) else lost,))
