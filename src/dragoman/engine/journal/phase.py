"""The phases of a live task, and which may follow each other."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(Enum):
    """What a task with a run in this process goes through. A task is in one phase at a time.

    `is_draft`: no query returns it. `is_begun`: the store knows that the agent's code may have been called.
    `is_broken`: a write was refused. `has_ended`: it takes no more events. `is_over`: further output of the run is
    ignored. `TRANSITIONS` says which phases may come next.
    """

    # Built, and nothing is written.
    NEW = "new"
    # Stored, and no query returns it. The agent's code was not called.
    DRAFT = "draft"
    # A draft whose code runs: it may answer with a bare message.
    REPLYING = "replying"
    # In the store, and not begun: it waits for its context, for room, or for what the agent prepares.
    QUEUED = "queued"
    # Queued, with its content in the store only.
    UNLOADED = "unloaded"
    RUNNING = "running"
    # It waits for an answer or a login.
    PAUSED = "paused"
    ENDED = "ended"
    # Answered with a bare message: there is no task.
    REPLIED = "replied"
    # Another process has it.
    LOST = "lost"
    # The store has refused a write.
    REFUSED = "refused"
    # The run was stopped before the task ended or paused.
    INTERRUPTED = "interrupted"

    # Members are compared by identity, and so they are hashed: that of `Enum` is a call for each look at the table.
    __hash__ = object.__hash__

    is_draft: bool
    is_begun: bool
    is_broken: bool
    has_ended: bool
    is_over: bool

    def __init__(self, name: str) -> None:
        self.is_draft = name in {"draft", "replying"}
        self.is_begun = name in {"draft", "replying", "running"}
        self.is_broken = name in {"lost", "refused"}
        self.has_ended = self.is_broken or name in {"ended", "replied"}
        self.is_over = self.has_ended or name in {"paused", "interrupted"}


_BROKEN = (Phase.LOST, Phase.REFUSED)
_STOPPED = (*_BROKEN, Phase.INTERRUPTED)
# `docs/architecture.md` draws this table.
TRANSITIONS: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.NEW: (Phase.DRAFT, Phase.QUEUED, Phase.RUNNING),
    Phase.DRAFT: (Phase.REPLYING, Phase.RUNNING, *_STOPPED),
    Phase.REPLYING: (Phase.RUNNING, Phase.REPLIED, *_STOPPED),
    Phase.QUEUED: (Phase.RUNNING, Phase.UNLOADED, Phase.ENDED, *_STOPPED),
    Phase.UNLOADED: (Phase.QUEUED, *_STOPPED),
    Phase.RUNNING: (Phase.PAUSED, Phase.ENDED, *_STOPPED),
    Phase.PAUSED: (Phase.QUEUED, Phase.ENDED, *_BROKEN),
    # What was written last may still be refused.
    Phase.ENDED: _BROKEN,
    Phase.REPLIED: _BROKEN,
    Phase.INTERRUPTED: _BROKEN,
    Phase.LOST: (),
    Phase.REFUSED: (),
}
