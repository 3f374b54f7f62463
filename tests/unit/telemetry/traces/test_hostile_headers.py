"""What callers write into the headers of a trace: only what is valid is kept and passed on, and nothing is logged."""

from __future__ import annotations

import contextvars
import logging
import time

import pytest
from support.otlp_collector import SpanMemory

from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.telemetry import trace
from dragoman.telemetry.conventions import call_attributes, request_attributes, result_attributes
from dragoman.telemetry.spans import TRACING

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def extracted(**headers: str) -> dict[str, str] | None:
    def read() -> dict[str, str] | None:
        trace.extract(headers)
        return trace.current.get()

    return contextvars.copy_context().run(read)


def test_valid_headers_are_kept_as_they_are() -> None:
    members = ",".join(f"k{number}=v" for number in range(64))
    for text in ("tenant=blue", "a = 1 ;prop;other=x , b=%C3%A4", members, f"a={'v' * 4000},b={'v' * 4000}"):
        headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1,other@x=2", "baggage": text}
        assert extracted(**headers) == headers


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "nonsense",
        "x" * 60_000,
        f"{TRACEPARENT}\n",
        f"{TRACEPARENT}-more",
        TRACEPARENT.upper(),
        f"ff{TRACEPARENT[2:]}",
        TRACEPARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        TRACEPARENT.replace("b7ad6b7169203331", "0" * 16),
        f"{TRACEPARENT[:-1]}\0",
    ],
)
def test_without_a_valid_traceparent_there_is_no_trace_context(traceparent: str) -> None:
    assert extracted(traceparent=traceparent, tracestate="vendor=1", baggage="tenant=blue") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tracestate", value) for value in ("", "v" * 513, "no pair", "a=1\r\nx-admin: yes", "a=\0", "a=ä")),
        *(("baggage", value) for value in ("", "no pair", "a=1,,b=2", "a=1\r\nx-admin: yes", "a=\0", "a=ä")),
        ("baggage", f"a={'v' * 4094},b={'v' * 4094}"),
        ("baggage", f"a={'v' * 4095}"),
        ("baggage", ",".join(f"k{number}=v" for number in range(65))),
    ],
)
def test_other_headers_that_are_not_valid_are_dropped(name: str, value: str) -> None:
    assert extracted(traceparent=TRACEPARENT, **{name: value}) == {"traceparent": TRACEPARENT}


def test_no_baggage_takes_long_to_check() -> None:
    began = time.process_time()
    for text in ("a=" + " " * 8000 + '"', " " * 8000, "a" * 8000, "a=1" + ";" * 8000 + '"', ";" * 8000):
        assert extracted(traceparent=TRACEPARENT, baggage=text) == {"traceparent": TRACEPARENT}
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("text", ["x" * 60_000, "a=1,no pair,b=2", "ä=1", "k" * 5000 + "=v", "a=1," * 400, "a=%"])
def test_opentelemetry_logs_nothing_that_a_caller_has_written(
    spans: SpanMemory, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    caplog.set_level(logging.DEBUG)
    carrier = {"traceparent": TRACEPARENT, "tracestate": text, "baggage": text}
    span = TRACING.start("GetTask", "server", {}, carrier=carrier)
    span.end()
    assert spans.one("GetTask").trace_id == TRACEPARENT[3:35]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")] == []


def test_attributes_are_short_however_long_ids_are() -> None:
    long = "x" * 100_000
    message = Message(
        long, Role.USER, (Part(text="hi"),), task_id=long, context_id=long, reference_task_ids=(long,) * 99
    )
    for attributes in (
        call_attributes("SendMessage", "1.0", long),
        request_attributes(SendMessageRequest(message, tenant=long)),
        request_attributes(GetTaskRequest(long)),
        result_attributes(message),
    ):
        assert len(str(attributes)) < 10_000
