"""A server process, from its start to its end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from msgspec import Struct

from bench import cores
from bench.contestants import Contestant
from bench.environments import ROOT

START_SECONDS = 20.0
# What it has not done by then, it need not do: nothing is measured any more.
STOP_SECONDS = 1.5

_numbers = count(1)


class CannotStart(Exception):
    """The server did not begin to listen; the text ends with what it said."""


class Running(Struct, frozen=True):
    """A server that listens."""

    port: int
    pid: int


@contextmanager
def running(
    contestant: Contestant,
    folder: Path,
    *,
    file: Path | None = None,
    database: str | None = None,
    config: Path | None = None,
    probe: bool = False,
) -> Generator[Running, None, None]:
    """Start a server with an empty store, on a file or on a PostgreSQL, and stop it at the end.

    `config` is for its agent's module.

    Raises:
        CannotStart: it does not listen in time.
    """
    name = f"{contestant.name}-{contestant.store}-{next(_numbers)}".replace("/", "-")
    store = database or ("memory" if contestant.store == "memory" else str(file or folder / f"{name}.db"))
    command = _command(contestant, store, config, probe=probe)
    log = folder / f"{name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=variables()
        )
    try:
        yield Running(_port(contestant, process, log), process.pid)
    finally:
        _stop(process)


def _command(contestant: Contestant, store: str, config: Path | None, *, probe: bool) -> list[str]:
    core = cores.server_core()
    if contestant.command:
        # Pinned before it starts: some runtimes look once how many cores they have.
        return [sys.executable, "-m", "bench.cores", "" if core is None else str(core), *contestant.command]
    launcher = "bench.launch_grpc" if contestant.grpc else "bench.launch"
    command = [str(contestant.python), "-m", launcher, contestant.module, "--store", store]
    if core is not None:
        command += ["--core", str(core)]
    if config is not None:
        command += ["--config", str(config)]
    if probe:
        command.append("--probe")
    return command


def variables() -> dict[str, str]:
    """The environment of what is measured: the settings of whoever runs this must not change it.

    Python takes Dragoman from this tree, wherever it is installed from.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DRAGOMAN_", "PYTHON", "OTEL_")) and not name.upper().endswith("_PROXY")
    }
    return {**kept, "PYTHONPATH": str(ROOT / "src")}


def _port(contestant: Contestant, process: subprocess.Popen[bytes], log: Path) -> int:
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        ready, _, _ = select.select([process.stdout], [], [], 0.2)
        if ready:
            line = process.stdout.readline()
            if line:
                return int(json.loads(line)["port"])
            break
    raise CannotStart(f"{contestant.label} does not listen:\n{log.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
