"""A server on a disk that takes its time, and the file of the effects its agent had: it survives every kill."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.command import DRAGOMAN, inherited_environment
from support.ports import free_port
from support.server_process import ServerProcess

HERE = Path(__file__).parent
SECONDS = 60  # a start takes a second, and some more on a slow disk


def compiled(source: str, place: Path) -> Path:
    """The library of a source in this folder, compiled into `place`. Skips the test where it cannot be made."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip(f"{source} needs Linux and a C compiler called cc")
    library = (place / source).with_suffix(".so")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    library.chmod(0o755)
    return library


class SlowDisk:
    """A folder with a store, whose servers can be made to wait for their disk, and are killed in it one by one."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.effects = folder / "effects.jsonl"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._flags = flags
        self._library = compiled("slow_fsync.c", folder)
        self._armed = folder / "slow"
        self.servers: list[SlowServer] = []

    def slow(self, low: int, high: int) -> None:
        """From now on let every fsync take between so many and so many milliseconds."""
        part = self.folder / "slow.part"
        part.write_text(f"{low} {high}\n")
        part.rename(self._armed)

    @contextmanager
    def stuck(self) -> Iterator[Callable[[], None]]:
        """Let every fsync take longer than a test. Gives what waits until somebody is caught in one."""
        pipe = self.folder / "slow.began"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDWR)

        def caught() -> None:
            assert select.select([reader], [], [], SECONDS)[0], "nobody has called fsync"

        self.slow(SECONDS * 1000, SECONDS * 1000)
        try:
            yield caught
        finally:
            self.fast()
            os.close(reader)
            pipe.unlink()

    def fast(self) -> None:
        """From now on let the disk be as it is."""
        self._armed.unlink(missing_ok=True)

    def launch(self, *, ready: bool = True) -> SlowServer:
        """Start a server at the one address; by default wait until it answers."""
        environment = {
            **inherited_environment(),
            "EFFECTS_FILE": str(self.effects),
            "LD_PRELOAD": str(self._library),
            "SLOW_FSYNC": str(self._armed),
        }
        store = f"sqlite:///{self.folder / 'tasks.db'}"
        agent = str(HERE / "effects_agent.py")
        command = [*DRAGOMAN, "serve", agent, "--port", str(self.port), "--store", store, *self._flags]
        server = SlowServer(command, self.folder, environment=environment, seconds=SECONDS)
        self.servers.append(server)
        if ready:
            server.ready()
        return server

    def lines(self) -> list[dict[str, Any]]:
        """The effects so far."""
        if not self.effects.exists():
            return []
        return [json.loads(line) for line in self.effects.read_text().splitlines()]

    def close(self) -> None:
        """End every server that still runs."""
        for server in self.servers:
            server.close()


class SlowServer(ServerProcess):
    """One process of it."""

    def kill_after(self, seconds: float) -> None:
        """Kill it after a while, wherever it is by then."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()
