"""Recording metrics: series, their limit, and files that other processes read."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from dragoman.telemetry.metrics import buffer, registry
from dragoman.telemetry.metrics.buffer import read_series
from dragoman.telemetry.metrics.folder import SeriesFolder, remove_file
from dragoman.telemetry.metrics.registry import Histogram, MetricRegistry

linux = pytest.mark.skipif(sys.platform != "linux", reason="workers share metrics on Linux")
WRITER = """
import sys
from pathlib import Path
from dragoman.telemetry.metrics.registry import MetricRegistry

metrics = MetricRegistry()
calls = metrics.counter("calls", "Calls.", ("agent",))
busy = metrics.gauge("busy", "Busy.")
left = metrics.gauge("left", "Left.", merge="min")
times = metrics.histogram("times", "Times.", bounds=(1, 2))
calls.add(1, ("before",))
metrics.share(Path(sys.argv[1]))
for line in sys.stdin:
    for agent in line.split():
        calls.add(1, (agent,))
        busy.set(busy_now := len(agent))
        left.set(busy_now)
        times.observe(1.5)
    metrics.flush()
    print("recorded", flush=True)
"""


def _metrics() -> MetricRegistry:
    """The same metrics as those of the writer."""
    metrics = MetricRegistry()
    metrics.counter("calls", "Calls.", ("agent",))
    metrics.gauge("busy", "Busy.")
    metrics.gauge("left", "Left.", merge="min")
    metrics.histogram("times", "Times.", bounds=(1, 2))
    return metrics


class Writer:
    """Another process, which records into a file until it is killed."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def record(self, agents: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(agents, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "recorded\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def _numbers(readings: object) -> dict[tuple[str, ...], list[float]]:
    return {(each.name, *each.labels): list(each.values) for each in readings}  # type: ignore[attr-defined]


def test_counters_add_gauges_set_and_histograms_count_by_size() -> None:
    metrics = MetricRegistry()
    calls = metrics.counter("calls", "Calls.", ("agent",))
    busy = metrics.gauge("busy", "Busy.")
    times = metrics.histogram("times", "Times.", bounds=(1, 2))
    calls.add(1, ("a",))
    calls.add(2.5, ("a",))
    calls.add(1, ("b",))
    busy.set(7)
    busy.set(3)
    for value in (0.5, 1, 1.5, 100):
        times.observe(value)
    assert _numbers(metrics.read()) == {
        ("calls", "a"): [3.5],
        ("calls", "b"): [1],
        ("busy",): [3],
        ("times",): [2, 1, 1, 103],
    }


def test_labels_must_be_as_many_as_were_declared() -> None:
    calls = MetricRegistry().counter("calls", "Calls.", ("agent",))
    with pytest.raises(ValueError, match=r"calls has the labels \('agent',\), not \('a', 'b'\)"):
        calls.add(1, ("a", "b"))


def test_a_series_too_many_is_counted_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_SERIES", 3)
    metrics = MetricRegistry()
    calls = metrics.counter("calls", "Calls.", ("agent", "skill"))
    for number in range(10):
        calls.add(1, (f"agent{number}", "x"))
        calls.add(1, ("agent0", "x"))
    numbers = _numbers(metrics.read())
    assert numbers["calls", "other", "other"] == [7]
    assert numbers["calls", "agent0", "x"] == [11]
    assert len(numbers) == 4


def test_labels_that_are_no_names_are_counted_with_the_others() -> None:
    metrics = MetricRegistry()
    calls = metrics.counter("calls", "Calls.", ("agent",))
    calls.add(1, ("x" * 100_000,))
    calls.add(1, ("\ud800",))
    calls.add(1, ("ü" * 10,))
    assert set(_numbers(metrics.read())) == {("calls", "other"), ("calls", "\ud800"), ("calls", "ü" * 10)}


