"""A server on a disk that takes its time, and the file of the effects its agent had: it survives every kill."""

from __future__ import annotations

import json
import os
import queue
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SECONDS = 60  # a start takes a second, and some more on a slow disk


def compiled(folder: Path) -> Path:
    """The library that slows a disk down. Skips the test where it cannot be made."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a slow disk needs Linux and a C compiler called cc")
    library = folder / "slow_fsync.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "slow_fsync.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    return library


class SlowDisk:
    """A folder with a store, whose servers can be made to wait for their disk, and are killed in it one by one."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.effects = folder / "effects.jsonl"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._flags = flags
        self._library = compiled(folder)
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
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "EFFECTS_FILE": str(self.effects),
            "LD_PRELOAD": str(self._library),
            "SLOW_FSYNC": str(self._armed),
        }
        store = f"sqlite:///{self.folder / 'tasks.db'}"
        agent = str(HERE / "effects_agent.py")
        command = [sys.executable, "-m", "dragoman.cli.main", "serve", agent, "--port", str(self.port)]
        server = SlowServer([*command, "--store", store, *self._flags], self.folder, environment)
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
            if server.process.poll() is None:
                server.kill()


class SlowServer:
    """One process of it."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )
        self.output: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.output.append(line)
                self._lines.put(line)
        self._lines.put(None)

    def ready(self) -> None:
        """Wait until it announces its address."""
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if re.match(r"\s+card\s+http://", line):
                return
        raise AssertionError("the server did not start:\n" + "".join(self.output))

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=SECONDS)
        self._listener.join(SECONDS)

    def kill_after(self, seconds: float) -> None:
        """The same after a while, wherever it is by then."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()


def _free_port() -> int:
    """A port that stays free between two servers: none of those that connections are given by themselves."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
