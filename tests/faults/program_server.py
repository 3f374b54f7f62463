"""Servers of programs in processes of their own, and what the system knows about them and their programs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from support.command import DRAGOMAN, inherited_environment
from support.server_process import ServerProcess

SECONDS = 30  # healthy waits take milliseconds, a start half a second
SEND = "/a2a/tasks/send"


class ProgramServer(ServerProcess):
    """`dragoman serve` with agents that are programs, each said as a table of the settings file."""

    def __init__(self, folder: Path, agents: Mapping[str, Mapping[str, Any]], *flags: str) -> None:
        config = folder / "dragoman.toml"
        config.write_text("\n".join(_table(name, table) for name, table in agents.items()))
        command = [*DRAGOMAN, "serve", "--config", str(config), "--port", "0"]
        # With several agents, the line is the first one's.
        super().__init__(
            [*command, "--store", f"sqlite:///{folder / 'tasks.db'}", *flags],
            folder,
            environment=inherited_environment(),
            address=r"^\s+card\s+(http://[^/\s]+)\S*/\.well-known",
        )

    # What the system knows about it

    @property
    def guard(self) -> int:
        """The process that its programs are children of."""
        (found,) = self._guards()
        return found

    def _guards(self) -> list[int]:
        return [pid for pid in children(self.pid) if b"guard/main.py" in _read(pid, "cmdline")]

    @property
    def programs(self) -> list[int]:
        """The processes that its guard has."""
        return children(self.guard)

    def until_idle(self) -> None:
        """Wait until there is none: the last task may have ended before its program."""
        guards = self._guards()  # none when nothing has been run
        end = time.monotonic() + SECONDS
        while left := [program for guard in guards for program in children(guard)]:
            assert time.monotonic() < end, f"programs are left: {left}"

    @property
    def descriptors(self) -> int:
        """How many files it has open."""
        return len(self._files())

    @property
    def sockets(self) -> int:
        """How many of them are sockets."""
        return sum(name.startswith("socket:") for name in self._files())

    def _files(self) -> list[str]:
        found: list[str] = []
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):  # it may be closed meanwhile
                found.append(str(path.readlink()))
        return found

    # Session tasks

    def send(self, message: str, agent: str = "", **params: Any) -> httpx2.Response:
        """Send a session task: to an agent, or to who gets those that are for nobody in particular."""
        path = f"/api/agents/{agent}{SEND}" if agent else SEND
        return httpx2.post(self.url + path, json={"params": {"message": message, **params}}, timeout=SECONDS)

    def get(self, task_id: str) -> httpx2.Response:
        """Ask for a session task."""
        return httpx2.get(f"{self.url}/a2a/tasks/{task_id}", timeout=SECONDS)


@contextmanager
def served(folder: Path, agents: Mapping[str, Mapping[str, Any]], *flags: str) -> Iterator[ProgramServer]:
    """A server that runs, and is killed at the end if it still does."""
    with ProgramServer(folder, agents, *flags) as server:
        yield server


def _table(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join([f"[agents.{name}]", *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


# -- processes ---------------------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]


def descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    found = children(pid)
    for one in found:
        found.extend(children(one))
    return found


class Watched:
    """A process of somebody else's, from now until it is gone."""

    def __init__(self, pid: int) -> None:
        self._handle = os.pidfd_open(pid)

    def kill(self) -> None:
        """Kill it."""
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until it is."""
        found, _, _ = await asyncio.to_thread(select.select, [self._handle], [], [], SECONDS)
        os.close(self._handle)
        assert found, "a process is still there"


def memory(pid: int, name: str = "VmRSS") -> int:
    """How many bytes of memory a process has; with VmHWM, how many it has had at most."""
    (found,) = re.findall(rf"{name}:\s+(\d+) kB", _read(pid, "status").decode())
    return int(found) * 1024


def forget_peak(pid: int) -> int:
    """Let the system count the most memory of a process anew. Gives what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return memory(pid)


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


class Leash:
    """A pipe with a name that programs hold: they say when they are ready, and it is let go when none is left.

    `go` is another one, for which they wait.
    """

    def __init__(self, folder: Path, name: str = "leash") -> None:
        self.path, self.go = folder / name, folder / f"{name}.go"
        for path in (self.path, self.go):
            os.mkfifo(path)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        # Held here, too, so that it is not let go while some have not come yet.
        self._held: int | None = os.open(self.path, os.O_WRONLY)
        self._go = os.open(self.go, os.O_RDWR)
        self._rest = b""

    def lines(self, number: int) -> list[str]:
        """Wait for so many lines of the programs, and give them."""
        while self._rest.count(b"\n") < number:
            self._rest += self._more()
        *found, self._rest = self._rest.split(b"\n", number)
        return [line.decode() for line in found]

    def _more(self) -> bytes:
        if not select.select([self._reader], [], [], SECONDS)[0]:
            raise AssertionError(f"a program hangs, after {self._rest!r}")
        return os.read(self._reader, 1 << 16)

    def release(self, number: int = 1) -> None:
        """Let so many programs go on, those too that are about to wait: each reads a line."""
        os.write(self._go, b"\n" * number)

    def until_free(self) -> str:
        """Wait until no process holds it any more. Gives what was said meanwhile."""
        self._let_go()
        while more := self._more():
            self._rest += more
        return self._rest.decode()

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def close(self) -> None:
        """Let go of it."""
        self._let_go()
        os.close(self._reader)
        os.close(self._go)

    async def ready(self, number: int = 1) -> list[str]:
        """As `lines`, beside everything else."""
        return await asyncio.to_thread(self.lines, number)

    async def free(self) -> str:
        """As `until_free`, beside everything else."""
        return await asyncio.to_thread(self.until_free)
