"""The phases of a live task: the table on the page is that of the code, and every transition happens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.bus.local import LocalBus
from dragoman.clock import timestamp
from dragoman.engine.journal.journal import Journal
from dragoman.engine.journal.live import SMALL_BYTES, LiveTask
from dragoman.engine.journal.new_task import NewTask
from dragoman.engine.journal.phase import TRANSITIONS, Phase
from dragoman.engine.ports.ownership import Claim
from dragoman.engine.ports.sole import SoleOwner
from dragoman.engine.ports.store import Scope, TaskRow
from dragoman.model.error import ServerError
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Folding
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
BROKEN = {Phase.LOST, Phase.REFUSED}
# What a row leaves out, and the page says below the table.
STOPS = {phase: (set() if phase in {Phase.NEW, *BROKEN} else set(BROKEN)) for phase in Phase} | {
    phase: {*BROKEN, Phase.INTERRUPTED}
    for phase in (Phase.DRAFT, Phase.REPLYING, Phase.QUEUED, Phase.UNLOADED, Phase.RUNNING)
}


def test_the_table_on_the_page_is_that_of_the_code() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Phases of a live task\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z]+) \| .+? \| ([A-Z, ]*)\|$", section, re.MULTILINE)
    page = {Phase[name]: {Phase[each.strip()] for each in after.split(",") if each.strip()} for name, after in rows}
    assert {phase: set(after) - STOPS[phase] for phase, after in TRANSITIONS.items()} == page
    assert all(STOPS[phase] <= set(after) for phase, after in TRANSITIONS.items())


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_from_which_nothing_follows_is_over(phase: Phase) -> None:
    followers = TRANSITIONS[phase]
    assert phase.is_over or any(not after.is_broken for after in followers)
    assert not (phase.is_over and any(not after.is_over for after in followers if phase is not Phase.PAUSED))


# -- every edge --------------------------------------------------------------------------------------------------------

LARGE = "x" * (SMALL_BYTES + 1)


class Traveler:
    """A live task in a store in memory, which goes from phase to phase."""

    def __init__(self) -> None:
        clock = Clock()
        self.store = MemoryStore()
        journal = Journal(self.store, LocalBus(clock), clock, SoleOwner(self.store))
        message = Message("m", Role.USER, (Part(text=LARGE),), "c", "t")
        row = TaskRow(1, "t", Scope("agent", "", ""), "c", "1.0", State.SUBMITTED, 0, 1, 0)
        task = Task("t", "c", TaskStatus(State.SUBMITTED, None, timestamp(0)), history=(message,))
        self.task = task
        self.live = LiveTask(journal, Claim(1, 0), row, Folding(task), Phase.NEW, committed=0, new=NewTask(row, task))

    async def go(self, phase: Phase) -> None:
        """Do what leads to a phase from the one before."""
        live = self.live
        reply = Message("r", Role.AGENT, (Part(text="hello"),))
        steps: dict[object, Callable[[], object]] = {
            Phase.DRAFT: live.write_draft,
            Phase.REPLYING: live.begin,
            Phase.REPLIED: lambda: live.finish_with_reply(reply),
            Phase.QUEUED: live.create,
            (Phase.UNLOADED, Phase.QUEUED): lambda: live.reload(Folding(self.task)),
            (Phase.PAUSED, Phase.QUEUED): lambda: live.status(State.WORKING),
            (Phase.NEW, Phase.RUNNING): lambda: live.create(starts=True),
            (Phase.DRAFT, Phase.RUNNING): live.open,
            (Phase.REPLYING, Phase.RUNNING): live.open,
            Phase.RUNNING: live.begin,
            Phase.PAUSED: lambda: live.status(State.INPUT_REQUIRED),
            Phase.ENDED: lambda: live.status(State.COMPLETED),
            Phase.INTERRUPTED: live.abandon,
            Phase.LOST: live.lose,
            Phase.REFUSED: lambda: live.durability.add_note()(ServerError("the disk is full")),
        }
        if phase is Phase.UNLOADED:
            unloaded = asyncio.get_running_loop().create_future()
            live.unload(lambda: unloaded.set_result(None))
            await unloaded
        else:
            (steps.get((live.phase, phase)) or steps[phase])()


def shortest_way(to: Phase) -> list[Phase]:
    ways = [[Phase.NEW]]
    for way in ways:
        if way[-1] is to:
            return way[1:]
        ways += [[*way, after] for after in TRANSITIONS[way[-1]] if after not in way]
    raise AssertionError(f"nothing leads to {to}")


@pytest.mark.parametrize(("before", "after"), [(before, after) for before in Phase for after in TRANSITIONS[before]])
async def test_every_transition_happens(before: Phase, after: Phase) -> None:
    traveler = Traveler()
    await traveler.store.open()
    for phase in (*shortest_way(before), after):
        await traveler.go(phase)
        assert traveler.live.phase is phase
    await traveler.store.close()


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.NEW])
async def test_who_waits_for_a_task_that_is_stopped_gets_an_error(phase: Phase) -> None:
    traveler = Traveler()
    await traveler.store.open()
    for each in shortest_way(phase):
        await traveler.go(each)
    if phase.is_broken or phase is Phase.INTERRUPTED:
        with pytest.raises(ServerError):
            await traveler.live.wait_durable()
        with pytest.raises(ServerError):
            traveler.live.status(State.WORKING)
    else:
        await traveler.live.wait_durable()
    await traveler.store.close()


async def test_a_task_that_has_ended_does_not_begin_again() -> None:
    traveler = Traveler()
    await traveler.store.open()
    for phase in shortest_way(Phase.ENDED):
        await traveler.go(phase)
    with pytest.raises(AssertionError, match=r"cannot go from Phase\.ENDED to Phase\.RUNNING"):
        traveler.live.begin()
    await traveler.store.close()
