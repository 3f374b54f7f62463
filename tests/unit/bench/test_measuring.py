"""Numbers are read and summed up as they should be."""

from __future__ import annotations

import os
from uuid import UUID

import pytest
from bench import stored
from bench.proc import cpu_of_stat, cpu_seconds, peak_mb, resident_mb
from bench.stats import percentile, ratios, spread
from bench.tables import number, ranged
from bench.wire import Messages


def test_a_spread_is_the_median_and_the_range() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_percentiles_of_few_and_of_no_values() -> None:
    values = [float(value) for value in range(100)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([1.0], 99) == 1.0
    assert percentile([], 50) == 0.0


def test_ratios_are_taken_round_by_round() -> None:
    # The second round was disturbed for both: the ratio is the same.
    assert ratios([100.0, 50.0], [10.0, 5.0]).low == ratios([100.0, 50.0], [10.0, 5.0]).high == 10.0


def test_numbers_have_the_digits_one_reads() -> None:
    assert [number(12345.6), number(12.34), number(0.123)] == ["12,346", "12.3", "0.12"]
    assert ranged(spread([1.0, 1.0])) == "1.0"
    assert ranged(spread([1.0, 2.0, 3.0])) == "2.0 (1.0–3.0)"  # noqa: RUF001


def test_cpu_time_is_read_past_a_name_with_parentheses() -> None:
    fields = ["S", *("0" for _ in range(10)), "150", "50", *("0" for _ in range(20))]
    assert cpu_of_stat(f"42 (a (b) c) {' '.join(fields)}") == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))


def test_this_process_has_used_time_and_memory() -> None:
    pid = os.getpid()
    assert cpu_seconds(pid) > 0
    assert peak_mb(pid) >= resident_mb(pid) > 1


def test_messages_have_ids_of_their_own_and_the_length_they_say() -> None:
    for ids in ("uuid", "typed"):
        messages = Messages(ids)  # type: ignore[arg-type]
        requests = [messages.echo()[0] for _ in range(3)]
        found = {request.partition(b'"messageId":"')[2].partition(b'"')[0].decode() for request in requests}
        assert len(found) == 3
        for request in requests:
            head, _, body = request.partition(b"\r\n\r\n")
            assert f"Content-Length: {len(body)}".encode() in head
        if ids == "uuid":
            assert all(str(UUID(one)) == one for one in found)


def test_stored_tasks_are_known_from_their_number() -> None:
    numbers = range(1000)
    assert len({stored.task_id(number) for number in numbers}) == 1000
    assert len({stored.context_id(number) for number in numbers}) == 1000 // stored.PER_CONTEXT
    assert sum(stored.state(number) == "TASK_STATE_FAILED" for number in numbers) == 1000 // stored.ONE_IN
    assert stored.timestamp(0) == "2100-01-01T00:00:00.000Z"
    assert 1000 - stored.recent_from(1000) == 10
