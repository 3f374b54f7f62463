"""A command as an agent: the parts that run it, made anew for each event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dragoman.agents.offers import offers_of
from dragoman.agents.process.folders import Folders
from dragoman.agents.process.programs import Programs
from dragoman.agents.process.run import SessionRuns
from dragoman.clock import SystemClock
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.agents.process.recipe import Recipe
    from dragoman.engine.execute.context import Context


class CommandSessions:
    """Everything behind an agent made from a command."""

    def __init__(
        self, recipe: Recipe, *, agent_id: str, project_id: str | None, description: str, tools: Sequence[str] | None
    ) -> None:
        self._recipe = recipe
        self._agent_id = agent_id
        self._project_id = project_id
        self._home: Path | None = None
        self._keep = 0.0
        self._max_depth = 3
        # One agent may be served on several event loops.
        self._runs: WeakKeyDictionary[asyncio.AbstractEventLoop, SessionRuns] = WeakKeyDictionary()
        self.offers = offers_of(recipe.name, description, tools)

    def settle(self, home: Path | None, keep: float, max_depth: int) -> None:
        """Say where folders of sessions are kept, and how long: None is for as long as the server runs.

        A call that has come through more than `max_depth` agents is refused.
        """
        self._home, self._keep, self._max_depth = home, keep, max_depth

    @property
    def programs(self) -> int:
        """How many programs are open."""
        managers = [runs.manager for runs in self._runs.values()]
        return sum(len(manager) for manager in managers if isinstance(manager, Programs))

    @property
    def keeps_talks(self) -> bool:
        """True when a program itself remembers what was said in a conversation."""
        return self._recipe.interactive or self._recipe.profile is not None

    async def open(self) -> None:
        """Look whether there is such a program, and remove folders that are too old.

        Raises:
            ConfigError: there is none that can be run, or this system has no process groups.
        """
        if os.name != "posix":
            raise ConfigError("programs are served on Linux and macOS: this system has no process groups")
        self._made()
        self._recipe.check()
        if self._home is not None and self._keep:
            await asyncio.to_thread(Folders(self._home / self._agent_id).sweep, self._keep)

    def _made(self) -> SessionRuns:
        loop = asyncio.get_running_loop()
        runs = self._runs.get(loop)
        if runs is None:
            folders = Folders(None if self._home is None else self._home / self._agent_id)
            runs = self._runs[loop] = SessionRuns(
                Programs(self._recipe, SystemClock()),
                agent_id=self._agent_id,
                project_id=self._project_id,
                folders=folders,
                most=self._recipe.limits.sessions,
                attaches=self._recipe.profile is not None,
                artifacts=self._recipe.limits.artifacts,
                max_depth=self._max_depth,
            )
        return runs

    def prepare(self, ctx: Context) -> Awaitable[None]:
        """See `SessionRuns.prepare`."""
        return self._made().prepare(ctx)

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """See `SessionRuns.run`."""
        return self._made().run(ctx)

    async def canceled(self, ref: Any) -> None:
        """See `SessionRuns.canceled`."""
        await self._made().canceled(ref)

    async def close(self) -> None:
        """End all programs."""
        runs = self._runs.pop(asyncio.get_running_loop(), None)
        if runs is not None:
            await runs.close()
