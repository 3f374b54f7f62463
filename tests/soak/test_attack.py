"""A mixed attack goes on for minutes, and a polite caller hardly notices."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.command import dragoman, inherited_environment
from support.server_process import ServerProcess

pytestmark = pytest.mark.soak

HERE = Path(__file__).parent
# Ten minutes; less for a quick look.
ATTACK_SECONDS = float(os.environ.get("DRAGOMAN_SOAK_SECONDS", "600"))
SLOWEST_MS = 250
MOST_MB = 500
MEMORY = "100000000"


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def started(folder: Path, store: str) -> ServerProcess:
    """A server in front of both agents. Its share of the machine's memory is that of a small machine."""
    module = HERE / "attack_agent.py"
    agents = (f"{module}:agent", f"{module}:tools")
    schemes = ("--auth", "bearer", "--auth", "basic")
    flags = ("--port", "0", "--store", store, *schemes, "--limits-memory", MEMORY, "--log-level", "warning")
    command = [sys.executable, "-m", "dragoman", "serve", *agents, *flags]  # not a warm one: its memory is measured
    address = r"(http://127\.0\.0\.1:\d+)"
    return ServerProcess(command, folder, environment=inherited_environment(), address=address).ready()


class Polite:
    """A caller who asks twenty times a second and notes how long each answer took."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self.times: list[float] = []
        self.refused: list[tuple[int, bytes]] = []

    def close(self) -> None:
        self._connection.close()

    def ask(self) -> None:
        text = f"hello {len(self.times)}"
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        began = time.perf_counter()
        self._connection.request("POST", "/agents/polite/message:send", json.dumps({"message": message}), self._headers)
        response = self._connection.getresponse()
        body = response.read()
        self.times.append((time.perf_counter() - began) * 1000)
        if response.status != 200 or text.encode() not in body:
            self.refused.append((response.status, body[:300]))


def test_a_polite_caller_is_served_during_a_mixed_attack(tmp_path: Path, record_property: Any) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"

    def users(*words: str, typed: str = "") -> str:
        done = dragoman(tmp_path, "users", *words, "--store", store, environment=inherited_environment(), typed=typed)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    server = started(tmp_path, store)
    port = int(server.url.rpartition(":")[2])
    try:
        users("add", "vera", "--password-stdin", typed="correct horse battery\n")
        users("add", "mallory", "--no-password")
        keys = {name: re.search(r"dk_\S+", users("key", name))[0] for name in ("vera", "mallory")}
        polite = Polite(port, keys["vera"])
        for _ in range(20):
            polite.ask()
        polite.times.clear()
        attackers = subprocess.Popen(
            # They would have processors of their own.
            ["nice", sys.executable, str(HERE / "attackers.py"), str(port), keys["mallory"], str(ATTACK_SECONDS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        most = 0.0
        while attackers.poll() is None:
            polite.ask()
            most = max(most, resident_mb(server.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                attackers.wait(0.05)
        assert attackers.stdout is not None
        with attackers.stdout:
            counts = json.loads(attackers.stdout.read())
        polite.close()
    finally:
        server.close()
    times = sorted(polite.times)
    p99 = times[len(times) * 99 // 100]
    figures = {
        "requests": len(times),
        "p50_ms": round(times[len(times) // 2], 1),
        "p99_ms": round(p99, 1),
        "slowest_ms": round(times[-1], 1),
        "most_mb": round(most),
        "attacks": counts,
    }
    record_property("figures", figures)
    print(json.dumps(figures, indent=1))
    assert polite.refused == []
    assert set(counts) >= {"endless_headers", "large_message", "slow_reader", "wrong_password", "hostile_tool"}
    assert p99 < SLOWEST_MS
    assert most < MOST_MB
