"""A proxy between nodes and PostgreSQL that understands where messages begin and end, and which statements commit.

It cuts connections on demand, and can let a statement through while its sender never learns what became of it.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from support.tcp_proxy import Link, TcpProxy

# What happens to a statement whose reply is swallowed. "swallow": it commits, then its sender is cut instead of getting
# the reply. "cut": its sender is cut while it is under way. "late": its sender is cut, and it arrives only afterwards.
# "hang": it commits, and its sender waits for ever.
How = Literal["swallow", "cut", "late", "hang"]
LATE_SECONDS = 0.3
_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_CHANGES = re.compile(r"\b(insert\s+into|update|delete\s+from)\b", re.IGNORECASE)


class Trap(NamedTuple):
    """What to do with the next statement that matches."""

    matches: Callable[[str], bool]
    how: How


def changes_tasks(sql: str) -> bool:
    """Whether a statement writes to the journal or to the tasks."""
    return bool(_CHANGES.search(sql)) and ("tasks" in sql or "events" in sql)


class WireProxy(TcpProxy):
    """Stands before a PostgreSQL. `traps` are used up by the statements that step into them, in turn."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.traps: deque[Trap] = deque()
        self.sprung: Counter[str] = Counter()

    async def until_sprung(self, count: int) -> None:
        """Wait until so many statements have stepped into a trap."""
        async with self._changed:
            await self._changed.wait_for(lambda: sum(self.sprung.values()) >= count)

    def trap_of(self, sql: str) -> Trap | None:
        """Take the trap that a statement steps into, if it does."""
        for trap in self.traps:
            if trap.matches(sql):
                self.traps.remove(trap)
                return trap
        return None

    async def count(self, trap: Trap) -> None:
        """A trap has done what it is for."""
        async with self._changed:
            self.sprung[trap.how] += 1
            self._changed.notify_all()

    async def relay(self, link: Link) -> None:
        """Carry a connection to its end, message by message."""
        await _Connection(self, link).carry()


class _Connection:
    """One connection of a node. Statements and replies are counted by Sync and ReadyForQuery, which come in pairs."""

    def __init__(self, proxy: WireProxy, link: Link) -> None:
        self._proxy = proxy
        self._from_node, self._to_node, self._from_database, self._to_database = link
        self._statements: dict[bytes, str] = {}
        self._sent = 0  # requests that end with ReadyForQuery
        self._ready = -1  # the first ReadyForQuery ends the login
        self._trapped: tuple[int, Trap] | None = None

    async def carry(self) -> None:
        """Carry messages until one side is gone or the connection is cut."""
        pumps = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._replies())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        """Cut the node off, in the middle of whatever it reads."""
        self._to_node.transport.abort()

    async def _requests(self) -> None:
        try:
            await self._login()
            while True:
                kind, body = await _message(self._from_node)
                trap = self._trap_of(kind, body)
                if trap is not None:
                    await self._spring(trap, kind, body)
                    return
                self._to_database.write(kind + struct.pack("!i", len(body) + 4) + body)
                await self._to_database.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass

    async def _login(self) -> None:
        while True:
            (length,) = struct.unpack("!i", head := await self._from_node.readexactly(4))
            body = await self._from_node.readexactly(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code in (_SSL_REQUEST, _GSS_REQUEST):
                self._to_node.write(b"N")
                continue
            self._to_database.write(head + body)
            return

    def _trap_of(self, kind: bytes, body: bytes) -> Trap | None:
        """Follow what the node asks for; gives the trap of a request that executes a statement which steps into it."""
        if kind == b"P":  # Parse: name, text
            name, _, rest = body.partition(b"\0")
            self._statements[name] = rest.partition(b"\0")[0].decode(errors="replace")
        elif kind == b"B":  # Bind: portal, statement
            return self._proxy.trap_of(self._statements.get(body.split(b"\0", 2)[1], ""))
        elif kind == b"Q":
            self._sent += 1
            return self._proxy.trap_of(body.rstrip(b"\0").decode(errors="replace"))
        elif kind == b"S":
            self._sent += 1
        return None

    async def _spring(self, trap: Trap, kind: bytes, body: bytes) -> None:
        """Let the request through up to its Sync, and cut its sender."""
        request = bytearray()
        while True:
            request += kind + struct.pack("!i", len(body) + 4) + body
            if kind in (b"Q", b"S"):
                break
            kind, body = await _message(self._from_node)
            if kind == b"S":
                self._sent += 1
        if trap.how in ("swallow", "hang"):
            self._trapped = (self._sent, trap)
            self._to_database.write(request)
            await self._to_database.drain()
            await asyncio.Event().wait()  # `_replies` cuts the node off when the reply has come
            return
        self._trapped = (self._sent, trap)
        self.cut()
        if trap.how == "late":
            await asyncio.sleep(LATE_SECONDS)
        self._to_database.write(request)
        await self._to_database.drain()
        await asyncio.Event().wait()

    async def _replies(self) -> None:
        try:
            while True:
                kind, body = await _message(self._from_database)
                if kind == b"Z":
                    self._ready += 1
                    if self._trapped is not None and self._ready >= self._trapped[0]:
                        if self._trapped[1].how == "hang":
                            await self._proxy.count(self._trapped[1])
                            await asyncio.Event().wait()
                        self.cut()
                        await self._proxy.count(self._trapped[1])
                        return
                # Nothing of a trapped reply gets through, not even its beginning.
                if self._trapped is None or self._ready < self._trapped[0] - 1:
                    self._to_node.write(kind + struct.pack("!i", len(body) + 4) + body)
                    await self._to_node.drain()
        except (OSError, asyncio.IncompleteReadError):
            if self._trapped is not None:
                await self._proxy.count(self._trapped[1])


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    return kind, await reader.readexactly(length - 4)
