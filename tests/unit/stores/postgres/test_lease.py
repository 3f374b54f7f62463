"""A node is never declared dead while it counts on its lease, and is soon after."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.stores.postgres.database import Peer
from dragoman.stores.postgres.lease import NodeLease, Observer

LEASE = 6.0


def peer(beat: int, node: int = 1) -> Peer:
    return Peer(node, f"node-{node}", beat, False)


def poll(observer: Observer, times: range | list[float], beat: int = 7) -> list[float]:
    """Poll at these times and return those at which the peer counts as dead."""
    return [now for now in times if observer.observe(now, [peer(beat)])]


def test_a_peer_is_dead_a_whole_lease_after_its_beat_was_received_first() -> None:
    assert poll(Observer(LEASE), range(12)) == [6, 7, 8, 9, 10, 11]


def test_a_beat_keeps_a_peer_alive() -> None:
    observer = Observer(LEASE)
    assert poll(observer, range(6)) == []
    assert poll(observer, range(6, 12), beat=8) == []
    assert poll(observer, range(12, 14), beat=8) == [12, 13]


def test_after_a_failed_poll_all_peers_get_a_whole_lease() -> None:
    observer = Observer(LEASE)
    assert poll(observer, range(6)) == []
    observer.reset()
    assert poll(observer, range(6, 13)) == [12]


def test_an_observer_that_slept_starts_anew() -> None:
    observer = Observer(LEASE)
    assert poll(observer, [0.0, 1.0, 2.0, 60.0, 61.0, 62.0, 63.0, 64.0, 65.0]) == []
    assert poll(observer, [66.0]) == [66.0]


def test_peers_are_counted_each_for_itself() -> None:
    observer = Observer(LEASE)
    for now in range(6):
        assert observer.observe(now, [peer(7, 1), peer(now, 2)]) == []
    assert observer.observe(6, [peer(7, 1), peer(5, 2)]) == [peer(7, 1)]


def test_a_lease_counts_from_when_its_renewal_was_sent() -> None:
    now = 0.0
    lease = NodeLease(LEASE, lambda: now)
    assert lease.expired
    lease.renew(0.0)
    now = 5.9
    assert not lease.expired
    assert lease.remaining == pytest.approx(0.1)
    now = 6.0
    assert lease.expired
    lease.renew(5.0)
    assert not lease.expired
    lease.end()
    assert lease.expired


class _Beat(NamedTuple):
    """What happens to one beat: a pause before it is sent, its way to the database, and the way of its answer."""

    pause: float
    way: float
    back: float
    is_lost: bool


class _World:
    """Nodes that beat, and the table of nodes. All clocks run at the same speed, and show other times."""

    def __init__(self, beats: Sequence[Sequence[_Beat]]) -> None:
        self.time = 0.0
        self.dead: dict[int, float] = {}
        self.rows = dict.fromkeys(range(len(beats)), 0)
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.leases = [NodeLease(LEASE, lambda: self.time) for _ in beats]
        for node, plan in enumerate(beats):
            self._next_beat(node, iter(plan), Observer(LEASE))

    def run(self) -> None:
        while self._events:
            self.time, _, event = heapq.heappop(self._events)
            event()

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.time + seconds, next(self._order), event))

    def _next_beat(self, node: int, plan: Iterator[_Beat], observer: Observer) -> None:
        beat = next(plan, None)
        if beat is not None:
            self._after(LEASE / 6 + beat.pause, lambda: self._send(node, beat, plan, observer))

    def _send(self, node: int, beat: _Beat, plan: Iterator[_Beat], observer: Observer) -> None:
        sent = self.time

        def execute() -> None:
            alive = node not in self.dead
            self.rows[node] += alive
            peers = [peer(number, other) for other, number in self.rows.items() if other not in (node, *self.dead)]
            self._after(beat.back, lambda: answer(alive, peers))

        def answer(alive: bool, peers: list[Peer]) -> None:
            if beat.is_lost:
                observer.reset()
            elif alive:
                self.leases[node].renew(sent)
                for found in observer.observe(self.time, peers):
                    self._after(beat.way, lambda found=found: self._bury(found))
            if alive or beat.is_lost:
                self._next_beat(node, plan, observer)

        self._after(beat.way, execute)

    def _bury(self, found: Peer) -> None:
        if found.id not in self.dead and self.rows[found.id] == found.beat:
            assert self.leases[found.id].expired, f"node {found.id} was declared dead with a lease"
            self.dead[found.id] = self.time


WAYS = st.one_of(st.just(0.01), st.floats(0, 4))
BEATS = st.builds(
    _Beat,
    st.one_of(st.just(0.0), st.just(0.0), st.floats(0, 9)),
    WAYS,
    WAYS,
    st.integers(0, 9).map(lambda number: number == 9),
)
HEALTHY = [_Beat(0.0, 0.01, 0.01, False)] * 20


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(BEATS, max_size=25), min_size=1, max_size=2))
def test_no_order_of_beats_polls_and_failures_kills_a_node_that_has_a_lease(beats: list[list[_Beat]]) -> None:
    _World([*beats, HEALTHY]).run()


def test_a_node_that_stops_is_found_within_a_lease_and_two_polls() -> None:
    world = _World([HEALTHY[:3], HEALTHY])
    world.run()
    last_beat = 3 * (LEASE / 6 + 0.02) - 0.01
    assert LEASE <= world.dead[0] - last_beat <= LEASE + 2 * LEASE / 6
