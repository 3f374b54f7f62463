"""Schedules of the whole engine by their seeds: half of them on a single server, half on one to three nodes."""

from __future__ import annotations

from cluster.machine import Cluster
from cluster.sole import SoleCluster

# How much more frequent faults are than usual.
STORMS = (0.3, 1, 3, 8)
STEPS = 60


def schedule(seed: int) -> Cluster:
    """The cluster of a seed, before anything has happened to it."""
    storm = STORMS[seed // 2 % 4]
    return SoleCluster(seed, storm=storm) if seed % 2 else Cluster(seed, nodes=1 + seed // 8 % 3, storm=storm)


def play(seed: int, steps: int = STEPS) -> Cluster:
    """Play a schedule to its end. Raises AssertionError when a promise is broken."""
    return schedule(seed).play(steps)
