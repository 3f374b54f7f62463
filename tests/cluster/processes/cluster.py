"""A whole cluster: PostgreSQL, a proxy before it, nodes, a balancer before them, callers, and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from cluster.processes.balancer import RoundRobin
from cluster.processes.callers import Callers
from cluster.processes.checker import Checker, StoredJournal, failures, summary
from cluster.processes.nodes import SOURCE, Node, effects_of
from cluster.processes.postgres import url_through
from cluster.processes.records import FAILED, Records
from cluster.processes.tables import Tables
from cluster.processes.wire_proxy import WireProxy
from postgres_server import PostgresServer

CALLERS = 12


class Cluster:
    """Everything that runs, and what is known about it."""

    def __init__(
        self,
        folder: Path,
        postgres: PostgresServer,
        proxy: WireProxy,
        nodes: list[Node],
        balancer: RoundRobin,
        tables: Tables,
        url: str | None = None,
    ) -> None:
        self._folder = folder
        self.postgres = postgres
        self.proxy = proxy
        self.nodes = nodes
        self.balancer = balancer
        self.url = url or balancer.url
        self.tables = tables
        self.records = Records()

    async def launch(self, node: Node) -> None:
        """Start a process of a node, and wait until it has joined."""
        before = (await self.tables.live_nodes()).get(node.name) if node.processes else None
        await asyncio.to_thread(node.launch)
        await self.until_joined(node, before)

    async def until_joined(self, node: Node, before: int | None = None) -> None:
        """Wait until a process of a node has joined, under another id than before."""

        async def joined() -> bool:
            return (await self.tables.live_nodes()).get(node.name, before) != before

        await self.tables.until(f"{node.name} has joined", joined)

    async def replace(self, node: Node, source: Path | None = None, *, take_out: bool = False) -> float:
        """Stop a node, wait until it has ended, and start it again, from other sources perhaps.

        With `take_out`, the balancer sends it nothing meanwhile. Returns how many seconds it took to stop.
        """
        if take_out:
            self.balancer.take_out(node.port)
        began = time.monotonic()
        node.process.stop()
        code = await asyncio.to_thread(node.process.wait)
        seconds = time.monotonic() - began
        assert code == 0, node.process.output
        node.source = source or node.source
        await self.launch(node)
        if take_out:
            self.balancer.put_back(node.port)
        return seconds

    async def id_of(self, node: Node) -> int:
        """The id under which a node takes part now. Others may have declared it dead at any time."""
        return (await self.tables.live_nodes())[node.name]

    @asynccontextmanager
    async def load(
        self, random: Random, callers: int = CALLERS, *, nodes_stop: bool = False, lossy: bool = False
    ) -> AsyncIterator[Callers]:
        """Callers, as long as the block lasts; then they finish what they have begun.

        With `lossy`, the database may forget what it has acknowledged: then a refusal is nothing wrong.
        """
        over = asyncio.Event()
        everybody = Callers(self.url, self.records, random, nodes_stop=nodes_stop, lossy=lossy)
        working = asyncio.ensure_future(everybody.until(over, callers))
        try:
            yield everybody
            over.set()
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            print(f"\ncallers: {dict(everybody.counted)}")

    async def verdict(self, *, may_fail: bool) -> list[StoredJournal]:
        """Wait until everything has come to rest, and compare. Unless it may, no task has failed.

        Returns those that have.
        """
        await self.tables.until_settled()
        stored, effects = await self.tables.read(), effects_of(self._folder)
        checker = Checker(self.records, stored, effects)
        wrong, failed = checker.judge(), failures(checker.journals.values())
        print(summary(self.records, stored, effects), f"{len(failed)} failed", *failed[:5], sep="\n")
        print(f"{len(wrong)} wrong", *wrong[:40], sep="\n")
        if failed and not may_fail:
            print(await self.tables.story([each.id for each in checker.journals.values() if each.state == FAILED]))
        for node in self.nodes:
            for process in node.processes:
                if process.tracebacks:
                    print(f"{node.name} {process.pid}:", *process.output[-60:])
        assert wrong == []
        assert may_fail or failed == []
        assert not any(process.tracebacks for node in self.nodes for process in node.processes)
        return [journal for journal in stored.journals.values() if journal.state == FAILED]

    async def verdict_after_loss(self) -> None:
        """Compare what is left when the database has forgotten something; from then on, everything counts again."""
        callers = Callers(self.url, self.records, Random(0), lossy=True)
        # Some wait for words that were lost. All can be ended.
        await asyncio.gather(*map(callers.end, await self.tables.unfinished()))
        await self.tables.until_settled()
        stored, effects = await self.tables.read(), effects_of(self._folder)
        wrong = Checker(self.records, stored, effects).judge_what_is_left()
        print(summary(self.records, stored, effects), *failures(stored.journals.values())[:5], sep="\n")
        print(f"{len(wrong)} wrong", *wrong[:40], sep="\n")
        if wrong:
            for node in self.nodes:
                for process in node.processes:
                    print(f"{node.name} {process.pid}:", *process.output[-200:])
        assert wrong == []
        self.records = Records(f"{self.records.prefix}ext")


@asynccontextmanager
async def running_cluster(
    folder: Path,
    postgres: PostgresServer,
    size: int = 3,
    store: str | None = None,
    source: Path = SOURCE,
    flags: Sequence[str] = (),
) -> AsyncIterator[Cluster]:
    """A cluster of nodes that have joined, and its end. With `store`, they use that URL, without a proxy."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(WireProxy(postgres.port))
        tables = await stack.enter_async_context(Tables(store or postgres.url()))
        store = store or url_through(proxy.port, postgres.url())
        nodes = [Node(number, folder, store, flags) for number in range(1, size + 1)]
        stack.push_async_callback(_close, nodes)
        balancer = await stack.enter_async_context(RoundRobin([node.port for node in nodes]))
        cluster = Cluster(folder, postgres, proxy, nodes, balancer, tables)
        for node in nodes:
            node.source = source
            await cluster.launch(node)
        yield cluster


async def _close(nodes: list[Node]) -> None:
    for node in nodes:
        await asyncio.to_thread(node.close)
