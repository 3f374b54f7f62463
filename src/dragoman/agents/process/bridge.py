"""A command as an agent: the parts that run it, made anew for each event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.agents.process.folders import Folders
from dragoman.agents.process.offer import offers_of
from dragoman.agents.process.programs import Programs
from dragoman.agents.process.run import SessionRuns
from dragoman.engine.clock import SystemClock
from dragoman.model.error import ConfigError, Failed

if TYPE_CHECKING:
    from dragoman.agents.process.recipe import Recipe
    from dragoman.engine.context import Context


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
        self._runs: SessionRuns | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.offers = offers_of(recipe.name, description, tools)

    def settle(self, home: Path | None, keep: float, max_depth: int) -> None:
        """Say where folders of sessions are kept, and how long: None is for as long as the server runs.

        A call that has come through more than `max_depth` agents is refused.
        """
        self._home, self._keep, self._max_depth = home, keep, max_depth

    @property
    def programs(self) -> int:
        """How many programs are open."""
        manager = None if self._runs is None else self._runs.manager
        return len(manager) if isinstance(manager, Programs) else 0

    async def open(self) -> None:
        """Look whether there is such a program, and remove folders that are too old.

        Raises:
            ConfigError: there is none, or this system has no process groups.
        """
        if os.name != "posix":
            raise ConfigError("programs are served on Linux and macOS: this system has no process groups")
        self._made()
        try:
            self._recipe.executable(self._recipe.command[0], self._recipe.cwd or Path.cwd())
        except Failed as error:
            raise ConfigError(str(error)) from None
        if self._home is not None and self._keep:
            await asyncio.to_thread(Folders(self._home / self._agent_id).sweep, self._keep)

    def _made(self) -> SessionRuns:
        loop = asyncio.get_running_loop()
        if self._runs is None or self._loop is not loop:
            self._loop = loop
            folders = Folders(None if self._home is None else self._home / self._agent_id)
            self._runs = SessionRuns(
                Programs(self._recipe, SystemClock()),
                agent_id=self._agent_id,
                project_id=self._project_id,
                folders=folders,
                most=self._recipe.limits.sessions,
                attaches=self._recipe.profile is not None,
                artifacts=self._recipe.limits.artifacts,
                max_depth=self._max_depth,
            )
        return self._runs

    def prepare(self, ctx: Context) -> Awaitable[None]:
        """See `SessionRuns.prepare`."""
        return self._made().prepare(ctx)

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """See `SessionRuns.run`."""
        return self._made().run(ctx)

    async def canceled(self, ref: Any) -> None:
        """See `SessionRuns.canceled`."""
        if self._runs is not None:
            await self._runs.canceled(ref)

    async def close(self) -> None:
        """End all programs."""
        runs, self._runs, same = self._runs, None, self._loop is asyncio.get_running_loop()
        if runs is not None and same:
            await runs.close()
