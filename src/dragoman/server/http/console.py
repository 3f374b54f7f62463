"""The paths of the web console: its page at `/` for browsers, its files and its API below `/console/`."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from dragoman import __version__
from dragoman.console.access import ConsoleAccess, Viewer
from dragoman.console.api import API_HEADERS, ApiResponse, ApiRoute, ConsoleApi, error_response
from dragoman.console.files import BY_ACCEPT, PAGE, PAGE_HEADERS, load_files, prefers_html
from dragoman.model.error import A2AError
from dragoman.server.cards.cache import SCHEMAS, describe
from dragoman.server.http.cross_site import PageOrigin
from dragoman.server.http.limiter import admit
from dragoman.server.http.pages import AGENTS, CARD, not_allowed
from dragoman.telemetry.audit import Audit
from dragoman.transports.http import REQUEST, USER, Disconnected, respond

if TYPE_CHECKING:
    from dragoman.console.server.view import ServerView
    from dragoman.model.user import User
    from dragoman.server.http.address import Addresses
    from dragoman.server.http.authentication import Authentication
    from dragoman.server.http.cross_site import CrossSiteCheck
    from dragoman.server.http.hosted import HostedAgent
    from dragoman.server.http.limiter import Limiter
    from dragoman.transports.http import AsgiApp, AsgiScope, Header, Receive, Request, Send

CONSOLE = "console"
"""The first segment of the paths of the console."""
_API = "api"
# What may be in a query as it is: no server that another app runs on has to check a redirect for line breaks.
_QUERY = "!$%&'()*+,-./:;=?@_~"
# What follows from a token must not be kept by anybody on the way.
_NO_STORE = (b"cache-control", b"no-store")


class ConsoleSettings:
    """What the server's settings and parts are for the console: who may see it, and the routes of its API.

    `server_view` watches the server while it runs.
    """

    def __init__(
        self, access: ConsoleAccess, routes: Sequence[ApiRoute] = (), server_view: ServerView | None = None
    ) -> None:
        self.access = access
        self.routes = routes
        self._server_view = server_view

    def start(self) -> None:
        """Watch the server, which starts. Idempotent."""
        if self._server_view is not None:
            self._server_view.start()

    def stop(self) -> None:
        """Watch it no more. Idempotent."""
        if self._server_view is not None:
            self._server_view.stop()


class ConsolePages:
    """The apps of the console's paths. Those who build the routes check the Host before."""

    def __init__(
        self,
        settings: ConsoleSettings,
        hosted: Sequence[HostedAgent],
        addresses: Addresses,
        cross_site: CrossSiteCheck,
        limiter: Limiter,
        auth: Authentication | None,
        audit: Audit | None = None,
    ) -> None:
        self._access = settings.access
        self._hosted = hosted
        self._addresses = addresses
        self._cross_site = cross_site
        self._auth = auth
        self._limiter = limiter
        self._audit = audit or Audit()
        own = (
            ApiRoute("GET", ("session",), "public", self._session),
            ApiRoute("POST", ("sign-out",), "public", self._sign_out),
        )
        self._api = ConsoleApi((*own, *settings.routes))
        self._admitted_api = admit(self._serve_api, limiter, cross_site, self.refuse)
        self._admitted_token = admit(self._check_token, limiter, cross_site, self.refuse)

    # -- the page ----------------------------------------------------------------------------------------------------

    def page_or(self, otherwise: AsgiApp) -> AsgiApp:
        """Build an app that sends browsers the page, and leaves all other clients to another app."""

        def app(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            if not prefers_html(request.headers.get("accept", "")):
                return otherwise(scope, receive, send)
            if folder := _missing_slash(scope):
                query = quote(scope.get("query_string", b""), safe=_QUERY)
                return _redirect(send, f"{folder}{'?' if query else ''}{query}")
            if "token" in request.query:
                return self._admitted_token(scope, receive, send)
            return _send_page(request, send)

        return app

    def redirect_or(self, otherwise: AsgiApp) -> AsgiApp:
        """Build an app for `/agents/NAME` that sends browsers to that agent on the page."""

        def app(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
            request: Request = scope[REQUEST]
            if not prefers_html(request.headers.get("accept", "")):
                return otherwise(scope, receive, send)
            up = "../../" if scope["path"].endswith("/") else "../"
            return _redirect(send, f"{up}#{request.prefix}")

        return app

    def _check_token(self, scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
        """Give the browser a cookie for a right token, and a page without the token in its address; else say so."""
        request: Request = scope[REQUEST]
        address = self._addresses.caller(request)
        if self._access.accepts(request.query["token"]):
            self._audit.record_sign_in(scheme="console", address=address)
            return _redirect(send, "./", [self._access.cookie(self._addresses.base(request))])
        if self._access.mode == "token":
            self._audit.record_denial(scheme="console", reason="wrong-token", address=address)
        # The page sees the token in its address, and that it was not accepted.
        return _send_page(request, send, status=403)

    # -- below /console/ ---------------------------------------------------------------------------------------------

    async def serve_below(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Respond to a request for a file or the API: all paths whose first segment is `console`."""
        request: Request = scope[REQUEST]
        segments = request.segments[1:]
        if segments[:1] == [_API]:
            await self._identify(scope, receive, send)
            return
        if request.method not in ("GET", "HEAD"):
            await not_allowed(send, "GET, HEAD")
            return
        file = (await load_files()).get("/".join(segments))
        if file is not None:
            status, body, content_type, headers = file.respond(request)
            await respond(send, status, body, content_type, headers, head=request.method == "HEAD")
        elif not segments and prefers_html(request.headers.get("accept", "")):
            await _redirect(send, "../" if scope["path"].endswith("/") else "./")
        else:
            body = msgspec.json.encode({"error": f"not found: {request.path}", "hint": "the console is at /"})
            await respond(send, 404, body)

    async def _identify(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Find out whose request to the API it is. Pages of other sites may not make any, whatever they present."""
        request: Request = scope[REQUEST]
        if self._cross_site.page_origin(request, self._addresses.base) is not PageOrigin.OWN:
            await self.refuse(request, send, self._cross_site.refusal(request))
            return
        try:
            scope[USER] = await self._user(request)
        except Disconnected:
            return
        await self._admitted_api(scope, receive, send)

    async def _user(self, request: Request) -> User | None:
        """Return who the agent says it is; somebody with a wrong or old credential is nobody, and can sign in again."""
        if self._auth is None:
            return None
        try:
            return await self._auth.identify(request)
        except A2AError:
            return None

    def _serve_api(self, scope: AsgiScope, _: Receive, send: Send) -> Awaitable[None]:
        request: Request = scope[REQUEST]
        viewer = self._access.viewer(request, self._addresses.base(request), request.user)
        return self._api.serve(viewer, request, request.segments[2:], send)

    async def refuse(self, request: Request, send: Send, error: A2AError) -> None:
        """Respond to a request that is not admitted: by the rate limit, or because the server does not start."""
        error = self._limiter.count_refusal(request, error)
        self._limiter.denials.log(request.caller, error)
        response = error_response(error)
        headers = [*API_HEADERS, *response.headers]
        await respond(send, response.status, msgspec.json.encode(response.body), headers=headers)

    # -- session -----------------------------------------------------------------------------------------------------

    async def _session(self, viewer: Viewer, _: Request, __: Sequence[str]) -> dict[str, Any]:
        auth, user = self._auth, viewer.user
        return {
            "version": __version__,
            "mode": self._access.mode,
            "token": viewer.token,
            "admin": viewer.admin,
            "user": None if user is None else {"name": user.name or user.id},
            "permissions": [] if user is None else sorted(user.permissions),
            "login": "login" if auth is not None and auth.login is not None else None,
            "agents": [
                {
                    "name": hosted.agent.name,
                    "description": describe(hosted.agent),
                    "path": f"{AGENTS}{quote(hosted.agent.name, safe='')}/".lstrip("/"),
                    "card": CARD.lstrip("/"),
                    "skillSchemas": SCHEMAS.lstrip("/"),
                }
                for hosted in self._hosted
            ],
        }

    async def _sign_out(self, viewer: Viewer, request: Request, _: Sequence[str]) -> ApiResponse:
        base = self._addresses.base(request)
        cookies = [self._access.expired_cookie(base)]
        login = None if self._auth is None else self._auth.login
        if login is not None:
            cookies += login.expired_cookies(secure=base.startswith("https://"))
        if viewer.user is not None or viewer.token:
            name = "" if viewer.user is None else viewer.user.name
            self._audit.record_sign_out(user=name, scheme="console", address=self._addresses.caller(request))
        return ApiResponse(200, {}, cookies)


def _missing_slash(scope: AsgiScope) -> str:
    """Return the last segment of a mount with a slash, if the request has none; empty where the address is right.

    The addresses in the page are relative to its folder.
    """
    path: str = scope["path"] or scope.get("root_path", "")
    last = path.rpartition("/")[2]
    return f"{quote(last)}/" if last else ""


async def _send_page(request: Request, send: Send, status: int | None = None) -> None:
    """Send the page; with a status, it is not to be kept."""
    page = (await load_files())[PAGE]
    head = request.method == "HEAD"
    if status is not None:
        await respond(send, status, page.body, page.content_type, (*PAGE_HEADERS, _NO_STORE, BY_ACCEPT), head=head)
        return
    response = page.respond(request, varies=True)
    await respond(send, response.status, response.body, response.content_type, response.headers, head=head)


def _redirect(send: Send, place: str, headers: Sequence[Header] = ()) -> Awaitable[None]:
    """Redirect to a place relative to the request: it is right behind any proxy."""
    location = (b"location", place.encode("latin-1", "replace"))
    return respond(send, 303, b"", headers=[location, _NO_STORE, BY_ACCEPT, *headers])
