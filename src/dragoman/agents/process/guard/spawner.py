"""Starts programs through the guard, with pipes for their standard streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.agents.process.guard.client import GuardClient, GuardLost, NotStarted, acquire_guard, release_guard

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.agents.process.guard.client import Child


class Pipes:
    """The pipes of a program's standard streams, both ends. Raises OSError when one cannot be opened."""

    def __init__(self) -> None:
        self.ours: list[int] = []
        self.theirs: list[int] = []
        try:
            for ours_reads in (False, True, True):
                read, write = os.pipe()
                self.ours.append(read if ours_reads else write)
                self.theirs.append(write if ours_reads else read)
        except OSError:
            self.close()
            raise

    def close_theirs(self) -> None:
        """Close the program's ends, of which it has its own copies."""
        self._close(self.theirs)

    def close(self) -> None:
        """Close all ends."""
        self._close(self.theirs)
        self._close(self.ours)

    @staticmethod
    def _close(fds: list[int]) -> None:
        while fds:
            os.close(fds.pop())


class PipeEnd:
    """A file object for a pipe's descriptor that is closed exactly once, whoever closes it.

    An event loop closes the file object it was given. uvloop has closed the descriptor itself before that, and its
    number may have been reused by another thread in the meantime.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = _identity(descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor, unless it has been closed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                if _identity(descriptor) == self._pipe:
                    os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class Spawner:
    """Starts programs. It holds a guard from the first program until it is closed."""

    def __init__(self) -> None:
        self._guard: GuardClient | None = None
        self._opening = asyncio.Lock()

    async def spawn(
        self,
        path: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        limits: Mapping[str, int] | None = None,
        tag_environment: bool = True,
    ) -> tuple[Child, Pipes]:
        """Start a program with new pipes, which are the caller's to close. For the options, see `GuardClient.spawn`.

        Raises:
            NotStarted: the system refuses to start it.
            OSError: the guard cannot be started, or has ended twice meanwhile.
        """
        try:
            pipes = Pipes()
        except OSError as error:
            raise NotStarted(error.errno or 0, "exec") from error
        try:
            for attempt in (1, 2):
                guard = await self._acquire()
                try:
                    stdin, stdout, stderr = pipes.theirs
                    child = await guard.spawn(
                        path,
                        argv,
                        env=env,
                        cwd=cwd,
                        stdin=stdin,
                        stdout=stdout,
                        stderr=stderr,
                        limits=limits or {},
                        tag_environment=tag_environment,
                    )
                    pipes.close_theirs()
                    return child, pipes
                except GuardLost:  # retried once with a new guard: the program has not started
                    if attempt == 2:
                        raise
            raise AssertionError
        except BaseException:
            pipes.close()
            raise

    async def _acquire(self) -> GuardClient:
        async with self._opening:
            if self._guard is None or not self._guard.alive:
                if self._guard is not None:
                    await release_guard(self._guard)
                self._guard = await acquire_guard()
            return self._guard

    async def close(self) -> None:
        """Release the guard; the last user ends it and all of its programs."""
        guard, self._guard = self._guard, None
        if guard is not None:
            await release_guard(guard)
