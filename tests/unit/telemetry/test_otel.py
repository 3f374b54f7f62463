"""The metrics as a reader of OpenTelemetry gets them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from dragoman.telemetry.metrics import otel
from dragoman.telemetry.metrics.catalog import Metrics
from dragoman.telemetry.metrics.otel import MeterForwarding


class Reader:
    """A provider, and what a reader of it sees."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric for resource in data.resource_metrics for scope in resource.scope_metrics
            for metric in scope.metrics
        }  # fmt: skip

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        return {tuple(sorted(point.attributes.items())): point for point in self.metrics()[name].data.data_points}


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)  # as tests of other frameworks have it in this process


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.provider.shutdown()


def test_every_kind_is_forwarded_with_the_names_of_the_catalog(metrics: Metrics, reader: Reader) -> None:
    MeterForwarding(metrics).start(reader.provider)
    assert metrics.on
    metrics.deliveries.add(3, ("ok",))
    metrics.streams.set(5, ("demo",))
    metrics.operations.observe(0.003, ("demo", "SendMessage", "1.0", ""))
    metrics.operations.observe(0.5, ("demo", "SendMessage", "1.0", "TASK_NOT_FOUND"))
    metrics.commit_bytes.add(10)
    [delivered] = reader.points("dragoman.webhook.deliveries").items()
    assert (delivered[0], delivered[1].value) == ((("outcome", "ok"),), 3)
    assert reader.points("dragoman.streams")[("gen_ai.agent.name", "demo"),].value == 5
    calls = reader.points("a2a.server.operation.duration")
    common = (("a2a.method.name", "SendMessage"), ("a2a.protocol.version", "1.0"))
    good = calls[*common, ("gen_ai.agent.name", "demo")]
    assert (good.count, good.sum, good.explicit_bounds) == (1, 0.003, metrics.operations.bounds)
    assert calls[*common, ("error.type", "TASK_NOT_FOUND"), ("gen_ai.agent.name", "demo")].count == 1
    found = reader.metrics()
    assert found["a2a.server.operation.duration"].unit == "s"
    assert found["dragoman.journal.bytes"].unit == "By"
    assert found["dragoman.journal.bytes"].description == metrics.commit_bytes.help


def test_every_metric_of_the_catalog_can_be_forwarded(metrics: Metrics, reader: Reader) -> None:
    MeterForwarding(metrics).start(reader.provider)
    for metric in metrics.metrics.values():
        labels = ("x",) * len(metric.labels)
        record = getattr(metric, {"counter": "add", "gauge": "set", "histogram": "observe"}[metric.kind])
        record(1, labels)
    assert set(reader.metrics()) == set(metrics.metrics)


def test_another_provider_takes_the_place_of_the_one_before(metrics: Metrics, reader: Reader) -> None:
    forwarding, second = MeterForwarding(metrics), Reader()
    forwarding.start(reader.provider)
    forwarding.start(reader.provider)
    forwarding.start(second.provider)
    metrics.webhooks_dead.add(1)
    metrics.syncs.observe(1)
    assert reader.metrics() == {}
    assert set(second.metrics()) == {"dragoman.webhook.dead", "dragoman.journal.sync.duration"}
    forwarding.stop()
    forwarding.stop()
    assert not metrics.on
    metrics.syncs.observe(1)
    second.provider.shutdown()


def test_labels_without_end_are_forwarded_as_others(
    metrics: Metrics, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "MAX_SERIES", 3)
    MeterForwarding(metrics).start(reader.provider)
    for number in range(10):
        metrics.first_tokens.observe(1, (f"agent{number}", "skill"))
    points = reader.points("a2a.server.time_to_first_token")
    assert points[("dragoman.skill", "other"), ("gen_ai.agent.name", "other")].count == 7
    assert len(points) == 4


def test_a_provider_of_the_program_is_found_and_nothing_is_imported_without_one() -> None:
    code = (
        "import asyncio, sys\n"
        "from dragoman import Agent\n"
        "from dragoman.telemetry.metrics import METRICS\n"
        "async def run(name):\n"
        "    app = Agent(name).app(store='memory:')\n"
        "    await app.start()\n"
        "    await app.stop()\n"
        "asyncio.run(run('first'))\n"
        "assert not METRICS.on and not any(name.startswith('opentelemetry') for name in sys.modules)\n"
        "from opentelemetry import metrics\n"
        "asyncio.run(run('second'))\n"
        "assert not METRICS.on\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\n"
        "reader = InMemoryMetricReader()\n"
        "metrics.set_meter_provider(MeterProvider([reader]))\n"
        "asyncio.run(run('third'))\n"
        "assert METRICS.on\n"
        "METRICS.webhooks_dead.add(1)\n"
        "assert 'dragoman.webhook.dead' in reader.get_metrics_data().to_json()\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
