"""Which waiting changes are written with one statement."""

from __future__ import annotations

import pytest
from unit.stores.postgres.changes import NOW, Change, appended, created, new_row

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import DedupeKey, Note, Push, Write
from dragoman.model.state import State
from dragoman.stores.postgres.batch import BATCH_WRITES, LARGE_BYTES, WriteQueue

A, B = new_row(number=1), new_row(number=2)
HOOK = Push(1, "hook", V1_0, "https://hooks/1", b"", 1, NOW)
KEY = DedupeKey(b"key", NOW + 1000)


def batches(*changes: Change) -> list[list[list[int]]]:
    """The statements for some changes: of each, the sequences of tasks, by the positions of the changes."""
    queue = WriteQueue()
    positions: dict[int, int] = {}
    for position, change in enumerate(changes):
        positions[id(change.write)] = position
        queue.put(change.write)
    found: list[list[list[int]]] = []
    while queue:
        batch = queue.next_batch()
        assert sorted(map(id, batch.writes)) == sorted(id(write) for part in batch.sequences for write in part)
        found.append([[positions[id(write)] for write in sequence] for sequence in batch.sequences])
    return found


def test_the_changes_of_a_task_are_one_sequence() -> None:
    changes = [created(A), created(B), appended(A, 2), appended(B, 2), appended(A, 3)]
    assert batches(*changes) == [[[0, 2, 4], [1, 3]]]


def test_what_must_be_first_in_its_sequence_waits_for_the_next_statement(subtests: pytest.Subtests) -> None:
    firsts = {
        "a run that begins": appended(A, 2, State.WORKING, begins=True, serial=True),
        "an answer with a key": appended(A, 2, dedupe_key=KEY),
        "a deletion": Change(A, delete=True, epoch=1),
        "an opened draft": created(A, opens_draft=True),
        "another claim": appended(A, 2, epoch=2),
        "a webhook": Change(A, pushes=(HOOK,)),
        "a record that does not follow": appended(A, 3),
    }
    for name, change in firsts.items():
        with subtests.test(name):
            assert batches(created(A), change, created(B)) == [[[0], [2]], [[1]]]


def test_a_run_that_occupies_no_context_begins_anywhere() -> None:
    assert batches(created(A), appended(A, 2, begins=True)) == [[[0, 1]]]


def test_nothing_follows_the_end_of_a_claim() -> None:
    for state in (State.COMPLETED, State.INPUT_REQUIRED):
        late = Change(A, notes=(Note(2, "message", b"m"),), epoch=1)
        assert batches(created(A), appended(A, 2, state), late) == [[[0, 1]], [[2]]]


def test_notes_go_with_the_records_around_them() -> None:
    note = Change(A, notes=(Note(1, "begun", b"k"),), epoch=1)
    assert batches(created(A), note, appended(A, 2)) == [[[0, 1, 2]]]


def test_a_change_that_waits_keeps_the_later_ones_of_its_task_behind_it() -> None:
    hook = Change(A, pushes=(HOOK,))
    assert batches(appended(A, 2), hook, appended(A, 3), appended(A, 4)) == [[[0]], [[1]], [[2, 3]]]


def test_a_batch_has_a_most_of_changes() -> None:
    changes = [created(new_row()) for _ in range(BATCH_WRITES + 1)]
    assert [len(batch) for batch in batches(*changes)] == [BATCH_WRITES, 1]


def test_large_changes_take_turns_with_small_ones() -> None:
    large = [created(new_row(), size=LARGE_BYTES + 1) for _ in range(3)]
    small = [created(new_row()) for _ in range(2)]
    assert batches(large[0], small[0], large[1], large[2], small[1]) == [[[1], [4]], [[0]], [[2]], [[3]]]


def test_what_follows_a_large_change_of_its_task_is_not_written_before_it() -> None:
    changes = [appended(A, 2, size=LARGE_BYTES + 1), appended(A, 3), created(B)]
    assert batches(*changes) == [[[2]], [[0, 1]]]


def test_changes_of_a_lost_task_are_removed_from_all_places() -> None:
    queue = WriteQueue()
    changes: list[Write] = [
        change.write for change in (appended(A, 2, size=LARGE_BYTES + 1), created(B), appended(A, 3), appended(A, 4))
    ]
    for write in changes:
        queue.put(write)
    queue.next_batch()
    queue.put(late := appended(A, 5).write)
    assert queue.remove(lambda write: write.row.number == 1) == [changes[0], changes[2], changes[3], late]
    assert not queue
