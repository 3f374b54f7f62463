"""A heartbeat on the event loop of a test, and a listener for any heartbeat."""

from __future__ import annotations

import asyncio

from dragoman.stores.postgres.heartbeat import Heartbeat, NodeListener


class HeartbeatTask:
    """Beats on the event loop of the store, so that a test in virtual time needs no thread."""

    def __init__(self) -> None:
        self._heartbeat: Heartbeat | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, heartbeat: Heartbeat, listener: NodeListener) -> None:
        """Register the node, take its first lease, and beat from then on. Raises ConnectionLost."""
        await heartbeat.start()
        self._heartbeat = heartbeat
        self._task = asyncio.get_running_loop().create_task(heartbeat.run(listener, lambda: True))

    async def stop(self) -> None:
        """Leave and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._heartbeat is not None:
            await self._heartbeat.stop()


class SilentListener:
    """Does nothing with the notices of a heartbeat. Tests overwrite what they look at."""

    def on_renewed(self) -> None: ...

    def on_dead(self) -> None: ...

    def on_joined(self, node: int) -> None: ...

    def on_peers(self, agents: frozenset[str]) -> None: ...

    def on_peer_gone(self) -> None: ...
