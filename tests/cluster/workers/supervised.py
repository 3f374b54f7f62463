"""A server with several workers: `dragoman serve --workers N` at an address that it keeps over restarts."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from cluster.processes.nodes import SECONDS, Node
from cluster.processes.tables import Tables

WORKERS = 2


class Supervised(Node):
    """A place of the cluster, with a supervisor and its workers."""

    def __init__(self, folder: Path, store: str, flags: list[str]) -> None:
        super().__init__(1, folder, store, ["--workers", str(WORKERS), *flags])
        self.folder = folder

    @property
    def names(self) -> list[str]:
        """The names of its nodes."""
        return [f"{self.name}/{number}" for number in range(1, WORKERS + 1)]

    @property
    def supervisor(self) -> int:
        """The process id of the supervisor."""
        return self.process.pid

    def worker_pids(self) -> list[int]:
        """The processes of the workers that have not ended, in the order in which they were started."""
        return [pid for pid in _children(self.supervisor) if b"spawn_main" in _command(pid)]

    async def until_workers(self, tables: Tables, before: Collection[int] = ()) -> dict[str, int]:
        """Wait until every worker has joined, as a node that is not one of those before. Gives the ids by name."""

        async def joined() -> bool:
            nodes = await tables.live_nodes()
            return sorted(nodes) == self.names and not set(before) & set(nodes.values())

        await tables.until("all workers have joined", joined)
        return await tables.live_nodes()

    def close(self) -> None:
        """End whatever still runs: workers end with their supervisor."""
        for process in self.processes:
            if process.is_running:
                pids = _children(process.pid)
                process.kill()
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        super().close()


def until_ended(pid: int) -> None:
    """Wait until a process has ended, whosever child it is."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], SECONDS)[0], f"process {pid} has not ended"
        finally:
            os.close(descriptor)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
