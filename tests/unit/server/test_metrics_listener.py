"""The address of metrics: what it serves to whom, and that nobody can hold it up."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from dragoman import Agent
from dragoman.model.error import ConfigError
from dragoman.server.config.values import ListenAddress
from dragoman.server.listen import metrics
from dragoman.server.listen.metrics import MetricsListener, metrics_url
from dragoman.telemetry.metrics import METRICS

HOST = "127.0.0.1"


@pytest.fixture
def listener() -> Iterator[MetricsListener]:
    listener = MetricsListener(ListenAddress(HOST, 0))
    listener.start()
    yield listener
    listener.close()


def _get(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, dict(response.headers), response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def _threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if "process_request" in each.name]


def test_a_scrape_gets_the_numbers_of_this_process_as_text(listener: MetricsListener) -> None:
    METRICS.limits_hit.add(2, ("metrics_listener",))
    status, headers, text = _get(listener.address)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert headers["Server"] == "dragoman"
    assert 'dragoman_limits_hit_total{limit="metrics_listener"} 2.0' in text
    assert "process_resident_memory_bytes" in text


def test_a_scraper_that_accepts_openmetrics_gets_it(listener: MetricsListener) -> None:
    _, headers, text = _get(listener.address, Accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_there_is_one_path_and_one_method(listener: MetricsListener) -> None:
    root = listener.address.removesuffix("/metrics")
    for path in ("/", "/metrics/x", "/favicon.ico", "/%2e%2e/metrics"):
        status, _, text = _get(root + path)
        assert (status, text) == (404, "there is only /metrics here\n")
    status, headers, _ = _get(listener.address, "POST")
    assert (status, headers["Allow"]) == (405, "GET")
    assert _get(listener.address + "?name[]=dragoman_webhook_dead_total")[2].count("# TYPE") == 1


def test_a_foreign_host_is_refused_as_at_the_port_of_the_agents(listener: MetricsListener) -> None:
    """A page whose name leads to 127.0.0.1 may not read the numbers."""
    status, _, text = _get(listener.address, Host="evil.example")
    assert status == 421
    assert "does not answer to 'evil.example'" in text
    for name in ("localhost", "127.0.0.1:9", "[::1]"):
        assert _get(listener.address, Host=name)[0] == 200


def test_hosts_are_allowed_by_the_settings_of_the_server() -> None:
    settings = {"url": "https://agents.example", "allow_hosts": ("metrics.example",), "store": "memory:"}
    app = Agent("hosts", description="Has metrics").app(metrics=f"{HOST}:0", **settings)
    found = {}

    async def visit() -> None:
        await app.start()
        for name in ("metrics.example", "agents.example", "evil.example"):
            found[name] = (await asyncio.to_thread(_get, app.metrics_address, Host=name))[0]
        await app.stop()

    asyncio.run(visit())
    assert found == {"metrics.example": 200, "agents.example": 200, "evil.example": 421}


def test_a_port_on_all_addresses_checks_the_host_of_those_who_come_over_loopback() -> None:
    listener = MetricsListener(ListenAddress("0.0.0.0", 0))
    listener.start()
    try:
        assert _get(listener.address, Host="evil.example")[0] == 421
        assert _get(listener.address)[0] == 200
    finally:
        listener.close()


def test_metrics_are_recorded_while_anybody_listens() -> None:
    was_on = METRICS.on
    first, second = (MetricsListener(ListenAddress(HOST, 0)) for _ in range(2))
    first.start()
    second.start()
    second.start()
    first.close()
    first.close()
    assert METRICS.on
    second.close()
    assert METRICS.on is was_on


def test_a_port_in_use_is_refused_with_a_free_one(listener: MetricsListener) -> None:
    second = MetricsListener(ListenAddress(HOST, listener.port))
    with pytest.raises(ConfigError, match=rf"port {listener.port} is in use: use --metrics \d+, or --metrics 0"):
        second.start()
    second.close()
    assert METRICS.on


def test_a_port_can_be_used_again_at_once() -> None:
    first = MetricsListener(ListenAddress(HOST, 0))
    first.start()
    _get(first.address)
    port = first.port
    first.close()
    second = MetricsListener(ListenAddress(HOST, port))
    second.start()
    assert _get(second.address)[0] == 200
    second.close()


def test_those_who_say_nothing_do_not_hold_up_a_scrape_and_take_few_threads(listener: MetricsListener) -> None:
    silent = [socket.create_connection((HOST, listener.port)) for _ in range(100)]
    try:
        assert _get(listener.address)[0] == 200
        assert len(_threads()) <= metrics._CONNECTIONS
    finally:
        for connection in silent:
            connection.close()


def test_one_who_goes_on_for_ever_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_SECONDS", 0.3)
    listener = MetricsListener(ListenAddress(HOST, 0))
    listener.start()
    began = time.monotonic()
    with socket.create_connection((HOST, listener.port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        with pytest.raises(OSError):
            while True:
                connection.sendall(b"X-More: x\r\n")
                connection.settimeout(0.05)
                try:
                    if connection.recv(1) == b"":
                        raise ConnectionResetError
                except TimeoutError:
                    pass
    assert time.monotonic() - began < 8
    listener.close()


def test_stopping_ends_the_connections_that_are_open() -> None:
    listener = MetricsListener(ListenAddress(HOST, 0))
    listener.start()
    with socket.create_connection((HOST, listener.port), timeout=10) as connection:
        _get(listener.address)  # so the one before has been accepted
        listener.close()
        assert connection.recv(1) == b""


def test_the_url_is_one_that_this_machine_can_use() -> None:
    assert metrics_url("0.0.0.0", 9464) == "http://127.0.0.1:9464/metrics"
    assert metrics_url("::", 9464) == "http://[::1]:9464/metrics"
    assert metrics_url("10.0.0.1", 9464) == "http://10.0.0.1:9464/metrics"


async def test_an_app_listens_from_its_start_to_its_stop() -> None:
    was_on = METRICS.on
    agent = Agent("listens")
    app = agent.app(store="memory:", metrics="127.0.0.1:0")
    await app.start()
    url = app.metrics_address
    assert METRICS.on
    assert "dragoman_info" in _get(url)[2]
    await app.stop()
    assert METRICS.on is was_on
    with pytest.raises(urllib.error.URLError):
        _get(url)


async def test_an_app_that_does_not_start_does_not_listen(listener: MetricsListener) -> None:
    app = Agent("too_late").app(store="memory:", metrics=listener.port)
    with pytest.raises(ConfigError, match="--metrics"):
        await app.start()
    await app.stop()
