"""The trace of a task in the environment of its program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace as otel
from support.otlp_collector import collected_spans

from dragoman import Agent, Client
from dragoman.agents.process.spec import program_spec
from dragoman.telemetry import trace

PARENT = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "a=1", "baggage": "team=blue"}
VARIABLES = {name.upper(): value for name, value in PARENT.items()}
CODE = """
import json, os
names = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
print(json.dumps({name: os.environ[name] for name in names if name in os.environ}))
"""


@pytest.fixture
def client() -> Client:
    return Client(Agent.from_command(["python3", "-c", CODE], name="telling"))


@pytest.fixture
def incoming() -> Iterator[None]:
    """The trace of a request that has come in, as without OpenTelemetry."""
    trace.extract(PARENT)
    yield
    trace.extract({})


@pytest.mark.usefixtures("incoming")
async def test_a_program_has_the_trace_of_its_task_in_its_environment(client: Client) -> None:
    async with client:
        assert json.loads((await client.send("go")).text) == VARIABLES


async def test_without_a_trace_it_has_none_not_even_that_of_the_server(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "of the server")
    async with client:
        assert json.loads((await client.send("go")).text) == {}


async def test_with_opentelemetry_its_parent_is_a_span_of_the_task(client: Client) -> None:
    with collected_spans() as spans:
        async with client:
            with otel.get_tracer("test").start_as_current_span("asking"):
                variables = json.loads((await client.send("go")).text)
        _, trace_id, span_id, _ = variables["TRACEPARENT"].split("-")
        found = {(each.trace_id, each.span_id) for each in spans.spans}
        assert (trace_id, span_id) in found
        assert trace_id == spans.one("asking").trace_id


async def test_an_interactive_program_keeps_the_trace_of_the_task_that_started_it() -> None:
    shell = Agent.from_command(
        ["bash", "-c", 'while read x; do echo "$x $TRACEPARENT"; done'],
        input="interactive",
        name="shell",
        limits={"quiet": 0.05},
    )
    async with Client(shell) as client:
        trace.extract(PARENT)
        first = await client.send("one")
        trace.extract({"traceparent": f"00-{9:032x}-{9:016x}-01"})
        second = await client.send("two", context=first)
        trace.extract({})
    texts = [first.text, second.text]
    assert texts == [f"{word} {PARENT['traceparent']}" for word in ("one", "two")]


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": "$(touch x)"},
        {"traceparent": PARENT["traceparent"] + "\n"},
        {"traceparent": "", "tracestate": "a=1"},
        {"traceparent": PARENT["traceparent"].upper().replace("0", "A")},
    ],
)
def test_an_invalid_trace_is_not_passed_on(headers: dict[str, str]) -> None:
    trace.extract(headers)
    environment = program_spec("cat").environment({})
    trace.extract({})
    assert not set(VARIABLES) & set(environment)


@pytest.mark.parametrize("baggage", ["a\0b", "a\nb", "x" * 8193, ""])
def test_baggage_that_no_variable_should_hold_is_left_out(baggage: str) -> None:
    trace.extract({**PARENT, "baggage": baggage})
    environment = program_spec("cat").environment({})
    trace.extract({})
    assert (environment["TRACEPARENT"], "BAGGAGE" in environment) == (PARENT["traceparent"], False)


@pytest.mark.usefixtures("incoming")
def test_the_trace_of_the_task_goes_before_that_which_the_owner_sets() -> None:
    environment = program_spec("cat", env=["TRACEPARENT=mine", "BAGGAGE=mine"]).environment({})
    assert {name: environment[name] for name in VARIABLES} == VARIABLES


def test_a_trace_variable_set_by_the_owner_is_kept_without_a_trace() -> None:
    environment: Any = program_spec("cat", env=["TRACEPARENT=mine"]).environment({})
    assert environment["TRACEPARENT"] == "mine"
