"""How much work it is until something happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = 4
pytestmark = pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs what a child has used")
SRC = Path(__file__).resolve().parents[2] / "src"


def best(*command: str) -> float:
    """The seconds of CPU of the cheapest of several runs: what the code needs, whatever else the machine does."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "DRAGOMAN_COLD_START": "1"}
    times: list[float] = []
    for _ in range(ROUNDS):
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(used.ru_utime + used.ru_stime)
    return min(times)


def test_importing_the_package_takes_less_than_150_ms() -> None:
    bare = best("-c", "pass")
    spent = best("-c", "import dragoman")
    everything = best("-c", "from dragoman import Agent")
    print(f"bare {bare * 1000:.0f} ms, import {spent * 1000:.0f} ms, with Agent {everything * 1000:.0f} ms")
    assert spent - bare < 0.150


def test_help_takes_less_than_200_ms() -> None:
    spent = best("-m", "dragoman.cli.main", "--help")
    print(f"--help {spent * 1000:.0f} ms")
    assert spent < 0.200
