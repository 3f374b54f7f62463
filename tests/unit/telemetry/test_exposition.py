"""What a scrape gets: every metric, with names as Prometheus has them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from dragoman.telemetry.metrics import METRICS
from dragoman.telemetry.metrics.buffer import SeriesReading
from dragoman.telemetry.metrics.catalog import Metrics
from dragoman.telemetry.metrics.exposition import prometheus_name, prometheus_registry


def _text(metrics: Metrics) -> str:
    return generate_latest(prometheus_registry(metrics, metrics.read, "9.9")).decode()


def _sample(text: str, name: str, **labels: str) -> float:
    [value] = [
        each.value for family in parse(text) for each in family.samples if each.name == name and each.labels == labels
    ]
    return value


def test_every_metric_has_a_help_and_a_type_before_anything_was_recorded() -> None:
    text = _text(Metrics())
    for metric in METRICS.metrics.values():
        name = prometheus_name(metric) + ("_total" if metric.kind == "counter" else "")
        assert f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n" in text
    assert 'dragoman_info{version="9.9"} 1.0' in text
    assert "process_start_time_seconds" in text


def test_names_end_with_the_unit_and_counters_with_total() -> None:
    metrics = Metrics()
    names = {prometheus_name(metric): metric.kind for metric in metrics.metrics.values()}
    assert names["a2a_server_operation_duration_seconds"] == "histogram"
    assert names["a2a_server_task_in_progress"] == "gauge"
    assert names["dragoman_journal_bytes"] == "counter"
    assert names["dragoman_lease_remaining_seconds"] == "gauge"
    assert names["dragoman_loop_lag_seconds"] == "histogram"


def test_metrics_can_be_parsed_in_both_formats() -> None:
    metrics = Metrics()
    metrics.operations.observe(0.003, ("demo", "SendMessage", "1.0", ""))
    metrics.operations.observe(1000, ("demo", "SendMessage", "1.0", ""))
    metrics.limits_hit.add(2, ('a "quoted"\nname\\',))
    metrics.streams.set(7, ("demo",))
    registry = prometheus_registry(metrics, metrics.read, "9.9")
    labels = {"gen_ai_agent_name": "demo", "a2a_method_name": "SendMessage"}
    labels |= {"a2a_protocol_version": "1.0", "error_type": ""}
    name = "a2a_server_operation_duration_seconds"
    for text, families in (
        (generate_latest(registry).decode(), parse),
        (generate_openmetrics(registry).decode(), parse_openmetrics),
    ):
        samples = {
            (each.name, *sorted(each.labels.items())): each.value
            for family in families(text)
            for each in family.samples
        }
        assert samples[(f"{name}_count", *sorted(labels.items()))] == 2
        assert samples[(f"{name}_sum", *sorted(labels.items()))] == pytest.approx(1000.003)
        counts = {"0.0025": 0, "0.005": 1, "300.0": 1, "+Inf": 2}
        for bound, count in counts.items():
            assert samples[(f"{name}_bucket", *sorted((labels | {"le": bound}).items()))] == count
        assert samples["dragoman_limits_hit_total", ("limit", 'a "quoted"\nname\\')] == 2
        assert samples["dragoman_streams", ("gen_ai_agent_name", "demo")] == 7


def test_unused_counters_are_zero_and_unknown_gauges_are_missing() -> None:
    text = _text(Metrics())
    assert _sample(text, "dragoman_webhook_dead_total") == 0
    assert _sample(text, "dragoman_journal_commit_duration_seconds_count") == 0
    assert "\ndragoman_lease_remaining_seconds " not in text


def test_series_of_another_version_are_left_out() -> None:
    metrics = Metrics()
    readings = [
        SeriesReading("dragoman.unheard_of", (), [1.0]),
        SeriesReading("dragoman.limits.hit", ("too", "many"), [1.0]),
        SeriesReading("dragoman.loop.lag", (), [1.0, 2.0]),
        SeriesReading("dragoman.limits.hit", ("rate",), [3.0]),
    ]
    text = generate_latest(prometheus_registry(metrics, lambda: readings, "9.9")).decode()
    assert _sample(text, "dragoman_limits_hit_total", limit="rate") == 3
    assert _sample(text, "dragoman_loop_lag_seconds_count") == 0
    assert "unheard" not in text


@pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
def test_the_processes_of_workers_are_added_up_and_their_time_stays_when_they_end() -> None:
    metrics = Metrics()
    worker = subprocess.Popen([sys.executable, "-c", "sum(range(10**7)); input()"], stdin=subprocess.PIPE)
    pids = [worker.pid]
    registry = prometheus_registry(metrics, metrics.read, "9.9", lambda: pids)
    alone, both = _text(metrics), generate_latest(registry).decode()
    for name in ("process_resident_memory_bytes", "process_open_fds"):
        assert _sample(both, name) > _sample(alone, name)
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert _sample(both, name) == _sample(alone, name)
    worker.communicate(b"\n")
    pids.clear()
    after = generate_latest(registry).decode()
    assert _sample(after, "process_cpu_seconds_total") >= _sample(both, "process_cpu_seconds_total")
    assert _sample(after, "process_cpu_seconds_total") > _sample(_text(metrics), "process_cpu_seconds_total")


def test_neither_help_nor_the_package_import_prometheus() -> None:
    code = (
        "import sys, dragoman, dragoman.server.build\n"
        "from dragoman.cli.main import main\n"
        "sys.argv = ['dragoman', 'serve', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'prometheus_client' not in sys.modules and 'opentelemetry' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
