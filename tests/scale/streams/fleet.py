"""Two nodes on one PostgreSQL whose tasks tick, tasks on either, and what the processes cost."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from cluster.processes.balancer import RoundRobin
from cluster.processes.nodes import SOURCE, Node, NodeProcess

AGENT = Path(__file__).with_name("ticking_agent.py")
_TICKS = os.sysconf("SC_CLK_TCK")
# Connections that begin tasks.
_SENDERS = 16


class TickingNode(Node):
    """A node whose tasks tick every few seconds, or at the line `tick`."""

    def __init__(self, number: int, folder: Path, store: str, flags: Sequence[str], period: float) -> None:
        super().__init__(number, folder, store, flags)
        self._period = period

    def launch(self, *, ready: bool = True) -> NodeProcess:
        """Start a process; by default wait until it answers."""
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TICK_SECONDS": f"{self._period:g}"}
        environment["DRAGOMAN_SECRET"] = "5ca1ab1e" * 8
        command = [sys.executable, "-m", "dragoman.cli.main", "serve", str(AGENT), "--port", str(self.port)]
        command += ["--node", self.name, "--store", self._store, *self._flags]
        process = NodeProcess(command, self._folder, environment, has_input=True)
        self.processes.append(process)
        if ready:
            process.ready()
        return process

    def tell(self, line: str) -> None:
        """Give its agent a line: `tick` or `end`."""
        self.process.write(line + "\n")

    async def begin(self, count: int) -> list[str]:
        """Begin so many tasks on this node. Returns their ids."""
        numbers = iter(range(count))
        ids = await asyncio.gather(*(self._begin(numbers) for _ in range(min(count, _SENDERS))))
        return [task_id for each in ids for task_id in each]

    async def _begin(self, numbers: object) -> list[str]:
        ids: list[str] = []
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for _ in numbers:  # type: ignore[attr-defined]
            message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "go"}]}
            body = json.dumps({"message": message, "configuration": {"returnImmediately": True}}).encode()
            head = "POST /message:send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            length = next(int(line.split(b": ")[1]) for line in lines if line.startswith(b"content-length"))
            answer = json.loads(await reader.readexactly(length))
            ids.append(answer["task"]["id"])
        writer.close()
        return ids


class FirstChoice(RoundRobin):
    """Sends each connection to the first node that accepts it."""

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first node that accepts."""
        self._next = 0
        return await super().dial()


class Usage(NamedTuple):
    """What processes use at a moment: seconds of CPU, and bytes of memory, as RSS and as PSS."""

    at: float
    cpu: float
    rss: int
    pss: int

    @classmethod
    def of(cls, *pids: int) -> Usage:
        """The sum of some processes. One that has ended counts nothing."""
        cpu, rss, pss = 0.0, 0, 0
        for pid in pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                memory = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            cpu += (int(fields[11]) + int(fields[12])) / _TICKS
            sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in memory[1:]}
            rss, pss = rss + sizes["Rss"], pss + sizes["Pss"]
        return cls(time.monotonic(), cpu, rss, pss)

    def percent_since(self, before: Usage) -> float:
        """The CPU since then, in percent of one core."""
        return 100 * (self.cpu - before.cpu) / (self.at - before.at)


class Peak:
    """Looks at a process every second while the context is open: the most CPU, in percent of a core, and memory."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.percent = 0.0
        self.rss = 0

    async def _look(self) -> None:
        before = Usage.of(self._pid)
        while True:
            await asyncio.sleep(1)
            now = Usage.of(self._pid)
            self.percent, self.rss = max(self.percent, now.percent_since(before)), max(self.rss, now.rss)
            before = now

    async def __aenter__(self) -> Peak:
        self._looking = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.wait((self._looking,))


def family_of(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]
