"""Nodes of a cluster: `dragoman serve` processes on one store, each at an address that it keeps over restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from support.command import DRAGOMAN, SECRET, SOURCE, inherited_environment
from support.ports import free_port
from support.server_process import LAST_LINE, ServerProcess

HERE = Path(__file__).parent
AGENT = HERE / "effects_agent.py"
SECONDS = 60


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
            **inherited_environment(),
            "PYTHONPATH": str(self.source),
            "EFFECTS_FILE": str(self._folder / "effects.jsonl"),
            "DRAGOMAN_SECRET": SECRET,
            "OTEL_SERVICE_NAME": self.name,
        }
        command = [*DRAGOMAN, "serve", *self._target, "--port", str(self.port)]
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


class NodeProcess(ServerProcess):
    """One process of a node."""

    def __init__(
        self, command: list[str], folder: Path, environment: dict[str, str], *, has_input: bool = False
    ) -> None:
        super().__init__(command, folder, environment=environment, has_input=has_input, seconds=SECONDS)

    def ready(self) -> Self:
        """Wait until it has announced its address, and printed the last line of its start."""
        super().ready()
        self.find(LAST_LINE)
        return self


@contextmanager
def two_nodes(folder: Path, store: str, *flags: str, target: Sequence[str] = (str(AGENT),)) -> Iterator[list[Node]]:
    """Two nodes that serve the same, and their end. What they have printed is shown with a test that fails."""
    nodes = [Node(number, folder, store, flags, target) for number in (1, 2)]
    try:
        for node in nodes:
            node.launch(ready=False)
        for node in nodes:
            node.process.ready()
        yield nodes
    finally:
        for node in nodes:
            node.close()
            for process in node.processes:
                print(f"{node.name}:", *process.output)


def effects_of(folder: Path) -> list[dict[str, Any]]:
    """The effects so far, in the order they happened."""
    path = folder / "effects.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
