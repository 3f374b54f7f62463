"""Builds the routes of a server: the app of each path, behind the middleware that the settings enable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import msgspec

from dragoman.dialects.errors import status_of
from dragoman.server.cards.cache import describe
from dragoman.server.http.authentication import authenticate, challenge_anonymous
from dragoman.server.http.console import CONSOLE, ConsolePages
from dragoman.server.http.cross_site import PageOrigin, add_cors_headers, answer_preflight, check_host, check_page
from dragoman.server.http.limiter import admit, build_refuse
from dragoman.server.http.pages import (
    AGENTS,
    JWKS,
    LOGIN,
    list_agents,
    no_agent,
    not_allowed,
    not_found,
    show_health,
    show_keys,
    sign_in_or_out,
)
from dragoman.server.http.router import AgentRoutes, Mount, PathRoutes, Router
from dragoman.transports.http import REQUEST, error_headers, respond
from dragoman.transports.jsonrpc.serve import jsonrpc_app

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store
    from dragoman.model.card import AgentCard
    from dragoman.model.error import A2AError
    from dragoman.model.user import User
    from dragoman.server.http.address import Addresses
    from dragoman.server.http.authentication import Authentication
    from dragoman.server.http.console import ConsoleSettings
    from dragoman.server.http.cross_site import CrossSiteCheck
    from dragoman.server.http.hosted import HostedAgent
    from dragoman.server.http.lazy import LazyKeys
    from dragoman.server.http.limiter import ErrorResponder, Limiter
    from dragoman.server.plugins import RoutePath, Routes
    from dragoman.transports.http import AsgiApp, AsgiScope, Header, Receive, Request, Send

    # Returns status, body and headers of a page for a reader: the card, or a page of a plug-in.
    PageResponder = Callable[[Request, str, User | None], tuple[int, bytes, list[Header]]]

# The paths of JSON-RPC; the second also serves the oldest version.
RPC, OLDEST = "/", "/a2a"


class Routing(NamedTuple):
    """Builds the routes of a server. `is_draining` tells whether it stops."""

    hosted: Sequence[HostedAgent]
    store: Store
    addresses: Addresses
    cross_site: CrossSiteCheck
    limiter: Limiter
    auth: Authentication | None
    keys: LazyKeys | None
    extra: Sequence[Routes]
    console_settings: ConsoleSettings | None
    is_draining: Callable[[], bool]

    def build_router(self) -> Router:
        """Build all routes: the first agent is also at the root, along with the server's own pages."""
        console = self._console()
        root = self._agent(self.hosted[0], None)
        trees: dict[str, AsgiApp] = {}
        if console is not None:
            root = root._replace(paths={**root.paths, RPC: self._for_browsers(root.paths[RPC], console.page_or)})
            trees[CONSOLE] = self._with_host_check(console.serve_below)
        root = root._replace(paths={**root.paths, **self._own_paths()})
        names = [hosted.agent.name for hosted in self.hosted]

        def missing(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            return no_agent(send, request, self.addresses.base(request), names)

        agents = self._agents(AGENTS)
        if console is not None:
            for name, own in agents.items():
                rpc = self._for_browsers(own.paths[RPC], console.redirect_or)
                agents[name] = own._replace(paths={**own.paths, RPC: rpc})
        mounts = {AGENTS: Mount(agents, self._with_host_check(missing))}
        for routes in self.extra:
            for mount in routes.mounts:
                mounts[mount] = Mount(self._agents(mount), self._missing_agent(routes, mount))
        return Router(root, mounts, trees)

    def build_grpc_app(self) -> AsgiApp:
        """Build the app of all gRPC calls: the same authentication and limits; no page of a browser can call it."""
        # Imported here: it needs the extra `grpc`.
        from dragoman.transports.grpc.serve import GrpcAgent, grpc_app

        def card_of(hosted: HostedAgent, request: Request) -> AgentCard:
            return hosted.cards.extended_card(self.addresses.base(request), request.user)

        agents = {hosted.agent.name: GrpcAgent(hosted.endpoint, partial(card_of, hosted)) for hosted in self.hosted}
        app = grpc_app(agents)
        refuse = build_refuse(app.send_error, self.limiter, self.auth)
        admitted = admit(app, self.limiter, self.cross_site, refuse)
        if self.auth is None:
            return admitted
        return authenticate(admitted, self.auth, self.cross_site, self.addresses.base, refuse)

    def _agents(self, mount: str) -> dict[str, AgentRoutes]:
        return {hosted.agent.name: self._agent(hosted, mount) for hosted in self.hosted}

    def _missing_agent(self, routes: Routes, mount: str) -> AsgiApp:
        def missing(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            return routes.no_agent(unquote(scope[REQUEST].prefix.removeprefix(mount)), send)

        return self._with_host_check(missing)

    # -- one agent -------------------------------------------------------------------------------------------------

    def _agent(self, hosted: HostedAgent, mount: str | None) -> AgentRoutes:
        rpc = self._operation(hosted.rpc, hosted.rpc.send_error)
        rpc_only = self._not_allowed("POST")

        def show_hint(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            return not_found(send, request.path, self.addresses.base(request) + request.prefix)

        missing = self._with_host_check(show_hint)
        paths = {
            RPC: PathRoutes({"POST": rpc, "GET": missing, "HEAD": missing}, rpc_only),
            OLDEST: PathRoutes({"POST": self._oldest(hosted) or rpc}, rpc_only),
        }
        below: dict[tuple[str, ...], AsgiApp] = {}
        for routes in self.extra:
            self._add_extra(routes, hosted, mount, paths, below)
        page = self._page(hosted, hosted.cards.serve)
        paths |= dict.fromkeys(hosted.cards.paths, page)
        rest = self._operation(hosted.rest, hosted.rest.send_error)
        pages = (_path_text(path) for routes in self.extra for path in routes.paths if path.page)
        open_paths = {*pages, *hosted.cards.paths}
        return AgentRoutes(paths, below, rest, self._with_host_check(answer_preflight(self.cross_site, open_paths)))

    def _add_extra(
        self,
        routes: Routes,
        hosted: HostedAgent,
        mount: str | None,
        paths: dict[str, PathRoutes],
        below: dict[tuple[str, ...], AsgiApp],
    ) -> None:
        def serve(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            return routes.serve(hosted, request, send, request.user)

        def refuse(request: Request, send: Send, error: A2AError, *, challenged: bool) -> Awaitable[None]:
            return routes.refuse(send, error, challenged=challenged)

        operation = self._operation(serve, refuse)
        page = self._page(hosted, partial(routes.page, hosted))
        for path in routes.paths:
            if path.mount not in (None, mount):
                continue
            if path.words[-1] == "*":
                below[path.words[:-1]] = operation
            else:
                paths[_path_text(path)] = page if path.page else PathRoutes({}, operation)

    def _oldest(self, hosted: HostedAgent) -> AsgiApp | None:
        """Build `/a2a` of an agent whose callers must say there who they are, whatever the other paths allow."""
        auth = self.auth
        if auth is None or not hosted.needs_user:
            return None
        rpc = jsonrpc_app(hosted.endpoint, auth.anonymous_refusal)
        return self._operation(challenge_anonymous(rpc, auth), rpc.send_error)

    # -- with middleware -------------------------------------------------------------------------------------------

    def _operation(self, app: AsgiApp, send_error: ErrorResponder) -> AsgiApp:
        """Add authentication, if it is on, and rate limits. `send_error` sends refusals."""
        cross_site, auth, base = self.cross_site, self.auth, self.addresses.base
        refuse = build_refuse(send_error, self.limiter, auth)
        app = admit(app, self.limiter, cross_site, refuse)
        app = (
            check_page(app, cross_site, base, refuse)
            if auth is None
            else authenticate(app, auth, cross_site, base, refuse)
        )
        if cross_site.allows_cors:
            app = add_cors_headers(app, cross_site)
        return self._with_host_check(app)

    def _with_host_check(self, app: AsgiApp) -> AsgiApp:
        addresses = self.addresses
        return check_host(app, self.cross_site, addresses.is_trusted if addresses.has_proxies else None)

    # -- pages -----------------------------------------------------------------------------------------------------

    def _page(self, hosted: HostedAgent, page: PageResponder) -> PathRoutes:
        """Build the public route of a card or of a plug-in's page; authenticated callers may see more."""

        async def show(scope: AsgiScope, _: Receive, send: Send) -> None:
            request: Request = scope[REQUEST]
            user = None
            if self.auth is not None:
                origin = self.cross_site.page_origin(request, self.addresses.base)
                user = await self.auth.try_identify(request, ambient=origin is PageOrigin.OWN)
            status, body, headers = page(request, self.addresses.base(request) + request.prefix, user)
            await respond(send, status, body, headers=headers, head=request.method == "HEAD")

        return self._read_only(show)

    def _console(self) -> ConsolePages | None:
        if self.console_settings is None:
            return None
        return ConsolePages(
            self.console_settings, self.hosted, self.addresses, self.cross_site, self.limiter, self.auth
        )

    def _for_browsers(self, routes: PathRoutes, wrap: Callable[[AsgiApp], AsgiApp]) -> PathRoutes:
        """Return the routes of a path where browsers, but no other clients, see a page."""
        pages = {method: self._with_host_check(wrap(routes.methods[method])) for method in ("GET", "HEAD")}
        return routes._replace(methods={**routes.methods, **pages})

    def _own_paths(self) -> dict[str, PathRoutes]:
        """Build the server's own pages: health, keys, agents and login."""

        def health(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            return show_health(scope[REQUEST].path, self.store, send, is_draining=self.is_draining())

        def agents(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            listed = [(hosted.agent.name, describe(hosted.agent)) for hosted in self.hosted]
            return list_agents(send, request, self.addresses.base(request), listed)

        paths = {
            "/healthz": self._read_only(health),
            "/readyz": self._read_only(health),
            JWKS: self._read_only(lambda _, __, send: show_keys(self.keys, send)),
            AGENTS.rstrip("/"): self._read_only(agents),
        }
        if self.auth is not None:
            login = self._login(self.auth)
            paths |= {path: PathRoutes({}, login) for path in LOGIN}
        return paths

    def _login(self, auth: Authentication) -> AsgiApp:
        def sign(scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            return sign_in_or_out(auth.login, request, self.addresses.base(request), send)

        def refuse(request: Request, send: Send, error: A2AError) -> Awaitable[None]:
            self.limiter.denials.log(request.caller, error)
            body = msgspec.json.encode({"error": str(error)})
            return respond(send, status_of(error).http, body, headers=error_headers(error))

        return self._with_host_check(admit(sign, self.limiter, self.cross_site, refuse))

    def _read_only(self, app: AsgiApp) -> PathRoutes:
        checked = self._with_host_check(app)
        return PathRoutes({"GET": checked, "HEAD": checked}, self._not_allowed("GET, HEAD"))

    def _not_allowed(self, methods: str) -> AsgiApp:
        return self._with_host_check(lambda _, __, send: not_allowed(send, methods))


def _path_text(path: RoutePath) -> str:
    return "/" + "/".join(path.words)