def test_a_full_buffer_still_has_room_for_one_more_of_each_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "SLOTS", 2000)
    metrics = MetricRegistry()
    calls = metrics.histogram("calls", "Calls.", ("agent",))
    times = metrics.histogram("times", "Times.", ("agent",))
    for number in range(500):
        calls.observe(1, (f"agent{number}",))
    times.observe(1, ("late",))
    numbers = _numbers(metrics.read())
    assert numbers["times", "other"][-1] == 1
    assert sum(values[-1] for (name, _), values in numbers.items() if name == "calls") == 500


def test_threads_that_make_the_same_series_at_once_make_one() -> None:
    metrics = MetricRegistry()
    gauges = metrics.gauge("gauges", "Gauges.", ("number",))
    ready = threading.Barrier(8)

    def work(thread: int) -> None:
        ready.wait()
        for number in range(200):
            gauges.set(number, (str(number),))
            gauges.set(thread, (f"own{thread}",))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = _numbers(metrics.read())
    assert numbers == {("gauges", str(number)): [number] for number in range(200)} | {
        ("gauges", f"own{number}"): [number] for number in range(8)
    }


def test_it_is_on_as_long_as_anybody_wants_it() -> None:
    metrics = MetricRegistry()
    metrics.begin()
    metrics.begin()
    metrics.end()
    assert metrics.on
    metrics.end()
    assert not metrics.on


@linux
def test_a_process_that_was_killed_has_left_all_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    writer = Writer(path)
    writer.record("a b a")
    assert _numbers(read_series(path))["calls", "a"] == [2]
    writer.record("a cc " + " ".join(f"x{number}" for number in range(500)))
    writer.kill()
    numbers = _numbers(read_series(path))
    assert numbers["calls", "before"] == [1]
    assert numbers["calls", "a"] == [3]
    assert numbers["calls", "x499"] == [1]
    assert numbers["busy",] == [4]
    assert numbers["times",] == [0, 505, 0, 757.5]


@linux
def test_counters_of_processes_that_ended_stay_and_their_gauges_go() -> None:
    folder = SeriesFolder(_metrics())
    first, second = folder.add("1"), folder.add("2")
    assert folder.read() == []
    writers = Writer(first), Writer(second)
    writers[0].record("a b")
    writers[1].record("a cccc")
    both = {
        ("calls", "before"): [2],
        ("calls", "a"): [2],
        ("calls", "b"): [1],
        ("calls", "cccc"): [1],
        ("times",): [0, 4, 0, 6],
    }
    assert _numbers(folder.read()) == both | {("busy",): [5], ("left",): [1]}
    writers[0].kill()
    folder.end(first)
    assert _numbers(folder.read()) == both | {("busy",): [4], ("left",): [4]}
    assert not first.exists()
    writers[1].record("a")
    assert _numbers(folder.read())["calls", "a"] == [3]
    writers[1].kill()
    folder.end(second)
    assert ("busy",) not in _numbers(folder.read())
    folder.close()
    assert not first.parent.exists()


@linux
def test_sums_do_not_depend_on_the_order_in_which_processes_ended() -> None:
    sums = [0.1, 0.7, 0.3, 1.9, 0.2, 1e-9, 0.6, 1e9]
    totals: set[float] = set()
    for seed in range(20):
        folder = SeriesFolder(_metrics())
        for number in Random(seed).sample(sums, len(sums)):
            path = folder.add(str(number))
            metrics = _metrics()
            metrics.share(path)
            times = metrics.metrics["times"]
            assert isinstance(times, Histogram)
            times.observe(number)
            metrics.flush()
            folder.end(path)
        totals.add(_numbers(folder.read())["times",][-1])
        folder.close()
    assert totals == {math.fsum(sums)}


@linux
def test_a_file_that_is_half_written_or_none_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    assert list(read_series(path)) == []
    path.write_bytes(b"")
    assert list(read_series(path)) == []
    path.write_bytes(b"short")
    assert list(read_series(path)) == []
    path.write_bytes(b"something else that is long enough")
    assert list(read_series(path)) == []
    path.unlink()
    metrics = MetricRegistry()
    calls = metrics.counter("calls", "Calls.", ("agent",))
    metrics.share(path)
    calls.add(1, ("a",))
    whole = path.read_bytes()
    calls.add(1, ("b",))
    # As if the number of series had become visible before the second one.
    path.write_bytes(path.read_bytes()[:16] + whole[16:])
    assert _numbers(read_series(path)) == {("calls", "a"): [1]}


