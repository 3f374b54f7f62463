"""The server's own pages: health checks, the list of agents, the key set, the login page, and what is not found."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from dragoman.dialects.errors import status_of
from dragoman.model.error import A2AError, ServerError
from dragoman.server.http.cross_site import origin_of
from dragoman.transports.http import Disconnected, error_headers, limit_status, respond

if TYPE_CHECKING:
    from dragoman.auth.inbound.login import Login, LoginResponse
    from dragoman.engine.ports.store import Store
    from dragoman.server.http.lazy import LazyKeys
    from dragoman.transports.http import Request, Send

CARD = "/.well-known/agent-card.json"
JWKS = "/.well-known/jwks.json"
AGENTS = "/agents/"
LOGIN = ("/login", "/logout")


async def check_ready(store: Store, *, is_draining: bool) -> None:
    """Check that the server may be sent requests.

    Raises:
        A2AError: it is stopping, or its store does not work.
    """
    if is_draining:
        raise ServerError("the server is stopping")
    await store.check()


async def show_health(path: str, store: Store, send: Send, *, is_draining: bool) -> None:
    """Respond to `/healthz` (the process is alive) and `/readyz` (it stays so, and the store works too)."""
    if path == "/healthz":
        await respond(send, 200, b'{"status":"ok"}')
        return
    try:
        await check_ready(store, is_draining=is_draining)
    except A2AError as error:
        await unavailable(send, error)
        return
    await respond(send, 200, b'{"status":"ready"}')


async def show_keys(keys: LazyKeys | None, send: Send) -> None:
    """Serve the public keys that webhooks and cards are signed with."""
    body = msgspec.json.encode(keys.jwks() if keys is not None else {"keys": []})
    await respond(send, 200, body, headers=[(b"cache-control", b"public, max-age=300")])


async def unavailable(send: Send, error: A2AError) -> None:
    """Respond that the server is unavailable."""
    await respond(send, 503, msgspec.json.encode({"status": "unavailable", "reason": str(error)}))


async def sign_in_or_out(login: Login | None, request: Request, base: str, send: Send) -> None:
    """Serve the login and logout pages."""
    if login is None:
        await not_found(send, request.path)
        return
    if request.method != "POST" and not (request.method in ("GET", "HEAD") and request.path == "/login"):
        await not_allowed(send, "GET, POST" if request.path == "/login" else "POST")
        return
    try:
        response = await _handle_login(login, request, base)
    except A2AError as error:
        status = limit_status(error) or status_of(error).http
        body = msgspec.json.encode({"error": str(error)})
        await respond(send, status, body, headers=error_headers(error))
    except Disconnected:
        return
    else:
        head = request.method == "HEAD"
        await respond(send, response.status, response.body, response.content_type, response.headers, head=head)


async def _handle_login(login: Login, request: Request, base: str) -> LoginResponse:
    from dragoman.auth.inbound.login import MAX_FORM

    origin, secure = origin_of(base), base.startswith("https://")
    if request.method != "POST":
        return await login.show(request, secure=secure)
    body = await request.body(MAX_FORM)
    if request.path == "/login":
        return await login.sign_in(request, body, secure=secure, origin=origin)
    return await login.sign_out(request, body, secure=secure, origin=origin)


async def not_allowed(send: Send, allow: str) -> None:
    """Respond 405 with the allowed methods."""
    body = msgspec.json.encode({"error": f"use {allow} here"})
    await respond(send, 405, body, headers=[(b"allow", allow.encode())])


async def not_found(send: Send, path: str, base: str = "") -> None:
    """Respond 404 with a hint to the card below `base`."""
    await _respond_not_found(send, path, f"the agent's card is at {base}{CARD}")


async def no_agent(send: Send, request: Request, base: str, names: Sequence[str]) -> None:
    """Respond 404 to a request below `/agents/` for an agent that is not here, with the nearest name."""
    name = unquote(request.prefix.removeprefix(AGENTS))
    near: Sequence[str] = get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean `{near[0]}`? Its card is at {base}{AGENTS}{quote(near[0], safe='')}{CARD}"
    else:
        hint = f"the agents here are listed at {base}{AGENTS.rstrip('/')}: {', '.join(names)}"
    await _respond_not_found(send, request.scope["path"], hint)


async def _respond_not_found(send: Send, path: str, hint: str) -> None:
    await respond(send, 404, msgspec.json.encode({"error": f"not found: {path}", "hint": hint}))


async def list_agents(send: Send, request: Request, base: str, agents: Sequence[tuple[str, str]]) -> None:
    """Respond to `/agents` with the agents, given by name and description, and where each and its card are."""
    listed = [
        {"name": name, "description": description, "url": url, "cardUrl": url + CARD}
        for name, description in agents
        for url in [f"{base}{AGENTS}{quote(name, safe='')}"]
    ]
    await respond(send, 200, msgspec.json.encode({"agents": listed}), head=request.method == "HEAD")
