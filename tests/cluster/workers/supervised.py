"""A server with several workers: `dragoman serve --workers N` at an address that it keeps over restarts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from cluster.processes.balancer import RoundRobin
from cluster.processes.cluster import Cluster
from cluster.processes.nodes import Node
from cluster.processes.tables import Tables
from cluster.processes.wire_proxy import WireProxy
from postgres_server import PostgresServer

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
        return children(self.supervisor)

    async def until_workers(self, tables: Tables, before: Collection[int] = ()) -> dict[str, int]:
        """Wait until every worker has joined, as a node that is not one of those before. Gives the ids by name."""

        async def joined() -> bool:
            nodes = await tables.live_nodes()
            return sorted(nodes) == self.names and not set(before) & set(nodes.values())

        await tables.until("all workers have joined", joined)
        return await tables.live_nodes()

    async def until_replaced(self, tables: Tables, before: dict[str, int]) -> list[int]:
        """Wait until a worker has joined as another node than before. Gives the ids that are no more."""

        async def replaced() -> bool:
            nodes = await tables.live_nodes()
            return sorted(nodes) == self.names and nodes != before

        await tables.until("a worker is replaced", replaced)
        return sorted({*before.values()} - {*(await tables.live_nodes()).values()})

    def close(self) -> None:
        """End whatever still runs: workers end with their supervisor."""
        for process in self.processes:
            if process.is_running:
                pids = children(process.pid)
                process.kill()
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        super().close()


@asynccontextmanager
async def running_workers(folder: Path, postgres: PostgresServer) -> AsyncIterator[tuple[Cluster, Supervised]]:
    """A server with workers that have joined, and nothing between it and its callers; and its end."""
    async with AsyncExitStack() as stack:
        tables = await stack.enter_async_context(Tables(postgres.url()))
        server = Supervised(folder, postgres.url(), [])
        stack.push_async_callback(asyncio.to_thread, server.close)
        await asyncio.to_thread(server.launch)
        # The means of other tests are there and not used.
        proxy, balancer = WireProxy(postgres.port), RoundRobin([server.port])
        yield Cluster(folder, postgres, proxy, [server], balancer, tables, server.url), server


def children(supervisor: int) -> list[int]:
    """The processes of the workers of a supervisor, in the order in which they were started."""
    try:
        pids = map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())
        return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    except OSError:  # one has just ended
        return []
