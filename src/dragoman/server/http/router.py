"""Which app answers a request: exact paths first, then what stands below an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from dragoman.transports.http import segments_of

if TYPE_CHECKING:
    from dragoman.transports.http import AsgiApp, AsgiScope


class Route(NamedTuple):
    """What answers at a path, and what does so while the server is not started; None when `app` needs no start."""

    app: AsgiApp
    cold: AsgiApp | None = None


class Match(NamedTuple):
    """The route of a request, the words of its path below the agent, and where the agent stands."""

    route: Route
    segments: Sequence[str]
    prefix: str


class PathRoutes(NamedTuple):
    """The routes of one path by HTTP method, and the one for all other methods."""

    methods: Mapping[str, Route]
    otherwise: Route

    def route(self, method: str) -> Route:
        """The route for a method."""
        return self.methods.get(method, self.otherwise)


class AgentRoutes(NamedTuple):
    """The routes of one agent at one place.

    `paths` are exact ones, `below` has those with any one word more by the words before it, and `otherwise` is for
    everything else. `preflight` answers the OPTIONS of browsers.
    """

    paths: Mapping[str, PathRoutes]
    below: Mapping[tuple[str, ...], Route]
    otherwise: Route
    preflight: Route

    def route(self, method: str, segments: Sequence[str]) -> Route:
        """The route for the words of a path."""
        if method == "OPTIONS":
            return self.preflight
        path_routes = self.paths.get(f"/{'/'.join(segments)}")
        if path_routes is not None:
            return path_routes.route(method)
        return self.below.get(tuple(segments[:-1]), self.otherwise) if segments else self.otherwise


class Mount(NamedTuple):
    """Agents by name below a prefix, such as `/agents/`, and the route for a name that there is not."""

    agents: Mapping[str, AgentRoutes]
    missing: Route


class Router:
    """Finds the route of a request. `root` is the agent at the top, `mounts` are by prefix, each between slashes."""

    def __init__(self, root: AgentRoutes, mounts: Mapping[str, Mount]) -> None:
        self._root = root
        self._mounts = {tuple(prefix.strip("/").split("/")): (prefix, mount) for prefix, mount in mounts.items()}
        # By method and path, for apps that stand at the root of their server: nearly all requests end here.
        self.exact: dict[tuple[str, str], Match] = {}
        self._add("", "", root)
        for prefix, mount in mounts.items():
            for name, routes in mount.agents.items():
                self._add(f"{prefix}{name}", f"{prefix}{quote(name, safe='')}", routes)

    def _add(self, place: str, prefix: str, routes: AgentRoutes) -> None:
        for path, path_routes in routes.paths.items():
            words = path.strip("/").split("/") if path != "/" else []
            for method, route in path_routes.methods.items():
                self.exact[method, (place + path).rstrip("/") or "/"] = Match(route, words, prefix)

    def find(self, scope: AsgiScope) -> Match:
        """The route of any request."""
        segments, method = segments_of(scope), scope["method"]
        for words, (prefix, mount) in self._mounts.items():
            if len(segments) > len(words) and tuple(segments[: len(words)]) == words:
                name, rest = segments[len(words)], segments[len(words) + 1 :]
                routes = mount.agents.get(name)
                place = f"{prefix}{quote(name, safe='')}"
                if routes is not None:
                    return Match(routes.route(method, rest), rest, place)
                # A browser that asks first is answered for the first agent.
                return Match(self._root.preflight if method == "OPTIONS" else mount.missing, rest, place)
        return Match(self._root.route(method, segments), segments, "")
