"""Parts of OpenTelemetry that raise: the program has chosen them, and no request and no task fails with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from dragoman import Agent, Client
from dragoman.errors import A2AError
from dragoman.telemetry import trace as trace_context
from dragoman.telemetry.metrics.catalog import Metrics
from dragoman.telemetry.metrics.otel import MeterForwarding
from dragoman.telemetry.spans import TRACING, Tracing
from dragoman.testing import served
from dragoman.transports.observed import error_type


class BrokenSampler(Sampler):
    """Raises for each span."""

    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the sampler is broken")

    def get_description(self) -> str:
        return "broken"


class BrokenProcessor(SpanProcessor):
    """Raises when a span begins, or only when it ends."""

    def __init__(self, method: str) -> None:
        self._method = method

    def on_start(self, *_: Any, **__: Any) -> None:
        if self._method == "start":
            raise RuntimeError("the processor is broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the processor is broken")


@pytest.fixture(params=["sampler", "start", "end"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A provider with one part that raises, which is the program's for one test."""
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)  # as tests of other frameworks have it in this process
    provider = TracerProvider(BrokenSampler() if request.param == "sampler" else ALWAYS_ON, shutdown_on_exit=False)
    if request.param != "sampler":
        provider.add_span_processor(BrokenProcessor(request.param))
    with monkeypatch.context() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: provider)
        TRACING.__init__()
        TRACING.detect()
        yield
    TRACING.__init__()
    TRACING.detect()


@pytest.mark.usefixtures("broken")
async def test_a_task_completes_when_a_part_of_opentelemetry_raises(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("Echo")

    @agent.skill
    async def echo(text: str) -> str:
        return text

    with served(agent, otel_content=True) as url:
        async with Client(url) as client:
            assert (await client.send("hi")).text == "hi"
            assert "".join([event.text async for event in client.stream("once more")]) == "once more"
    warnings = [record for record in caplog.records if record.name == "dragoman.telemetry"]
    assert len(warnings) == 1
    assert "spans are lost" in warnings[0].getMessage()


def test_a_provider_that_gives_no_tracer_turns_spans_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Provider:
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("the provider is broken")

    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    tracing = Tracing()
    tracing.detect()
    assert not tracing.on


def test_a_propagator_that_raises_keeps_no_request_from_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def inject(*_: Any, **__: Any) -> None:
        raise RuntimeError("the propagator is broken")

    monkeypatch.setattr(propagate, "inject", inject)
    headers: dict[str, str] = {}
    trace_context.inject(headers)
    assert headers == {}


class BrokenMeterProvider:
    """Its instruments raise whatever is recorded."""

    def get_meter(self, *_: Any) -> Any:
        return self

    def create_histogram(self, *_: Any, **__: Any) -> Any:
        return self

    create_observable_counter = create_observable_gauge = create_histogram

    def record(self, *_: Any) -> None:
        raise RuntimeError("the instrument is broken")


def test_a_provider_without_instruments_leaves_metrics_as_they_were(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Provider:
        def get_meter(self, *_: Any) -> Any:
            return object()

    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", Provider())
    metrics = Metrics()
    forwarding = MeterForwarding(metrics)
    assert forwarding.detect() and forwarding.detect()
    forwarding.stop()
    assert not metrics.on
    metrics.begin()
    assert metrics.on
    assert len([record for record in caplog.records if record.name == "dragoman.telemetry"]) == 1


def test_an_instrument_that_raises_keeps_nothing_from_being_recorded(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    provider: Any = BrokenMeterProvider()
    MeterForwarding(metrics).start(provider)
    for _ in range(3):
        metrics.commits.observe(0.1)
    ((_, numbers),) = metrics.commits.series()
    assert sum(numbers[:-1]) == 3
    assert len([record for record in caplog.records if record.name == "dragoman.telemetry"]) == 1


def test_the_reason_of_an_error_is_recorded_as_text() -> None:
    class Own(A2AError):
        reason: Any = 42

    metrics = Metrics()
    metrics.operations.observe(0.1, ("a", "SendMessage", "1.0", error_type(Own())))
    assert [labels for labels, _ in metrics.operations.series()] == [("a", "SendMessage", "1.0", "42")]
