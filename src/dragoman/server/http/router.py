"""Finds the app for a request: exact paths first, then paths below an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from dragoman.transports.http import segments_of

if TYPE_CHECKING:
    from dragoman.transports.http import AsgiApp, AsgiScope


class Match(NamedTuple):
    """The app for a request, the path segments below the agent, and the agent's prefix."""

    app: AsgiApp
    segments: Sequence[str]
    prefix: str


class PathRoutes(NamedTuple):
    """The apps of one path by HTTP method, and the one for all other methods."""

    methods: Mapping[str, AsgiApp]
    otherwise: AsgiApp

    def find(self, method: str) -> AsgiApp:
        """Return the app for a method."""
        return self.methods.get(method, self.otherwise)


class AgentRoutes(NamedTuple):
    """The routes of one agent under one prefix.

    `paths` are exact, `below` maps the leading segments of paths whose last segment is arbitrary, and `otherwise` is
    for everything else. `preflight` responds to OPTIONS.
    """

    paths: Mapping[str, PathRoutes]
    below: Mapping[tuple[str, ...], AsgiApp]
    otherwise: AsgiApp
    preflight: AsgiApp

    def find(self, method: str, segments: Sequence[str]) -> AsgiApp:
        """Return the app for the segments of a path."""
        if method == "OPTIONS":
            return self.preflight
        path_routes = self.paths.get(f"/{'/'.join(segments)}")
        if path_routes is not None:
            return path_routes.find(method)
        return self.below.get(tuple(segments[:-1]), self.otherwise) if segments else self.otherwise


class Mount(NamedTuple):
    """Agents by name below a prefix, such as `/agents/`, and the app for unknown names."""

    agents: Mapping[str, AgentRoutes]
    missing: AsgiApp


class Router:
    """Finds the app for a request. `root` has the agent at the root, `mounts` are by prefix, with slashes around.

    `trees` has the apps of all paths, however deep, below a first segment.
    """

    def __init__(
        self, root: AgentRoutes, mounts: Mapping[str, Mount], trees: Mapping[str, AsgiApp] | None = None
    ) -> None:
        self._root = root
        self._trees = trees or {}
        self._mounts = {tuple(prefix.strip("/").split("/")): (prefix, mount) for prefix, mount in mounts.items()}
        self._first_words = {*self._trees, *(words[0] for words in self._mounts)}
        # By method and path, for apps at the root of their server: a fast path for nearly all requests.
        self.exact: dict[tuple[str, str], Match] = {}
        self._add("", "", root)
        for prefix, mount in mounts.items():
            for name, routes in mount.agents.items():
                self._add(f"{prefix}{name}", f"{prefix}{quote(name, safe='')}", routes)

    def _add(self, decoded_prefix: str, prefix: str, routes: AgentRoutes) -> None:
        for path, path_routes in routes.paths.items():
            words = path.strip("/").split("/") if path != "/" else []
            for method, app in path_routes.methods.items():
                self.exact[method, (decoded_prefix + path).rstrip("/") or "/"] = Match(app, words, prefix)

    def find(self, scope: AsgiScope) -> Match:
        """Find the app for any request."""
        segments, method = segments_of(scope), scope["method"]
        if not segments or segments[0] not in self._first_words:
            return Match(self._root.find(method, segments), segments, "")
        for words, (prefix, mount) in self._mounts.items():
            if len(segments) > len(words) and tuple(segments[: len(words)]) == words:
                name, rest = segments[len(words)], segments[len(words) + 1 :]
                routes = mount.agents.get(name)
                agent_prefix = f"{prefix}{quote(name, safe='')}"
                if routes is not None:
                    return Match(routes.find(method, rest), rest, agent_prefix)
                # A preflight for an unknown agent gets the response of the first agent.
                return Match(self._root.preflight if method == "OPTIONS" else mount.missing, rest, agent_prefix)
        return Match(self._trees.get(segments[0]) or self._root.find(method, segments), segments, "")
