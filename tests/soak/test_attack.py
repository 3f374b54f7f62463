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

pytestmark = pytest.mark.soak

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Ten minutes; less for a quick look.
ATTACK_SECONDS = float(os.environ.get("DRAGOMAN_SOAK_SECONDS", "600"))
SLOWEST_MS = 250
MOST_MB = 500
MEMORY = "100000000"


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def started(folder: Path, store: str) -> tuple[subprocess.Popen[str], int]:
    module = HERE / "attack_agent.py"
    command = [sys.executable, "-m", "dragoman", "serve", f"{module}:agent", f"{module}:tools"]
    process = subprocess.Popen(
        # What a server takes for requests is a share of the machine's memory; this is a small machine's.
        [
            *command,
            "--port",
            "0",
            "--store",
            store,
            "--auth",
            "bearer",
            "--auth",
            "basic",
            "--limits-memory",
            MEMORY,
            "--log-level",
            "warning",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return process, int(found[1])
    raise AssertionError("the server did not start")


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
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def users(*words: str, typed: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dragoman", "users", *words, "--store", store],
            input=typed,
            capture_output=True,
            text=True,
            check=True,
            env=environ,
            cwd=tmp_path,
        )
        return done.stdout.strip()

    server, port = started(tmp_path, store)
    assert server.stderr is not None
    # What it logs is not of interest here, and must not stop it.
    with server.stderr, (tmp_path / "log").open("wb") as log:
        drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=log)
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
        server.kill()
        server.wait()
        drain.wait()
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