@linux
def test_numbers_are_shared_where_a_system_cannot_reserve_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    metrics = MetricRegistry()
    calls = metrics.counter("calls", "Calls.", ("agent",))
    calls.add(1, ("before",))
    metrics.share(tmp_path / "numbers")
    for number in range(registry.MAX_SERIES - 1):
        calls.add(1, (f"agent{number}",))
    numbers = _numbers(read_series(tmp_path / "numbers"))
    assert len(numbers) == registry.MAX_SERIES
    assert set(map(tuple, numbers.values())) == {(1.0,)}


@linux
def test_a_disk_without_room_costs_series_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = MetricRegistry()
    calls = metrics.counter("calls", "Calls.", ("agent",))
    metrics.share(tmp_path / "numbers")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    for number in range(registry.MAX_SERIES):
        calls.add(1, (f"agent{number}",))
    numbers = _numbers(read_series(tmp_path / "numbers"))
    assert numbers["calls", "other"][0] > 0
    assert sum(values[0] for values in numbers.values()) == registry.MAX_SERIES
    with pytest.raises(OSError, match="No space left"):
        metrics.share(tmp_path / "another")


def test_the_last_of_the_processes_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in "12":
        (folder / name).touch()
    remove_file(folder / "1")
    assert folder.exists()
    remove_file(folder / "2")
    assert not folder.exists()


@linux
def test_a_fork_does_not_write_into_the_numbers_of_its_parent() -> None:
    code = (
        "import os\n"
        "from dragoman.telemetry.metrics import METRICS\n"
        "METRICS.webhooks_dead.add(1)\n"
        "if os.fork() == 0:\n    METRICS.webhooks_dead.add(5)\n    os._exit(0)\n"
        "os.wait()\n"
        "print([list(values) for _, values in METRICS.webhooks_dead.series()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[[1.0]]\n"


def test_numbers_of_a_histogram_are_counted_in_the_same_buckets_one_by_one_and_together() -> None:
    bounds = (0.5, 1, 2)
    numbers = [0, 0.5, 0.50001, 1, 1, 1.5, 2, 2.1, 100] * 7
    metrics = MetricRegistry()
    single = metrics.histogram("single", "One by one.", ("a",), bounds=bounds)
    together = metrics.histogram("together", "Together.", ("a",), bounds=bounds)
    for number in numbers:
        single.observe(number, ("x",))
        assert sum(next(values for _, values in single.series())[:-1]) > 0
        together.observe(number, ("x",))
    expected = [14, 21, 14, 14, sum(numbers)]
    assert [list(values) for _, values in single.series()] == [pytest.approx(expected)]
    assert [list(values) for _, values in together.series()] == [pytest.approx(expected)]


@linux
def test_a_histogram_holds_few_numbers_back(tmp_path: Path) -> None:
    metrics = MetricRegistry()
    times = metrics.histogram("times", "Times.", bounds=(1,))
    metrics.share(tmp_path / "numbers")
    for _ in range(registry.MAX_PENDING - 1):
        times.observe(0.5)
    assert _numbers(read_series(tmp_path / "numbers"))["times",] == [0, 0, 0]
    times.observe(0.5)
    assert _numbers(read_series(tmp_path / "numbers"))["times",] == [registry.MAX_PENDING, 0, registry.MAX_PENDING / 2]


def test_numbers_that_arrive_while_others_are_read_are_counted_once() -> None:
    metrics = MetricRegistry()
    times = metrics.histogram("times", "Times.", bounds=(1,))
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            metrics.flush()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(20_000):
        times.observe(0.5)
    done.set()
    for reader in readers:
        reader.join()
    assert [list(values) for _, values in times.series()] == [[20_000, 0, 10_000]]
