"""What commands export where the variables `OTEL_…` ask for it, and what they do when nobody takes it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from support.command import DRAGOMAN
from support.otlp_collector import OtlpCollector, trees
from support.server_process import ServerProcess

from dragoman.cli.telemetry import exporters_of

AGENT = '''
from dragoman import Agent

agent = Agent("greeter", version="4.2")

@agent.skill
async def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"
'''
OWN_PROVIDER = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource({"service.name": "mine"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=50))
trace.set_tracer_provider(provider)
"""
ASKING = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:9"}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**inherited, "DRAGOMAN_STORE": "memory:", **variables}


def serving(folder: Path, variables: Mapping[str, str], code: str = AGENT) -> ServerProcess:
    (folder / "greeter.py").write_text(code)
    return ServerProcess([*DRAGOMAN, "serve", "greeter.py", "--port", "0"], folder, environment=environment(variables))


def stopped(server: ServerProcess) -> tuple[str, float]:
    """Stop a server; everything it has printed to stderr, and how many seconds that took."""
    began = time.monotonic()
    server.end()
    return server.text, time.monotonic() - began


def call(url: str, variables: Mapping[str, str]) -> tuple[str, str, float]:
    """Call the agent with the command; its output, what it wrote to stderr, and how many seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [*DRAGOMAN, "call", url, "greet", "name=Ada"],
        capture_output=True,
        text=True,
        timeout=15,
        env=environment(variables),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, time.monotonic() - began


def test_a_command_and_a_server_export_one_tree(tmp_path: Path) -> None:
    with OtlpCollector() as collector, serving(tmp_path, collector.environment()) as server:
        script = {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}
        output, problems, _ = call(server.url, collector.environment() | script)
        server.end()
        spans = collector.spans
        metrics = collector.metrics()
    assert (output, problems) == ("hello Ada\n", "")
    (tree,) = trees(spans)
    assert tree.outline("a2a.task.state") == (
        "CLIENT SendStreamingMessage @dragoman TASK_STATE_COMPLETED\n"
        "  SERVER SendStreamingMessage @greeter TASK_STATE_COMPLETED\n"
        "    INTERNAL invoke_agent greeter @greeter TASK_STATE_COMPLETED"
    )
    assert (tree.span.trace_id, tree.span.parent_id) == (TRACE, PARENT)
    server_resource = tree.children[0].span.resource
    assert server_resource["service.version"] == "4.2"
    assert server_resource["service.instance.id"] != tree.span.resource["service.instance.id"]
    assert "a2a.server.operation.duration" in metrics


def test_the_variables_name_the_service_and_add_to_the_resource(tmp_path: Path) -> None:
    names = {"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test,service.version=7"}
    with OtlpCollector() as collector, serving(tmp_path, collector.environment() | names) as server:
        call(server.url, {})
        server.end()
        resource = collector.spans[0].resource
    assert [resource[name] for name in ("service.name", "service.version", "deployment.environment")] == [
        "mine",
        "7",
        "test",
    ]


def test_a_program_that_has_a_provider_keeps_it(tmp_path: Path) -> None:
    with OtlpCollector() as collector, serving(tmp_path, collector.environment(), OWN_PROVIDER + AGENT) as server:
        call(server.url, {})
        spans = collector.wait_for_spans("SendStreamingMessage", "invoke_agent greeter")
    assert {span.service for span in spans} == {"mine"}


def away() -> str:
    """The address of a collector that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_collector_that_is_away_is_one_warning_and_delays_nothing(tmp_path: Path) -> None:
    url = away()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url.replace("//", "//me:secret@"), "OTEL_BSP_SCHEDULE_DELAY": "10"}
    with serving(tmp_path, variables) as server:
        for _ in range(2):
            output, problems, seconds = call(server.url, variables)
            assert output == "hello Ada\n"
            assert_warned_once(problems, url)
            assert seconds < 4  # most of it is the start of the command
        log, stopping = stopped(server)
    assert_warned_once(log, url)
    assert stopping < 3


def test_a_collector_that_takes_only_traces_gets_them_and_metrics_are_warned_about_once(tmp_path: Path) -> None:
    with OtlpCollector() as collector:
        collector.refused.add("/v1/metrics")
        often = collector.environment() | {"OTEL_METRIC_EXPORT_INTERVAL": "250"}
        with serving(tmp_path, often) as server:
            for _ in range(3):
                _, problems, _ = call(server.url, often)
                assert_warned_once(problems, collector.url)
            before = collector.refusals  # of the commands, most of them; from now on they are the server's
            collector.wait(lambda it: it.refusals > before + 2)
            log, _ = stopped(server)
        assert len(trees(collector.spans)) == 3
    assert_warned_once(log, collector.url)
    assert "metrics cannot be exported" in log and "OTEL_METRICS_EXPORTER=none" in log


def assert_warned_once(log: str, url: str) -> None:
    assert log.count("cannot be exported to") == 1, log
    assert url in log and "secret" not in log
    assert "Traceback" not in log and "Transient" not in log


