"""Why a run in this process does not go on, and what the journal says about its task."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from dragoman.engine.journal.phase import Phase
from dragoman.model.error import ServerError
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.engine.journal.live import LiveTask


# How long the end of a task is waited for that another process has claimed.
END_SECONDS = 2


class RunEnd(Enum):
    """Why a run in this process does not go on; the value says it for people."""

    ENDED = "the task has ended, and that could not be stored"
    PAUSED = "the task waits for an answer"
    LOST = "this server has lost the task, which goes on elsewhere"
    REFUSED = "the store has refused to store what the run did"
    STOPPING = "the server is stopping"


_ENDS = {Phase.LOST: RunEnd.LOST, Phase.REFUSED: RunEnd.REFUSED}


class RunEnded(ServerError):
    """A run wanted an effect outside, and does not go on in this process: whoever goes on with it has the effect."""


def run_end(live: LiveTask) -> RunEnd | None:
    """Return why the run of a task does not go on here; None while it does. Any thread may ask.

    Only ENDED and PAUSED are states of the task, and perhaps not durable yet. After the others the task goes on: in
    another process, or in this one after its next start.
    """
    phase = live.phase
    if phase.has_ended:
        return _ENDS.get(phase, RunEnd.ENDED)
    if live.journal.stopping or phase is Phase.INTERRUPTED:
        return RunEnd.STOPPING
    return RunEnd.PAUSED if phase is Phase.PAUSED else None


async def journaled_end(live: LiveTask) -> State | None:
    """Return the final state that the journal has for a task, whoever wrote it; None when it may go on somewhere.

    So an end that is not durable yet is waited for. What a run has begun elsewhere belongs to the task, not to the run:
    only when the task has ended may the run end that, too.
    """
    if run_end(live) is RunEnd.ENDED:
        with suppress(ServerError):
            await live.durability.wait_settled()
            return live.row.state if live.row.state.final else State.COMPLETED  # a bare reply leaves no task
    return await _end_elsewhere(live) if live.phase is Phase.LOST else None


async def _end_elsewhere(live: LiveTask) -> State | None:
    """Return the final state of a task that another process has claimed; None when it has not ended.

    Whoever cancels a task claims it first, so its end is waited for, a moment: a node that takes a task over has
    claimed it, too.
    """
    journal, row = live.journal, live.row
    deadline = journal.clock.now() + round(END_SECONDS * 1000)
    with suppress(ServerError), journal.bus.watch(row.id) as watch:
        while (stored := await journal.store.task(row.id)) is not None:
            if stored.row.number != row.number or stored.epoch == live.claim.epoch:
                return None
            if stored.row.state.final:
                return stored.row.state
            if (left := (deadline - journal.clock.now()) / 1000) <= 0:
                return None
            await watch.wait_past(stored.row.generation, left)
    return None
