"""Plays schedules of the whole engine, each from its seed, and records which ranges of seeds broke no promise.

    make simulate SEEDS=0-20000

The ranges are in `tests/cluster/simulated.toml`, with the commits that they were played on. A schedule that breaks a
promise is printed with its seed; `make simulate SEEDS=1234` plays that one again.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cluster.schedules import play

RECORDED = Path(__file__).with_name("simulated.toml")
# Schedules that one process plays before it reports.
CHUNK = 100
HEAD = (
    "# Ranges of seeds whose schedules broke no promise, and the commits that they were played on: see `simulate.py`.\n"
)


def failures(seeds: range) -> list[tuple[int, str]]:
    """Play schedules. Returns the seeds of those that broke a promise, and what happened."""
    logger = logging.getLogger("dragoman")
    logger.setLevel(logging.ERROR)
    logger.addHandler(logging.NullHandler())  # the simulation collects errors, and says which of them are none
    found: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            play(seed)
        except Exception as error:  # noqa: BLE001 - it may also end in confusion
            found.append((seed, f"{type(error).__name__}: {error}"))
    return found


def main() -> int:
    """Run the command. Its status is 1 if a schedule broke a promise."""
    parser = argparse.ArgumentParser(description="Play schedules of the whole engine, each from its seed.")
    parser.add_argument("seeds", help="a range, such as 0-20000, or one seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes play")
    options = parser.parse_args()
    first, _, end = options.seeds.partition("-")
    seeds = range(int(first), int(end or int(first) + 1))
    started, broken = time.monotonic(), 0
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(failures, chunks):
            for seed, text in found:
                broken += 1
                print(f"seed {seed}: {text}\n", flush=True)
    print(f"{len(seeds)} schedules in {time.monotonic() - started:.0f} s: {broken} broke a promise")
    if end and not broken:
        record(seeds)
    return 1 if broken else 0


def record(seeds: range) -> None:
    """Add a range to the file, unless the tree has changes that no commit has."""
    if _git("status", "--porcelain", "src"):
        print("not recorded: src/ has changes that are not committed")
        return
    old = tomllib.loads(RECORDED.read_text(encoding="utf-8"))["range"] if RECORDED.exists() else []
    entries = [*old, {"first": seeds.start, "end": seeds.stop, "commit": _git("rev-parse", "--short=12", "HEAD")}]
    text = "".join(
        f'\n[[range]]\nfirst = {entry["first"]}\nend = {entry["end"]}\ncommit = "{entry["commit"]}"\n'
        for entry in entries
    )
    RECORDED.write_text(HEAD + text, encoding="utf-8")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=RECORDED.parents[2])
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
