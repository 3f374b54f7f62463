"""Nodes of a cluster: `dragoman serve` processes on one store, each at an address that it keeps over restarts."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.processes.ports import free_port

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
AGENT = HERE / "effects_agent.py"
SECONDS = 60
# Of any length: the nodes have it in common.
_SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation


class Node:
    """One place of the cluster: a port, and the processes that have listened there, one after the other."""

    def __init__(
        self, number: int, folder: Path, store: str, flags: Sequence[str] = (), target: Sequence[str] = (str(AGENT),)
    ) -> None:
        self.name = f"node{number}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._store = store
        self._flags = flags
        self._target = target
        self.source = SOURCE  # of the program: another version, if it is set before the next launch
        self.processes: list[NodeProcess] = []

    @property
    def process(self) -> NodeProcess:
        """The last process."""
        return self.processes[-1]

    def launch(self, *, ready: bool = True) -> NodeProcess:
        """Start a process; by default wait until it answers."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.source),
            "EFFECTS_FILE": str(self._folder / "effects.jsonl"),
            "DRAGOMAN_SECRET": _SECRET,
        }
        command = [sys.executable, "-m", "dragoman.cli.main", "serve", *self._target, "--port", str(self.port)]
        command += ["--node", self.name] if self._store.startswith("postgresql:") else []
        process = NodeProcess([*command, "--store", self._store, *self._flags], self._folder, environment)
        self.processes.append(process)
        if ready:
            process.ready()
        return process

    def close(self) -> None:
        """End whatever still runs."""
        for process in self.processes:
            process.kill()


class NodeProcess:
    """One process of a node."""

    def __init__(
        self, command: list[str], folder: Path, environment: dict[str, str], *, stdin: int = subprocess.DEVNULL
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )
        self.pid = self._process.pid
        self.output: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            for line in self._process.stderr:
                self.output.append(line)
                self._lines.put(line)
        self._lines.put(None)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ready(self) -> None:
        """Wait until it has announced its address, and printed the last line of its start."""
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if re.match(r"\s+try\s+", line):
                return
        raise AssertionError("the node did not start:\n" + "".join(self.output))

    def write(self, text: str) -> None:
        """Write to its standard input, if that is a pipe."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def pause(self) -> None:
        """Stop it in the middle of whatever it does, as a machine does that is suspended."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would. Does nothing when it has ended."""
        if self.is_running:
            self._process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(timeout=SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._listener.join(SECONDS)
        return code

    @property
    def tracebacks(self) -> list[str]:
        """What it has printed that no operator should see."""
        return [line for line in self.output if "Traceback" in line]


def effects_of(folder: Path) -> list[dict[str, Any]]:
    """The effects so far, in the order they happened."""
    path = folder / "effects.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
