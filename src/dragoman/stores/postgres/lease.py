"""The lease of a node, and when others may declare it dead.

A node's lease counts from the moment at which the renewal was *sent*. An observer counts from the moment at which it
*received* a beat for the first time, which is later, and declares the node dead after a whole lease in which that beat
has not changed: the observer's lease or the node's, whichever is longer. Both count on their own monotonic clocks, so a
node is never declared dead while it counts on its lease, however wrong the times of day are and however long a
statement takes.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dragoman.stores.postgres.database import Peer

# A beat renews the lease and looks at the other nodes. Six in a lease, so that some may be lost, and so that a dead
# node is found soon after its lease has ended.
BEATS = 6
DECLARED_DEAD = "the other nodes have declared this one dead and take its tasks: try again with the same messageId"


def monotonic() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


def new_node_id() -> int:
    """A random id of 63 bits, above 0."""
    return secrets.randbits(63) or 1


class NodeLease:
    """For how long this process may count on its claims. It is written by one thread and read by others."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self.now = now
        self._ends = float("-inf")

    @property
    def interval(self) -> float:
        """The time between two beats."""
        return self.seconds / BEATS

    @property
    def remaining(self) -> float:
        """The seconds until it ends; negative when it has ended."""
        return self._ends - self.now()

    @property
    def expired(self) -> bool:
        """True when it has ended."""
        return self.remaining <= 0

    def renew(self, sent: float) -> None:
        """Extend it: a renewal that was sent at that time has succeeded."""
        self._ends = max(self._ends, sent + self.seconds)

    def end(self) -> None:
        """End it now: others have declared this node dead."""
        self._ends = float("-inf")


class _Sighting(NamedTuple):
    beat: int
    since: float


class Observer:
    """Finds nodes whose beat has not changed for a whole lease, in which this process looked all the time.

    After a poll that failed, or a long time without one, it starts anew: the others may have been cut off from the
    database as well, and get a whole lease to come back. So an outage kills nobody. A lease is that of this node or
    of the other, whichever is longer: nodes with different settings must not kill each other.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._last_poll = float("-inf")
        self._sightings: dict[int, _Sighting] = {}

    def reset(self) -> None:
        """Start anew: a poll has failed."""
        self._sightings.clear()

    def observe(self, now: float, peers: Iterable[Peer]) -> list[Peer]:
        """Take the result of a poll that arrived now. Returns the nodes that must be declared dead."""
        if now - self._last_poll > self._lease / 2:
            self.reset()
        self._last_poll = now
        before, self._sightings = self._sightings, {}
        dead: list[Peer] = []
        for peer in peers:
            sighting = before.get(peer.id)
            if sighting is None or sighting.beat != peer.beat:
                sighting = _Sighting(peer.beat, now)
            elif now - sighting.since >= max(self._lease, peer.lease):
                dead.append(peer)
            self._sightings[peer.id] = sighting
        return dead
