"""The HTTP API of the console: finds the handler of a request below `console/api/`, and writes its JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from dragoman.dialects.errors import status_of
from dragoman.model.error import (
    A2AError,
    ContentTypeNotSupported,
    DragomanError,
    Unauthenticated,
    Unauthorized,
)
from dragoman.transports.http import Disconnected, error_headers, limit_status, respond, unexpected_error

if TYPE_CHECKING:
    from dragoman.console.access import Viewer
    from dragoman.transports.http import Header, Request, Send

Access = Literal["public", "viewer", "admin"]
"""Who may call: everybody, who has signed in or has the token, or who has the token or the permission `admin`."""

Handler = Callable[["Viewer", "Request", Sequence[str]], Awaitable[Any]]
"""Handles a request; the segments are those of the path below `console/api/`.

It returns JSON, or an `ApiResponse`. A DragomanError that it raises is sent as
`{"error": text, "reason": REASON}` with the status of its class.
"""

ANY = "*"
"""Stands for one segment of any text in the path of an `ApiRoute`."""
# No page may keep what it is for one viewer, and no page of another site may read it.
API_HEADERS: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_encode = msgspec.json.Encoder(decimal_format="number").encode


class ApiRoute(NamedTuple):
    """A method and a path below `console/api/`, such as `("tasks", ANY, "journal")`, with who may call its handler."""

    method: Literal["GET", "POST"]
    path: tuple[str, ...]
    access: Access
    handler: Handler


class ApiResponse(NamedTuple):
    """A response with a status or headers of its own."""

    status: int
    body: Any
    headers: Sequence[Header] = ()


class ConsoleApi:
    """Dispatches requests to the handlers of a table of routes. Where two paths match, the first is chosen."""

    def __init__(self, routes: Iterable[ApiRoute]) -> None:
        self._routes = tuple(routes)

    async def serve(self, viewer: Viewer, request: Request, segments: Sequence[str], send: Send) -> None:
        """Respond to a request; `segments` are those of its path below `console/api/`."""
        with ExitStack() as memory:
            try:
                response = await self._respond(viewer, request, segments)
                body = _encode(response.body)
                memory.enter_context(request.covering(len(body), anyway=request.method == "POST"))
            except Disconnected:
                return
            except Exception as error:  # noqa: BLE001 - the page is told, whatever a handler raises
                response = error_response(error)
                body = _encode(response.body)
            headers = [*API_HEADERS, *response.headers]
            # HEAD is the same as GET: the server leaves the body away.
            await respond(send, response.status, body, headers=headers, head=request.method == "HEAD")

    async def _respond(self, viewer: Viewer, request: Request, segments: Sequence[str]) -> ApiResponse:
        method = "GET" if request.method == "HEAD" else request.method
        routes = [route for route in self._routes if _matches(route.path, segments)]
        route = next((route for route in routes if route.method == method), None)
        if route is None:
            return _no_route(routes, segments)
        check_access(viewer, route.access)
        if method == "POST" and request.content_type != "application/json":
            raise ContentTypeNotSupported("send Content-Type: application/json", header="content-type")
        result = await route.handler(viewer, request, segments)
        return result if isinstance(result, ApiResponse) else ApiResponse(200, result)


def check_access(viewer: Viewer, access: Access) -> None:
    """Check that a viewer may call a route.

    Raises:
        Unauthenticated: they must say who they are.
        Unauthorized: it is for administrators only.
    """
    if access == "public" or viewer.admin:
        return
    if viewer.user is None:
        raise Unauthenticated("open the console with its token, which `dragoman open` knows, or sign in")
    if access == "admin":
        raise Unauthorized("this needs the token of the console, or the permission `admin`")


def error_response(error: Exception) -> ApiResponse:
    """Build the response to a request that failed; what was not foreseen is logged, and tells nothing."""
    if not isinstance(error, DragomanError):
        error = unexpected_error(error)
    body = {"error": str(error), "reason": error.reason}
    if isinstance(error, A2AError):
        return ApiResponse(limit_status(error) or status_of(error).http, body, error_headers(error))
    return ApiResponse(400, body)


def _matches(path: Sequence[str], segments: Sequence[str]) -> bool:
    return len(path) == len(segments) and all(
        word in (ANY, segment) for word, segment in zip(path, segments, strict=True)
    )


def _no_route(routes: Sequence[ApiRoute], segments: Sequence[str]) -> ApiResponse:
    if not routes:
        return ApiResponse(404, {"error": f"not found: console/api/{'/'.join(segments)}", "reason": "NOT_FOUND"})
    methods = [method for route in routes for method in (("GET", "HEAD") if route.method == "GET" else ("POST",))]
    allow = ", ".join(dict.fromkeys(methods))
    body = {"error": f"use {allow} here", "reason": "METHOD_NOT_ALLOWED"}
    return ApiResponse(405, body, [(b"allow", allow.encode())])
