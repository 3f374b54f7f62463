"""The command line that is offered to whoever wants a port that another server has."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from dragoman.cli.serve.second import with_command
from dragoman.server.config.settings import Settings
from dragoman.server.config.values import ListenAddress
from dragoman.server.listen.port import PortInUse, bind


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def offered(monkeypatch: pytest.MonkeyPatch, settings: Settings, *words: str) -> list[str]:
    """The command line that is offered to whoever has typed this one."""
    monkeypatch.setattr(sys, "argv", ["dragoman", "serve", "one.py", *words])
    with pytest.raises(PortInUse) as caught:
        for flag, port in (("--port", settings.port), ("--grpc", settings.grpc.port if settings.grpc else 0)):
            bind("127.0.0.1", port, flag=flag).close()
    return str(with_command(caught.value, settings)).split("one.py ")[1].split()


def test_a_port_of_grpc_that_is_taken_is_replaced_and_nothing_else(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    settings = Settings(port=0, grpc=ListenAddress("", taken), store="memory:")
    *kept, flag, port = offered(monkeypatch, settings, "--port", "0", "--grpc", str(taken))
    assert (kept, flag) == (["--port", "0"], "--grpc")
    assert int(port) != taken


def test_a_port_of_metrics_that_is_taken_is_replaced_too(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    settings = Settings(port=taken, metrics=ListenAddress("127.0.0.1", taken), store="memory:")
    words = offered(monkeypatch, settings, f"--port={taken}", "--metrics", str(taken))
    http, port, metrics, address = words
    assert (http, metrics) == ("--port", "--metrics")
    assert str(taken) not in (port, address.partition(":")[2])


def test_both_ports_are_replaced_when_both_are_taken(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    settings = Settings(port=taken, grpc=ListenAddress("127.0.0.1", taken), store="memory:")
    words = offered(monkeypatch, settings, f"--port={taken}", f"--grpc=127.0.0.1:{taken}", "--push")
    push, http, port, grpc, address = words
    assert (push, http, grpc) == ("--push", "--port", "--grpc")
    assert address.startswith("127.0.0.1:")
    assert str(taken) not in (port, address.partition(":")[2])
