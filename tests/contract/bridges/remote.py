"""An agent that is somewhere else, in every version of the protocol. The functions of the contract are behind it."""

from __future__ import annotations

from functools import partial

from contract.bridges import functions
from contract.bridges.bridge import Behavior, Bridge, Place

from dragoman import Agent
from dragoman.testing import served

LACKS: dict[Behavior, str] = {
    "caller": "the agent behind sees who the front is: test_remote.py",
    "interrupted": "the work goes on behind, and is followed again: test_remote_restart.py",
    "run again": "the work goes on behind, and is followed again: test_remote_restart.py",
}


def make(place: Place, version: str) -> Agent:
    behind = functions.BRIDGES[0].make
    url = place.once("behind", lambda: served(behind(place), drain=0))
    return Agent.from_a2a(url, protocol=version, name="worker")


def bridge(version: str, lacks: dict[Behavior, str]) -> Bridge:
    return Bridge(name=f"remote {version}", make=partial(make, version=version), lacks={**LACKS, **lacks})


BRIDGES = [
    bridge("0.1", {"login": "0.1 has no word for a task that waits for a login: test_remote.py"}),
    bridge("0.3", {}),
    bridge("1.0", {}),
    bridge("1.1", {}),
]
