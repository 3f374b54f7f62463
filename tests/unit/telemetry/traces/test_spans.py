"""Where a span has its parent from, what it costs where nobody samples, and what is passed on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import ClassVar

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator, default_getter, default_setter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from support.otlp_collector import SpanMemory, collected_spans

from dragoman.telemetry import trace as trace_context
from dragoman.telemetry.spans import TRACING

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {
    "host": "x",
    "traceparent": f"00-{TRACE}-{PARENT}-01",
    "tracestate": "vendor=1",
    "baggage": "tenant=blue",
}


def injected() -> dict[str, str]:
    headers: dict[str, str] = {}
    trace_context.inject(headers)
    return headers


def test_a_span_is_the_child_of_the_one_that_headers_name_with_its_state_and_baggage(spans: SpanMemory) -> None:
    span = TRACING.start("GetTask", "server", {"a2a.method.name": "GetTask"}, carrier=HEADERS)
    with span.current():
        assert baggage.get_baggage("tenant") == "blue"
        assert injected() == {
            "traceparent": span.traceparent,
            "tracestate": "vendor=1",
            "baggage": "tenant=blue",
        }
    assert injected() == {}
    span.end()
    found = spans.one("GetTask")
    assert (found.trace_id, found.parent_id, found.kind, found.tracestate) == (TRACE, PARENT, "SERVER", "vendor=1")
    assert found.scope == "dragoman"


def test_the_current_span_is_the_parent_rather_than_the_headers(spans: SpanMemory) -> None:
    with trace.get_tracer("http").start_as_current_span("POST /") as http:
        TRACING.start("SendMessage", "server", {}, carrier=HEADERS).end()
    assert spans.one("SendMessage").parent_id == f"{http.get_span_context().span_id:016x}"


def test_a_kept_context_is_the_parent_rather_than_the_current_span(spans: SpanMemory) -> None:
    with trace.get_tracer("other").start_as_current_span("other"):
        TRACING.start("run", "internal", {}, parent={"traceparent": HEADERS["traceparent"]}).end()
    assert (spans.one("run").trace_id, spans.one("run").parent_id) == (TRACE, PARENT)


def test_a_kept_context_of_the_current_span_keeps_its_baggage(spans: SpanMemory) -> None:
    span = TRACING.start("GetTask", "server", {}, carrier=HEADERS)
    with span.current():
        kept = trace_context.snapshot()
        assert kept == {"traceparent": span.traceparent, "tracestate": "vendor=1"}
        run = TRACING.start("run", "internal", {}, parent=kept)
        with run.current():
            assert baggage.get_baggage("tenant") == "blue"
        run.end()
    assert f"-{spans.one('run').parent_id}-" in span.traceparent


def test_a_root_has_no_parent_and_links_lead_to_valid_contexts_only(spans: SpanMemory) -> None:
    with trace.get_tracer("other").start_as_current_span("other"):
        links = ({"traceparent": HEADERS["traceparent"]}, {"traceparent": "nonsense"}, {})
        TRACING.start("deliver", "producer", {}, root=True, links=links).end()
    found = spans.one("deliver")
    assert (found.parent_id, found.kind, found.links) == ("", "PRODUCER", ((TRACE, PARENT),))


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"])
def test_a_context_that_is_not_valid_begins_a_trace(spans: SpanMemory, traceparent: str) -> None:
    TRACING.start("GetTask", "server", {}, carrier={"traceparent": traceparent}).end()
    assert spans.one("GetTask").parent_id == ""
    assert spans.one("GetTask").trace_id != TRACE


def test_inside_a_trace_that_is_not_sampled_nothing_is_made_and_the_decision_is_passed_on(spans: SpanMemory) -> None:
    carrier = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    with TRACING.start("GetTask", "server", {}, carrier=carrier).current():
        outer = injected()["traceparent"]
        run = TRACING.start("run", "internal", {"a": 1})
        assert not run.recording
        with run.current():
            run.set("b", 2)
            run.describe({"c": 3})
            run.fail("X")
            assert injected()["traceparent"] == outer
        run.make_current()
        run.end()
        assert injected()["traceparent"] == outer
    assert outer.startswith(f"00-{TRACE}-") and outer.endswith("-00")
    assert spans.spans == []


def test_spans_that_the_sampler_drops_are_not_recorded() -> None:
    with collected_spans(ALWAYS_OFF) as spans, TRACING.start("GetTask", "server", {}).current():
        TRACING.start("run", "internal", {}).end()
        assert not int(injected()["traceparent"][-2:], 16) & trace.TraceFlags.SAMPLED
    assert spans.spans == []


def test_a_failed_span_has_the_type_of_its_error(spans: SpanMemory) -> None:
    span = TRACING.start("GetTask", "server", {})
    span.fail("TASK_NOT_FOUND")
    span.end()
    assert spans.one("GetTask").failed
    assert spans.one("GetTask").attributes == {"error.type": "TASK_NOT_FOUND"}


class ShoutingPropagator(TextMapPropagator):
    """Headers of a vendor, with capital letters, instead of those of W3C."""

    fields: ClassVar = {"X-Trace"}

    def extract(
        self,
        carrier: object,
        context: object = None,
        getter: Getter[object] = default_getter,
    ) -> object:
        found = getter.get(carrier, "X-Trace")
        if not found:
            return context or {}
        trace_id, span_id = found[0].split(":")
        span_context = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(1))
        return trace.set_span_in_context(trace.NonRecordingSpan(span_context))

    def inject(
        self,
        carrier: object,
        context: object = None,
        setter: Setter[object] = default_setter,
    ) -> None:
        span_context = trace.get_current_span().get_span_context()
        if span_context.is_valid:
            setter.set(carrier, "X-Trace", f"{span_context.trace_id:032x}:{span_context.span_id:016x}")


def test_other_headers_than_those_of_w3c_are_never_sent_together_with_them(spans: SpanMemory) -> None:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(ShoutingPropagator())
    try:
        TRACING.detect()
        carrier = {"x-trace": f"{TRACE}:{PARENT}", **HEADERS}
        trace_context.extract(carrier)
        span = TRACING.start("GetTask", "server", {}, carrier=carrier)
        with span.current():
            assert injected() == {"X-Trace": f"{TRACE}:{span.traceparent[36:52]}"}
        span.end()
        assert (spans.one("GetTask").trace_id, spans.one("GetTask").parent_id) == (TRACE, PARENT)
    finally:
        propagate.set_global_textmap(before)
        trace_context.current.set(None)


def test_without_a_span_the_context_of_the_request_is_passed_on_unchanged(spans: SpanMemory) -> None:
    trace_context.extract(HEADERS)
    try:
        expected = {name: HEADERS[name] for name in ("traceparent", "tracestate", "baggage")}
        assert injected() == expected
        del expected["baggage"]
        assert trace_context.snapshot() == expected
    finally:
        trace_context.current.set(None)
    assert trace_context.snapshot() is None


def test_tracing_is_off_where_opentelemetry_is_imported_but_not_configured() -> None:
    TRACING.detect()
    assert not TRACING.on


@pytest.mark.parametrize(("disabled", "on"), [("true", "False"), ("false", "True")])
def test_tracing_is_off_where_the_sdk_is_disabled(disabled: str, on: str) -> None:
    code = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry import trace
from dragoman.telemetry.spans import TRACING
trace.set_tracer_provider(TracerProvider())
TRACING.detect()
print(TRACING.on)
"""
    assert output_of(code, OTEL_SDK_DISABLED=disabled) == on


def test_without_a_configuration_nothing_of_opentelemetry_is_imported() -> None:
    code = """
import asyncio, sys
from dragoman import Agent, Client

agent = Agent("quiet")

@agent.skill
def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with Client(agent) as client:
        assert await client.call("add", a=1, b=2) == 3
    async with Client(agent.app(store="memory:")) as client:
        assert await client.call("add", a=1, b=2) == 3
        async for _ in client.stream(tool="add", arguments={"a": 1, "b": 2}):
            pass

asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert output_of(code) == "[]"


def output_of(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=15, env={**inherited, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
