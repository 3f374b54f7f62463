"""The `Server` class: several agents behind one address."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dragoman.server.agent.in_process import connect
from dragoman.server.build import build
from dragoman.server.config.loader import load_settings

if TYPE_CHECKING:
    from dragoman.client.connection import Connection
    from dragoman.server.agent.agent import Agent
    from dragoman.server.config.keywords import SettingKeywords
    from dragoman.server.config.settings import Settings
    from dragoman.server.http.app import App


class Server:
    """Serves several agents: each under `/agents/{name}`, the first also at the root.

    Keyword arguments are the settings of `docs/reference.md`; they are checked when the server is used.
    """

    def __init__(self, *agents: Agent, **settings: Unpack[SettingKeywords]) -> None:
        self.agents = agents
        self.keywords = settings

    def _load(self, more: SettingKeywords) -> Settings:
        names = [agent.name for agent in self.agents]
        return load_settings({**self.keywords, **more}, environ=os.environ, config=None, cwd=Path.cwd(), agents=names)

    @property
    def name(self) -> str:
        """The names of the agents, joined by commas."""
        return ", ".join(agent.name for agent in self.agents)

    def app(self, **settings: Unpack[SettingKeywords]) -> App:
        """Return the server as a plain ASGI app. These settings override the constructor's. Raises ConfigError."""
        return build(self.agents, self._load(settings))

    def app_for(self, settings: Settings) -> App:
        """Return the ASGI app for loaded settings. Raises ConfigError."""
        return build(self.agents, settings)

    def serve(self, **settings: Unpack[SettingKeywords]) -> None:
        """Listen and serve until stopped. Ctrl-C exits with code 130.

        Logs go to stderr as the settings say, unless the program has configured logging itself.

        Raises:
            ConfigError: that is not possible.
        """
        from dragoman.server.listen.serve import serve
        from dragoman.telemetry.logs import configure, is_configured

        loaded = self._load(settings)
        if not is_configured():
            configure(loaded.log, loaded.log_level)
        try:
            serve(self, loaded, announce=lambda lines: print(*lines, sep="\n", file=sys.stderr))  # noqa: T201
        except KeyboardInterrupt:
            sys.exit(130)

    def in_process(self) -> Connection:
        """Return an in-process connection to the first agent."""
        return connect(self.agents[0])
