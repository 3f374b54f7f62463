"""`dragoman serve` with metrics: at an address of their own, and through OpenTelemetry."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from support.otlp_collector import OtlpCollector
from support.terminal import Terminal

from dragoman import sync

APP = """
import threading
from pathlib import Path
from dragoman import Agent

agent = Agent("demo", description="Demo")


@agent.skill(default=True)
async def echo(text: str) -> str:
    return text


@agent.skill
async def block() -> str:
    Path("blocked").touch()
    while not Path("released").exists():
        pass
    return "done"
"""
OWN_PROVIDER = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider

metrics.set_meter_provider(MeterProvider(shutdown_on_exit=False))
"""
Open = Callable[..., Terminal]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def _scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def _started(server: Terminal) -> tuple[str, str]:
    """The addresses of the server and of its metrics, if it has them."""
    lines = server.until("try  ")
    url = re.findall(r"serving \S+ at (\S+)", lines)[0]
    metrics = re.findall(r"metrics +(\S+)", lines)
    return url, metrics[0] if metrics else ""


def _say_hello(url: str) -> None:
    with sync.Client(url) as client:
        assert client.send("hello").text == "hello"


def _block(url: str) -> None:
    with sync.Client(url) as client:
        client.send(tool="block")


def test_metrics_can_be_read_while_an_agent_blocks_the_event_loop(folder: Path, terminal: Open) -> None:
    server = terminal("serve", "app.py", "--port", "0", "--metrics", "0", "--store", "memory:", NO_COLOR="1")
    url, metrics = _started(server)
    _say_hello(url)
    call = threading.Thread(target=_block, args=(url,), daemon=True)
    call.start()
    while not (folder / "blocked").exists():
        pass
    text = _scrape(metrics)
    (folder / "released").touch()
    assert re.search(r'a2a_server_task_duration_seconds_count{.*dragoman_skill="echo".*} 1\.0', text)
    call.join(10)
    code, _ = server.interrupted()
    assert code == 130


def test_a_program_with_a_provider_of_its_own_keeps_it(folder: Path, terminal: Open) -> None:
    (folder / "app.py").write_text(OWN_PROVIDER + APP)
    with OtlpCollector() as collector:
        environ = {**collector.environment(), "OTEL_METRIC_EXPORT_INTERVAL": "100", "OTEL_TRACES_EXPORTER": "none"}
        server = terminal("serve", "app.py", "--port", "0", "--store", "memory:", NO_COLOR="1", **environ)
        url, _ = _started(server)
        _say_hello(url)
        _, printed = server.interrupted()
        assert "overrid" not in printed.lower()
        assert collector.metrics() == {}
