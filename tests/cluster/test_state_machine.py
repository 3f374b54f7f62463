"""Two to five nodes, any faults, in virtual time: whatever happens, no promise is broken.

A failure names its seed. `run_history(seed)` repeats it, step by step.
"""

from __future__ import annotations

from typing import Any

import pytest
from cluster.audit import AuditedDatabase
from cluster.machine import Cluster
from cluster.real_database import RealBackend, RealDatabase
from cluster.simulated_database import SimulatedDatabase
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import Scope, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State

STEPS = 500
NOW = 1_800_000_000.0
STORMS = (0.3, 1, 3, 8)


def run_history(seed: int, steps: int = STEPS) -> Cluster:
    """One history of a cluster: the seed says how many nodes there are, how much goes wrong, and what happens."""
    return cluster_of(seed).play(steps)


def cluster_of(seed: int, **parts: Any) -> Cluster:
    return Cluster(seed, nodes=2 + seed % 4, storm=STORMS[seed // 4 % 4], **parts)


@pytest.mark.parametrize("seed", range(0, 16, 5))  # every number of nodes, and every storm
def test_whatever_happens_no_promise_is_broken(seed: int) -> None:
    cluster = run_history(seed)
    assert len(cluster.audit.rows) > STEPS / 10
    assert cluster.audit.commits > STEPS / 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_a_million_steps(part: int) -> None:
    histories = range(1000 + part, 1000 + 1_000_000 // STEPS, 4)
    assert sum(run_history(seed).steps.total() for seed in histories) >= 250_000


@pytest.mark.timeout(60)
@given(st.integers(16, 1 << 32))
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_a_random_history_breaks_no_promise(seed: int) -> None:
    run_history(seed, STEPS // 4)


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = run_history(5, 200), run_history(5, 200)
    assert first.audit.journals == second.audit.journals
    assert list(first.trace) == list(second.trace)


# -- on a real PostgreSQL ----------------------------------------------------------------------------------------------


def run_on_postgres(url: str, seed: int, steps: int) -> Cluster:
    """A history as above, with the statements of the nodes on PostgreSQL, many at the same time."""
    backend = RealBackend()
    clusters: list[Cluster] = []
    database = RealDatabase(url, lambda: clusters[0].world.now_ms() if clusters else 0, is_hasty=True)
    backend.run(database.open())
    try:
        clusters.append(cluster_of(seed, database=database, backend=backend))
        return clusters[0].play(steps)
    finally:
        backend.run(database.close())
        backend.close()


def test_whatever_happens_postgres_keeps_every_promise(postgres_url: str) -> None:
    run_on_postgres(postgres_url, 6, 100)


@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(16))
def test_thousands_of_steps_on_postgres(postgres_url: str, seed: int) -> None:
    cluster = run_on_postgres(postgres_url, seed, STEPS)
    assert len(cluster.audit.rows) > STEPS / 10


# -- the checks notice what they are there for ------------------------------------------------------------------------


class Impatient(SimulatedDatabase):
    """A database that gives tasks of living nodes away."""

    def _is_dead(self, node: int) -> bool:
        return True


class Forgetful(SimulatedDatabase):
    """A database that forgets which messages it has accepted."""

    def _key_holder(self, key: Any) -> None:
        return None


class Disorderly(SimulatedDatabase):
    """A database that lets all tasks of a context begin at once."""

    def _is_busy(self, row: Any) -> bool:
        return False


class Lossy(SimulatedDatabase):
    """A database that accepts messages for tasks at work, and loses them."""

    async def post(self, row: Any, body: bytes, *args: Any) -> Any:
        outcome = await super().post(row, body, *args)
        notes = self._by_number[row.number].notes if row.number in self._by_number else []
        notes[:] = [note for note in notes if not note.mail]
        return outcome


@pytest.mark.parametrize("broken", [Impatient, Forgetful, Disorderly, Lossy])
def test_a_broken_database_is_noticed(broken: type[SimulatedDatabase]) -> None:
    for seed in range(40):
        database = broken(lambda: 0.0)
        cluster = Cluster(seed, nodes=3, database=database)
        database._now = lambda cluster=cluster: cluster.world.now
        try:
            cluster.play(STEPS // 2)
        except Exception:  # noqa: BLE001 - it may also end in confusion
            return
    pytest.fail(f"nobody noticed that the database is {broken.__name__}")


class Unfenced(SimulatedDatabase):
    """A database that lets everybody write who follows the journal."""

    def _is_fenced_off(self, *args: Any) -> bool:
        return False


async def test_a_write_under_a_claim_that_was_revoked_is_noticed() -> None:
    for database, violations in ((SimulatedDatabase(lambda: NOW), 0), (Unfenced(lambda: NOW), 1)):
        audit = AuditedDatabase(database, lambda: NOW)
        row = TaskRow(1, "t", Scope("agent", "", ""), "c", V1_0, State.SUBMITTED, 0, 1, 0)
        await audit.commit(1, [[Write(row, print, create=True, records=(Record(1, b"{}"),), epoch=1)]])
        assert await audit.claim(2, 1, 1, revoke=True) is not None
        late = Write(structs.replace(row, generation=2), print, records=(Record(2, b"{}"),), epoch=1)
        await audit.commit(1, [[late]])
        assert bool(audit.violations) == bool(violations)