def test_a_collector_that_never_answers_delays_the_end_by_two_seconds_at_most(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(tmp_path, {}) as server:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        quick = call(server.url, {})[2]
        output, problems, seconds = call(server.url, variables)
    assert output == "hello Ada\n"
    assert "Traceback" not in problems
    assert seconds < quick + 4


TABLE: list[tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]] = [
    ({}, (), ()),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ("otlp",), ("otlp",)),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, ("otlp",), ()),
    ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, (), ("otlp",)),
    ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",), ()),
    ({"OTEL_TRACES_EXPORTER": "Console, otlp"}, ("console", "otlp"), ()),
    ({"OTEL_METRICS_EXPORTER": "console"}, (), ("console",)),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, (), ("otlp",)),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, (), ()),
    ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, (), ()),
]


@pytest.mark.parametrize(("variables", "traces", "metrics"), TABLE)
def test_the_variables_say_what_is_exported(
    variables: dict[str, str], traces: tuple[str, ...], metrics: tuple[str, ...]
) -> None:
    assert (exporters_of("TRACES", variables), exporters_of("METRICS", variables)) == (traces, metrics)


def in_python(code: str, variables: Mapping[str, str], *arguments: str) -> str:
    """Run a command in a process of its own, after some code; what it wrote to stderr."""
    code = f"import sys\n{code}\nfrom dragoman.cli.main import main\nmain(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=15,
        env=environment(variables),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_without_the_extra_a_warning_says_how_to_install_it_and_the_command_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, {}) as server:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        missing = "sys.modules['opentelemetry.sdk'] = sys.modules['opentelemetry.sdk.resources'] = None"
        log = in_python(missing, variables, "call", server.url, "greet", "name=Ada")
    assert log.count("needs more packages") == 1
    assert "install" in log and "[otel]" in log and "Traceback" not in log


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "there is no exporter 'zipkin' here; there are: otlp, console, none"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "Set it to http/protobuf",
        ),
        (ASKING | {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}, "Set it to http/protobuf"),
        (ASKING | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "7"}, "[0.0, 1.0]. Not"),
        (ASKING | {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "convert string to float: 'soon'"),
        (ASKING | {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be"),
        (ASKING | {"OTEL_METRIC_EXPORT_INTERVAL": "often"}, "invalid value for export interval"),
        (ASKING | {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/file"}, "certificate bundle, invalid path: /no/file"),
        (ASKING | {"OTEL_EXPORTER_OTLP_HEADERS": "SECRET"}, "because it may be a secret"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::"}, "OTEL_EXPORTER_OTLP_ENDPOINT is no URL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "user:SECRET@host"}, "OTEL_EXPORTER_OTLP_ENDPOINT is no URL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:SECRET@127.0.0.1:9/SECRET?k=SECRET"}, "to http://127.0.0.1:9: "),
    ],
)
def test_an_exporter_that_cannot_work_is_a_warning_and_the_command_goes_on(
    tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    with serving(tmp_path, {}) as server:
        output, problems, _ = call(server.url, variables)
    assert output == "hello Ada\n"
    assert problems.count(expected) == 1
    assert "Traceback" not in problems
    assert "SECRET" not in problems


def test_an_unknown_propagator_is_a_warning_and_the_command_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, {}) as server:
        variables = ASKING | {"OTEL_PROPAGATORS": "pigeon"}
        log = in_python("", variables, "call", server.url, "greet", "name=Ada")
    assert log.count("Propagator pigeon not found") == 1
    assert "Traceback" not in log


LIST = "import atexit; atexit.register(lambda: print([m for m in sys.modules if 'opentel' in m], file=sys.stderr))"


def test_nothing_of_opentelemetry_is_imported_unless_a_variable_asks(tmp_path: Path) -> None:
    with serving(tmp_path, {}) as server:
        for variables in ({}, {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "none"}):
            assert in_python(LIST, variables, "call", server.url, "greet", "name=Ada").endswith("[]\n")
    asking = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert in_python(LIST, asking, "--help").endswith("[]\n")


@pytest.mark.timeout(60)
def test_every_worker_exports(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "greeter.py").write_text(AGENT)
    with OtlpCollector() as collector:
        command = [*DRAGOMAN, "serve", "greeter.py", "--port", "0", "--workers", "2", "--store", postgres_url]
        variables = environment({**collector.environment(), "DRAGOMAN_SECRET": "f1ed6a0c" * 8})
        with ServerProcess(command, tmp_path, environment=variables) as server:
            until(lambda: ask_for_nothing(server.url) and len(instances(collector)) == 2)
            server.end()


def instances(collector: OtlpCollector) -> set[str]:
    return {span.resource["service.instance.id"] for span in collector.spans}


def ask_for_nothing(url: str) -> bool:
    """Ask for a task that does not exist, over a connection of its own: it may be any worker's."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"nothing"}}'
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "Connection": "close"}
    with urlopen(Request(url, body, headers), timeout=5) as response:
        return response.status == 200


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
