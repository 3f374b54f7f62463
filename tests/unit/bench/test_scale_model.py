"""The simulation behind docs/scaling.md: against queues whose answers are known, and against its page."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import msgspec
import pytest
from bench.scale import page
from bench.scale.check import compare_points
from bench.scale.costs import CommitCost, Linear, Measured, UnitCosts, load
from bench.scale.demand import BEAT_SECONDS, FULL, Bus, Host, batch_size, ceiling, demand, statement_seconds
from bench.scale.fleet import Fleet, Machines
from bench.scale.gauge import line
from bench.scale.timeline import Cores, Disk, Thread, Timeline

from dragoman.server.config.settings import Settings
from dragoman.stores.postgres.lease import BEATS


@pytest.fixture(scope="module")
def measured() -> Measured:
    return load()


@pytest.fixture
def costs(measured: Measured) -> UnitCosts:
    return measured.costs


def _mean_time(service: Callable[[random.Random], float], rate: float, customers: int = 15_000) -> float:
    """The mean time that customers, who come at random, spend with one thread."""
    timeline, numbers = Timeline(), random.Random(7)
    thread = Thread(Cores(timeline, 1))
    spent: list[float] = []

    def arrive() -> None:
        began = timeline.now
        thread.run(service(numbers), lambda: spent.append(timeline.now - began))
        if len(spent) < customers:
            timeline.after(numbers.expovariate(rate), arrive)

    arrive()
    timeline.run(math.inf)
    return sum(spent) / len(spent)


def test_a_thread_with_random_work_is_the_queue_of_the_textbooks() -> None:
    """M/M/1: 1 / (mu - lambda)."""
    assert _mean_time(lambda numbers: numbers.expovariate(1.0), rate=0.6) == pytest.approx(1 / (1 - 0.6), rel=0.1)


def test_work_that_is_always_the_same_waits_half_as_long() -> None:
    """M/D/1: 1/mu + rho / (2 mu (1 - rho))."""
    assert _mean_time(lambda _: 1.0, rate=0.6) == pytest.approx(1 + 0.6 / (2 * 0.4), rel=0.05)


def test_whoever_comes_during_a_sync_shares_the_next_one() -> None:
    """Poisson arrivals at rate a, syncs of S seconds: a·S + exp(-a·S) in each."""
    timeline, numbers = Timeline(), random.Random(3)
    disk = Disk(timeline, lambda _: 0.5)
    done: list[float] = []

    def arrive() -> None:
        disk.sync(1, lambda: done.append(timeline.now))
        if len(done) < 15_000:
            timeline.after(numbers.expovariate(3.0), arrive)

    arrive()
    timeline.run(math.inf)
    assert len(done) / disk.syncs == pytest.approx(1.5 + math.exp(-1.5), rel=0.03)


def test_threads_share_cores_fairly_as_far_as_they_may_move() -> None:
    timeline = Timeline()
    cores = Cores(timeline, 2)
    ends: dict[str, float] = {}
    for name, core in (("first", 0), ("second", 0), ("free", None)):
        Thread(cores, core).run(1.0, lambda name=name: ends.setdefault(name, timeline.now))
    timeline.run(10)
    # Two are kept on one core; the third has the other one for itself.
    assert ends == pytest.approx({"free": 1.0, "first": 2.0, "second": 2.0})


def test_more_threads_than_cores_take_longer_all_alike() -> None:
    timeline = Timeline()
    cores = Cores(timeline, 2)
    ends: list[float] = []
    for _ in range(6):
        Thread(cores).run(1.0, lambda: ends.append(timeline.now))
    timeline.run(10)
    assert ends == pytest.approx([3.0] * 6)


def test_a_line_is_found_through_its_points() -> None:
    found = line({1: 12.0, 10: 30.0, 100: 210.0})
    assert (found.fixed, found.each) == pytest.approx((10.0, 2.0))


def _plain_costs(costs: UnitCosts) -> UnitCosts:
    """Costs with which the answer can be calculated by hand: only the commit of PostgreSQL takes time."""
    nothing, commit = Linear(0.0, 0.0), Linear(0.001, 0.0001)
    one = CommitCost(nothing, commit, nothing)
    both = CommitCost(nothing, Linear(0.001, 0.0002), nothing)
    changes = {"node_send": 1e-9, "node_send_alone": 1e-9, "generator_send": 1e-9, "hop": 0.0, "notify_node": 0.0}
    return msgspec.structs.replace(costs, begin=one, end=one, both=both, notify=nothing, notice=nothing, **changes)


def test_one_caller_waits_for_two_commits(costs: UnitCosts) -> None:
    seen = Fleet(_plain_costs(costs), 1, Machines(cores=2)).closed(1, seconds=1)
    assert (seen.seconds, seen.batch) == pytest.approx((0.0022, 1.0), rel=0.05)


def test_callers_gather_while_a_statement_is_under_way(costs: UnitCosts) -> None:
    """Half of them are in the statement, the other half waits for the next: 40 callers, 20 in each."""
    seen = Fleet(_plain_costs(costs), 1, Machines(cores=2)).closed(40, seconds=1)
    assert seen.batch == pytest.approx(20, rel=0.05)
    assert seen.rate == pytest.approx(20 / 2 / (0.001 + 20 * 0.0001), rel=0.05)


def test_what_is_calculated_is_what_is_simulated(costs: UnitCosts) -> None:
    plain = _plain_costs(costs)
    seen = Fleet(plain, 2, Machines(cores=4)).open(1000, seconds=2)
    host = Host(cores=4, sync=0.0)
    size = batch_size(plain, nodes=2, arrivals=1000, host=host)
    assert seen.batch == pytest.approx(size, rel=0.15)
    expected = 1000 * statement_seconds(plain, 2, 1000, size, host)
    assert size == pytest.approx(expected + math.exp(-expected), rel=0.01)


def test_the_same_seed_gives_the_same_figures(costs: UnitCosts) -> None:
    assert len({Fleet(costs, 2, Machines(cores=2)).closed(4, seconds=0.1, warmup=0.05) for _ in range(2)}) == 1


def test_more_load_uses_more_of_everything(costs: UnitCosts) -> None:
    less, more = demand(costs, 10, 1000, Host()), demand(costs, 10, 10_000, Host())
    assert all(less.used[name] <= more.used[name] for name in less.used)


def test_when_postgresql_is_full_statements_wait_and_grow(costs: UnitCosts) -> None:
    roomy = demand(costs, 100, 20_000, Host(cores=1000))
    tight = demand(costs, 100, 20_000, Host())
    assert tight.waits > 0 and tight.batch > roomy.batch
    assert tight.used["PostgreSQL CPU"] == pytest.approx(FULL, rel=0.01)


def test_wake_ups_for_those_concerned_cost_no_more_than_for_all(costs: UnitCosts) -> None:
    for nodes in (2, 20, 200):
        everyone, concerned = ceiling(costs, nodes, Host()), ceiling(costs, nodes, Host(), Bus(direct=True))
        assert everyone is not None and concerned is not None
        assert concerned.rate >= 0.99 * everyone.rate


def test_beats_come_as_often_as_in_the_code() -> None:
    assert Settings().lease / BEATS == BEAT_SECONDS


def test_the_model_reproduces_what_was_measured(measured: Measured) -> None:
    far = [f"{one.name} {one.what}: {one.ratio:.2f}" for one in compare_points(measured) if not one.is_near]
    assert not far


def test_the_page_has_the_tables_of_the_saved_costs(measured: Measured) -> None:
    text = page.PAGE.read_text()
    assert page.filled(text, page.parts(measured)) == text, "run `python -m bench.scale_model --write`"


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for answer"):
        page.filled("# A page\n", {"answer": "42"})


def test_files_that_the_page_names_exist() -> None:
    links = re.findall(r"\]\((\.\./[^)#]+)", page.PAGE.read_text())
    assert links
    assert [link for link in links if not (page.PAGE.parent / link).exists()] == []
