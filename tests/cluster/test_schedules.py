"""Random schedules of the whole engine, on a single server and on nodes. Code that breaks a promise is noticed.

A failure names its seed; `make simulate SEEDS=1234` repeats it, and `SEEDS=0-20000` plays many more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from cluster.schedules import play
from cluster.sole import SoleCluster

from dragoman.engine.execute.keeper import ClaimKeeper
from dragoman.engine.execute.reaper import BrokenTaskReaper
from dragoman.engine.execute.runner import Runner
from dragoman.engine.journal.durability import Durability
from dragoman.engine.journal.live import LiveTask
from dragoman.engine.journal.phase import Phase
from dragoman.engine.ports.sole import SoleOwner
from dragoman.stores.sole import DedupeKeys
from dragoman.webhooks.delivery import Delivery

PARTS = 8
PER_PART = 40


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_no_promise_of_the_engine_is_broken(part: int) -> None:
    for seed in range(part * PER_PART, (part + 1) * PER_PART):
        play(seed)


def test_a_single_server_does_the_same_twice_with_one_seed() -> None:
    first, second = (SoleCluster(7, storm=3).play(100) for _ in range(2))
    assert first.audit.journals == second.audit.journals
    assert list(first.trace) == list(second.trace)
    assert first.audit.commits > 20


# -- broken code is noticed --------------------------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def answers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    async def return_at_once(*_: Any, **__: Any) -> None:
        """Wait for nothing."""

    patch.setattr(LiveTask, "wait_durable", return_at_once)


def keeps_the_keys_of_refused_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DedupeKeys, "take_back", lambda *_: None)


def forgets_keys_with_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DedupeKeys, "load", lambda *_: None)


def leaves_broken_tasks_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokenTaskReaper, "add", lambda *_: None)


def runs_a_context_all_at_once(patch: pytest.MonkeyPatch) -> None:
    init = Runner.__init__

    def in_parallel(runner: Runner, *args: Any) -> None:
        init(runner, *args)
        runner._parallel = True

    patch.setattr(Runner, "__init__", in_parallel)


def begins_again_what_had_begun(patch: pytest.MonkeyPatch) -> None:
    take = SoleOwner.take

    async def as_new(owner: SoleOwner, *args: Any, **options: Any) -> Any:
        return [claimed._replace(begun=False) for claimed in await take(owner, *args, **options)]

    patch.setattr(SoleOwner, "take", as_new)


def loses_an_event_of_a_stream(patch: pytest.MonkeyPatch) -> None:
    records_after = Durability.records_after

    def all_but_one(durability: Durability, generation: int) -> Any:
        records = records_after(durability, generation)
        return records[1:] if records and len(records) > 2 else records

    patch.setattr(Durability, "records_after", all_but_one)


def goes_on_after_the_end(patch: pytest.MonkeyPatch) -> None:
    settle = LiveTask._settle

    def settle_as_running(live: LiveTask, state: Any) -> bytes:
        snapshot = settle(live, state)
        if state.final:
            live.phase = Phase.RUNNING
        return snapshot

    patch.setattr(LiveTask, "_settle", settle_as_running)


def takes_no_work_of_dead_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClaimKeeper, "_take", _nothing)


def loses_the_answer_that_a_run_continues_with(patch: pytest.MonkeyPatch) -> None:
    status = LiveTask.status

    def without_notes(live: LiveTask, *args: Any, **options: Any) -> None:
        options["notes"] = tuple(note for note in options.get("notes", ()) if note[0] != "answer")
        status(live, *args, **options)

    patch.setattr(LiveTask, "status", without_notes)


def believes_that_a_webhook_has_missed_nothing(patch: pytest.MonkeyPatch) -> None:
    init = Delivery.__init__

    def from_its_row(delivery: Delivery, *args: Any, **_: Any) -> None:
        init(delivery, *args)

    patch.setattr(Delivery, "__init__", from_its_row)


async def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


BUGS: tuple[Break, ...] = (
    answers_before_the_commit,
    keeps_the_keys_of_refused_messages,
    forgets_keys_with_the_process,
    leaves_broken_tasks_alone,
    runs_a_context_all_at_once,
    begins_again_what_had_begun,
    loses_an_event_of_a_stream,
    goes_on_after_the_end,
    takes_no_work_of_dead_nodes,
    believes_that_a_webhook_has_missed_nothing,
    loses_the_answer_that_a_run_continues_with,
)


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_broken_code_is_noticed(plant: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("dragoman"), "level", logging.CRITICAL)
    plant(monkeypatch)
    for seed in range(1000):
        try:
            play(seed)
        except Exception:  # noqa: BLE001 - it may also end in confusion
            return
    pytest.fail(f"nobody noticed code that {plant.__name__}")
