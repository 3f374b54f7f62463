"""The port of a server: one server has it, or several processes that belong together."""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from dragoman.server.listen import port as ports
from dragoman.server.listen.port import PortInUse, SharedPort, bind, bind_shared

HOST = "127.0.0.1"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports can be shared on Linux")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedPort]:
    monkeypatch.setattr(ports, "ORPHAN_SECONDS", 0)
    port = SharedPort(HOST, 0)
    yield port
    port.close()


def listening(port: int) -> socket.socket:
    listener = bind_shared(HOST, port)
    listener.listen()
    return listener


def is_refused(port: int) -> bool:
    """Whether a server that does not share the port is refused it."""
    try:
        with closing(bind(HOST, port)) as server:
            server.listen()
    except (PortInUse, OSError):
        return True
    return False


def test_connections_are_spread_over_all_who_share_the_port(shared: SharedPort) -> None:
    with closing(listening(shared.number)) as one, closing(listening(shared.number)) as two:
        accepted: Counter[int] = Counter()
        for listener in (one, two):
            listener.setblocking(False)
        with ExitStack() as callers:
            for _ in range(64):
                callers.enter_context(closing(socket.create_connection((HOST, shared.number))))
            for number, listener in enumerate((one, two)):
                while True:
                    try:
                        listener.accept()[0].close()
                    except BlockingIOError:
                        break
                    accepted[number] += 1
    assert accepted.total() == 64
    assert min(accepted[0], accepted[1]) > 8


def test_nobody_else_gets_the_port_whether_anybody_listens_or_not(shared: SharedPort) -> None:
    assert is_refused(shared.number)
    with pytest.raises(PortInUse, match=f"port {shared.number} is in use: use --port"):
        SharedPort(HOST, shared.number)
    with closing(listening(shared.number)):
        assert is_refused(shared.number)
        with pytest.raises(PortInUse):
            SharedPort(HOST, shared.number)


def test_a_port_that_is_given_up_can_be_had_at_once_alone_or_shared(shared: SharedPort) -> None:
    with closing(listening(shared.number)) as worker, closing(socket.create_connection(worker.getsockname())) as caller:
        worker.accept()[0].close()  # the server's side goes on closing for a minute
        assert caller.recv(1) == b""
    shared.close()
    with closing(bind(HOST, shared.number)) as server:
        server.listen()
        with closing(socket.create_connection(server.getsockname())):
            server.accept()[0].close()
    SharedPort(HOST, shared.number).close()


def test_a_port_of_a_server_alone_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ORPHAN_SECONDS", 1e6)
    with closing(socket.create_server((HOST, 0))) as taken, pytest.raises(PortInUse):
        SharedPort(HOST, taken.getsockname()[1])


def test_workers_without_a_supervisor_are_waited_for(shared: SharedPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ORPHAN_SECONDS", 60)
    orphan = listening(shared.number)
    shared.close()
    waits = threading.Event()

    def sleep(_: float) -> None:
        orphan.close()
        waits.set()

    monkeypatch.setattr(ports.time, "sleep", sleep)
    SharedPort(HOST, shared.number).close()
    assert waits.is_set()


def test_of_many_who_want_a_port_at_the_same_time_one_gets_it(shared: SharedPort) -> None:
    shared.close()
    start, winners = threading.Barrier(8), list[SharedPort]()

    def reserve() -> None:
        start.wait()
        with suppress(PortInUse):
            winners.append(SharedPort(HOST, shared.number))

    for _ in range(100):
        threads = [threading.Thread(target=reserve) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) <= 1, "two servers would share the port"
        for winner in winners:
            winner.close()
        winners.clear()
