"""The doctor says what grows in PostgreSQL, why it is kept, and what to set."""

from __future__ import annotations

import pytest
from unit.stores.postgres.changes import NOW
from unit.stores.postgres.cluster import Cluster
from unit.stores.postgres.test_days import COMPACT, past

from dragoman.model.state import State
from dragoman.stores.postgres.admin.growth import DayFacts, check_days, check_ended, examine_growth
from dragoman.stores.postgres.sql.partition import MS_PER_DAY

TODAY = 20_773


async def test_a_day_that_a_task_holds_is_named_with_the_task(cluster: Cluster) -> None:
    day = await past(cluster, ago=9)
    await day.task()
    held = await day.task(State.INPUT_REQUIRED)
    await day.node.database.sweep(COMPACT)
    events, kept, ended = await examine_growth(await cluster.stranger())
    assert (events.level, kept.level, ended.level) == ("ok", "ok", "ok")
    assert "of events, of 2 days" in events.says
    assert f"because task {held.id} has been waiting or working since 2027-01-15" in kept.says
    assert "cancel it" in kept.do
    assert ended.says.startswith("1, the oldest of 0 days ago")


async def test_events_that_no_rule_deletes_are_a_warning(cluster: Cluster) -> None:
    day = await past(cluster, ago=9)
    await day.task()
    _, kept, _ = await examine_growth(await cluster.stranger())
    assert (kept.level, kept.do.partition(",")[0]) == ("warn", "set limits_compact")


async def test_an_ordinary_store_has_nothing_to_say(cluster: Cluster) -> None:
    node = await cluster.node()
    await node.create(number=await node.database.numbers(1))
    await node.database.sweep(COMPACT)
    findings = await examine_growth(await cluster.stranger())
    assert [(one.level, one.check) for one in findings] == [("ok", "events"), ("ok", "ended tasks")]


def test_a_store_whose_partitions_end_soon_is_a_warning() -> None:
    days = [DayFacts(TODAY + day, 0, 0, False, 1_000_000) for day in range(-1, 3)]
    finding = check_days(days, TODAY)
    assert finding.level == "warn"
    assert "yesterday; there are partitions for 2 days ahead only" in finding.says


@pytest.mark.parametrize(
    ("tasks", "days", "level"), [(999_999, 400, "ok"), (5_000_000, 29, "ok"), (5_000_000, 30, "warn")]
)
def test_many_old_tasks_are_a_warning(tasks: int, days: int, level: str) -> None:
    finding = check_ended(tasks, NOW - days * MS_PER_DAY, 9_000_000_000, NOW)
    assert finding.level == level
    assert f"{tasks}, the oldest of {days} days ago; 9 GB with their results" == finding.says.replace(".0 ", " ")
