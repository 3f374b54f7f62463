"""Why a run in this process does not go on, and what the journal says about its task."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from dragoman.model.error import ServerError
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.engine.journal.live import LiveTask


class RunEnd(Enum):
    """Why a run in this process does not go on; the value says it for people."""

    ENDED = "the task has ended, and that could not be stored"
    PAUSED = "the task waits for an answer"
    LOST = "this server has lost the task, which goes on elsewhere"
    REFUSED = "the store has refused to store what the run did"
    STOPPING = "the server is stopping"


class RunEnded(ServerError):
    """A run wanted an effect outside, and does not go on in this process: whoever goes on with it has the effect."""


def run_end(live: LiveTask) -> RunEnd | None:
    """Return why the run of a task does not go on here; None while it does. Any thread may ask.

    Only ENDED and PAUSED are states of the task, and perhaps not durable yet. After the others the task goes on: in
    another process, or in this one after its next start.
    """
    if live.broken:
        return RunEnd.LOST if live.ownership_lost else RunEnd.REFUSED
    if live.ended:
        return RunEnd.ENDED
    if live.is_stopped:
        return RunEnd.STOPPING
    return RunEnd.PAUSED if live.over else None


async def journaled_end(live: LiveTask) -> State | None:
    """Return the final state that the journal has for a task, whoever wrote it; None when it may go on somewhere.

    So an end that is not durable yet is waited for. What a run has begun elsewhere belongs to the task, not to the run:
    only when the task has ended may the run end that, too.
    """
    if run_end(live) is RunEnd.ENDED:
        with suppress(ServerError):
            await live.wait_settled()
            return live.state if live.state.final else State.COMPLETED  # a bare reply leaves no task
    return await live.end_elsewhere() if live.ownership_lost else None
