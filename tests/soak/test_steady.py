"""A server that is used every day takes no more memory after an hour than after a quarter of one."""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.server_process import ServerProcess

HERE = Path(__file__).parent
# Half an hour; less for a quick look, which says little: what is remembered for ten minutes fills up first.
SOAK_SECONDS = float(os.environ.get("DRAGOMAN_SOAK_SECONDS", "1800"))
SAMPLE_SECONDS = 5.0
RATE = 12.0  # a second, of things that callers do; each is one request to eight
STEEPEST_MB_A_MINUTE = 0.2

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SOAK_SECONDS + 300)]


class Sample(NamedTuple):
    """What a server holds at a moment."""

    seconds: float
    rss_mb: float
    pss_mb: float
    anonymous_mb: float
    tasks: int
    wal_mb: float
    store_mb: float
    files: int
    threads: int

    @classmethod
    def take(cls, pid: int, store: Path, began: float) -> Sample:
        memory = Path(f"/proc/{pid}/smaps_rollup").read_text()

        def mb(name: str) -> float:
            return int(re.search(rf"^{name}:\s+(\d+)", memory, re.MULTILINE)[1]) / 1024

        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
            tasks = db.execute("SELECT coalesce(sum(tasks), 0) FROM state_counts WHERE scope = 0").fetchone()[0]
        return cls(
            round(time.monotonic() - began, 1),
            *(round(mb(name), 3) for name in ("Rss", "Pss", "Anonymous")),
            tasks,
            *(round(path.stat().st_size / 1e6, 2) for path in (Path(f"{store}-wal"), store)),
            len(list(Path(f"/proc/{pid}/fd").iterdir())),
            len(list(Path(f"/proc/{pid}/task").iterdir())),
        )


def slope_a_minute(samples: list[Sample], field: str) -> float:
    """By least squares."""
    times = [sample.seconds / 60 for sample in samples]
    values = [float(getattr(sample, field)) for sample in samples]
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    rise = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True))
    return rise / sum((at - middle) ** 2 for at in times)


def commanded(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "dragoman", *words, "--store", f"sqlite:///{folder / 'tasks.db'}"]


@pytest.fixture
def key(tmp_path: Path) -> str:
    """The API key of a caller of the server in this folder."""
    for words in (("users", "add", "vera", "--no-password"), ("users", "key", "vera")):
        done = subprocess.run(commanded(tmp_path, *words), capture_output=True, text=True, check=True, cwd=tmp_path)
    return re.search(r"dk_\S+", done.stdout)[0]


def test_memory_does_not_rise_under_everyday_load(tmp_path: Path, key: str, record_property: Any) -> None:
    flags = ("--port", "0", "--auth", "bearer", "--push-allow", "127.0.0.1", "--log-level", "warning")
    server = ServerProcess(commanded(tmp_path, "serve", str(HERE / "steady_agent.py"), *flags), tmp_path).ready()
    port = server.url.rpartition(":")[2]
    samples: list[Sample] = []
    callers = subprocess.Popen(
        [sys.executable, str(HERE / "steady_callers.py"), port, key, str(SOAK_SECONDS), str(RATE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        began = time.monotonic()
        with (tmp_path / "curve.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(Sample._fields)
            while callers.poll() is None:
                samples.append(Sample.take(server.pid, tmp_path / "tasks.db", began))
                table.writerow(samples[-1])
                file.flush()
                with suppress(subprocess.TimeoutExpired):
                    callers.wait(SAMPLE_SECONDS)
        assert callers.stdout is not None
        with callers.stdout:
            outcome = json.loads(callers.stdout.read())
        assert server.is_running
    finally:
        callers.kill()
        callers.wait()
        server.close()
    second_half = [sample for sample in samples if sample.seconds >= SOAK_SECONDS / 2]
    slopes = {name: slope_a_minute(second_half, name) for name in ("rss_mb", "pss_mb", "anonymous_mb")}
    figures = {
        "done": outcome["done"],
        "first": samples[0]._asdict(),
        "middle": second_half[0]._asdict(),
        "last": samples[-1]._asdict(),
        "mb_a_minute": {name: round(slope, 3) for name, slope in slopes.items()},
    }
    record_property("figures", figures)
    every_minute = samples[:: round(60 / SAMPLE_SECONDS)]
    print(json.dumps(figures, indent=1), Sample._fields, *map(tuple, every_minute), sep="\n")
    assert outcome["wrong"] == {}
    assert slopes["rss_mb"] < STEEPEST_MB_A_MINUTE
    # Connections, streams and threads that nobody uses any more are given back.
    assert max(sample.files for sample in second_half) <= samples[len(samples) // 10].files + 40
    assert max(sample.threads for sample in second_half) <= max(sample.threads for sample in samples[:30]) + 4
