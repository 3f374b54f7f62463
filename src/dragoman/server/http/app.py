"""The ASGI app: which agent, which transport, and the life of the parts behind them."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from dragoman.clock import SystemClock
from dragoman.dialects.errors import status_of
from dragoman.model.error import A2AError, DragomanError, ServerError, Unauthenticated
from dragoman.server.config.settings import Limits
from dragoman.server.http.cross_site import Guard, Misdirected, Page
from dragoman.server.http.limiter import Limiter
from dragoman.server.http.pages import (
    JWKS,
    LOGIN,
    OWN,
    not_allowed,
    not_found,
    show_health,
    show_keys,
    sign_in_or_out,
    unavailable,
)
from dragoman.telemetry import trace
from dragoman.transports.endpoint import JSON_LIMITS, Endpoint
from dragoman.transports.http import Disconnected, Request, refusal_headers, respond, segments_of
from dragoman.transports.jsonrpc.serve import JsonRpc
from dragoman.transports.rest.serve import Rest

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from dragoman.dialects.reading.limits import JsonLimits
    from dragoman.engine.journal.retention import Janitor
    from dragoman.engine.operations import Service
    from dragoman.engine.ports import Outbox, Store
    from dragoman.model.card import AgentCard
    from dragoman.model.task import Task
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.server.cards.cache import Cards
    from dragoman.server.http.address import Addresses
    from dragoman.server.http.authentication import Authentication
    from dragoman.server.http.lazy import LazyKeys as Keys
    from dragoman.server.plugins import RoutePath, Routes
    from dragoman.transports.endpoint import Answers, ExtendedCard
    from dragoman.transports.http import AsgiScope, Header, Receive, Send
    from dragoman.transports.limits import Denials
    from dragoman.webhooks.delivery import Courier

logger = logging.getLogger("dragoman.server")
_OLDEST = "/a2a"
_RPC = ("/", _OLDEST)


class App:
    """A plain ASGI callable. It needs no lifespan: it starts with the first request, and drains when it gets one."""

    def __init__(
        self,
        hosted: Sequence[Hosted],
        store: Store,
        addresses: Addresses,
        auth: Callable[[], Authentication | None],
        guard: Guard | None = None,
        janitor: Janitor | None = None,
        *,
        couriers: Callable[[], Courier] | None = None,
        keys: Keys | None = None,
        limiter: Limiter | None = None,
        extra: Sequence[Routes] = (),
    ) -> None:
        self._first = hosted[0]
        self._by_name = {one.agent.name: one for one in hosted}
        self._hosted = hosted
        self._store = store
        self._addresses = addresses
        # Who may call is known once it is known what there is to call: tools come with the servers they live on.
        self._decide_auth = auth
        self._opens_first = any(one.agent.tools is not None for one in hosted)
        self._auth = None if self._opens_first else auth()
        self._guard = guard or Guard(None, (), (), open_list=False)
        self._janitor = janitor
        self._couriers = couriers
        self._courier: Courier | None = None
        self._keys = keys
        self._limiter = limiter or Limiter(Limits(), SystemClock(), addresses)
        self._extra = extra
        self._mounts = {
            tuple(mount.strip("/").split("/")): (mount, routes) for routes in extra for mount in routes.mounts
        }
        self._pages = {f"/{'/'.join(path.words)}" for routes in extra for path in routes.paths if path.page}
        self._renew()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Lock | None = None
        self._ready = False
        self._drained = False
        self.startup_error: BaseException | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._courier = None if self._couriers is None else self._couriers()
        self._limiter.renew()
        for routes in self._extra:
            routes.renew()
        for hosted in self._hosted:
            extended = None if self._auth is None else partial(self._extended_card, hosted.cards)
            hosted.renew(self._courier, extended, self._limiter.denials)

    def _extended_card(self, cards: Cards, request: Request, user: User | None) -> AgentCard:
        base = self._addresses.base(request) + request.prefix
        return cards.signed(cards.told(base, user), request, base)

    async def start(self) -> None:
        """Open the store and recover what a crash interrupted. Raises ConfigError."""
        loop = asyncio.get_running_loop()
        if self._ready and self._loop is loop:
            return
        if self._loop is not loop:
            # Test clients bring a new loop with every request; what lived on the old one is gone.
            abandoned, self._loop, self._starting = self._ready, loop, asyncio.Lock()
            self._ready = False
            if abandoned:
                if self._auth is not None:
                    await self._auth.close()
                await self._store.close()
                self._renew()
        assert self._starting is not None
        async with self._starting:
            if not self._ready:
                await self._store.open()
                try:
                    await self._open_parts()
                except BaseException:
                    await self._store.close()
                    await asyncio.gather(*(hosted.agent.close() for hosted in self._hosted))
                    raise
                self._ready, self._drained = True, False
                if self._janitor is not None:
                    self._janitor.start()

    async def _open_parts(self) -> None:
        if self._drained:
            self._renew()
        opened = await asyncio.gather(*(hosted.agent.open() for hosted in self._hosted), return_exceptions=True)
        for error in filter(None, opened):  # once all have ended: none is half open when another cannot be opened
            raise error
        if self._opens_first and self._auth is None:
            self._auth = self._decide_auth()
            self._renew()
        for hosted in self._hosted:
            hosted.cards.check()
        if self._auth is not None:
            await self._auth.open()
            for hosted in self._hosted:
                hosted.cards.guard(self._auth.security())
        for hosted in self._hosted:
            await hosted.service.start()
        if self._courier is not None:
            await self._courier.start()

    @property
    def running(self) -> int:
        """How many runs go on now."""
        return sum(hosted.service.running for hosted in self._hosted)

    async def drain(self) -> None:
        """Let runs finish and end the streams, while connections are still open. A second call does nothing."""
        if self._ready and not self._drained:
            self._drained = True
            await asyncio.gather(*(hosted.service.close() for hosted in self._hosted))
            for routes in self._extra:
                await routes.close()

    async def stop(self) -> None:
        """Let runs finish, end streams, close the store."""
        await self.drain()
        if self._ready:
            self._ready = False
            if self._janitor is not None:
                await self._janitor.stop()
            if self._courier is not None:
                await self._courier.close()
            if self._auth is not None:
                await self._auth.close()
            await self._store.close()
            for hosted in self._hosted:
                await hosted.agent.close()

    async def resume(self, task_id: str, data: Any = None, *, agent: str | None = None) -> Task:
        """Continue a task that waits in auth-required (or for input), from a callback of your own.

        Raises:
            TaskNotFound: there is no such task.
            UnsupportedOperation: it does not wait.
        """
        await self.start()
        hosted = self._first if agent is None else self._by_name[agent]
        return await hosted.service.resume(task_id, data)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer an ASGI event."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:  # noqa: BLE001 - the server that runs us must hear of it
                    self.startup_error = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # -- requests --------------------------------------------------------------------------------------------------

    async def _http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        hosted, segments, prefix = self._host(segments_of(scope))
        request = Request(scope, receive, segments)
        request.prefix = prefix
        self._limiter.wait_for(request)
        path, looks = request.path, request.method in ("GET", "HEAD")
        extra = self._extra_route(request)
        try:
            self._guard.check_host(request, trusted=self._addresses.is_trusted(request))
        except Misdirected as error:
            await respond(send, 421, msgspec.json.encode({"error": str(error)}))
            return
        if request.method == "OPTIONS":
            await self._preflight(hosted or self._first, request, send)
        elif hosted is None:
            await self._nobody(request, send)
        elif path in hosted.cards.paths or (path in OWN and not prefix):
            if not looks:
                await not_allowed(send, "GET, HEAD")
            elif path in hosted.cards.paths:
                await self._card(hosted, request, send, prefix)
            else:
                await self._own_page(path, send)
        elif extra is not None and extra[1].page:
            await (self._card(hosted, request, send, prefix, extra[0]) if looks else not_allowed(send, "GET, HEAD"))
        elif path in LOGIN and not prefix and self._auth is not None:
            await self._login(self._auth, request, send)
        elif path == "/" and looks:
            await not_found(send, path)
        elif path in _RPC and request.method != "POST":
            await not_allowed(send, "POST")
        else:
            self._limiter.share(request)
            try:
                await self._operate(hosted, request, send, None if extra is None else extra[0])
            finally:
                request.release()

    def _host(self, segments: list[str]) -> tuple[Hosted | None, list[str], str]:
        match segments:
            case ["agents", name, *rest]:
                return self._by_name.get(name), rest, f"/agents/{quote(name, safe='')}"
            case _:
                for words, (mount, _) in self._mounts.items():
                    if len(segments) > len(words) and tuple(segments[: len(words)]) == words:
                        name, *rest = segments[len(words) :]
                        return self._by_name.get(name), rest, f"{mount}{quote(name, safe='')}"
                return self._first, segments, ""

    def _extra_route(self, request: Request) -> tuple[Routes, RoutePath] | None:
        """The plug-in's path that a request is for, if it is for one."""
        words = tuple(request.segments)
        for routes in self._extra:
            for path in routes.paths:
                if path.mount is not None and not request.prefix.startswith(path.mount):
                    continue
                if words == path.words or (path.words[-1] == "*" and words[:-1] == path.words[:-1] and words):
                    return routes, path
        return None

    async def _nobody(self, request: Request, send: Send) -> None:
        """There is no such agent."""
        for mount, routes in self._mounts.values():
            if request.prefix.startswith(mount):
                await routes.no_agent(unquote(request.prefix.removeprefix(mount)), send)
                return
        await not_found(send, request.scope["path"])

    async def _card(
        self, hosted: Hosted, request: Request, send: Send, prefix: str, routes: Routes | None = None
    ) -> None:
        user = None
        if self._auth is not None or self._opens_first or hosted.cards.signing is not None:
            # Users and keys are kept beside the tasks, and tools are known once their servers are.
            try:
                await self._start_for_request()
            except A2AError as error:
                await respond(send, 503, msgspec.json.encode({"error": str(error)}))
                return
            if self._auth is not None:
                page = self._guard.page(request, self._addresses.base)
                user = await self._auth.visitor(request, ambient=page is Page.OWN)
        base = self._addresses.base(request) + prefix
        if routes is None:
            status, body, headers = hosted.cards.serve(request, base, user)
        else:
            status, body, headers = routes.page(hosted, request, base, user)
        await respond(send, status, body, headers=headers, head=request.method == "HEAD")

    async def _own_page(self, path: str, send: Send) -> None:
        try:
            if path != "/healthz":
                await self._start_for_request()
        except A2AError as error:
            await unavailable(send, error)
            return
        if path == JWKS:
            await show_keys(self._keys, send)
        else:
            await show_health(path, self._store, send)

    async def _login(self, auth: Authentication, request: Request, send: Send) -> None:
        try:
            await self._start_for_request()
            self._limiter.admit(request, None)
        except A2AError as error:
            self._limiter.denials.note(request.caller, error)
            body = msgspec.json.encode({"error": str(error)})
            await respond(send, status_of(error).http, body, headers=refusal_headers(error))
            return
        await sign_in_or_out(auth.login, request, self._addresses.base(request), send)

    async def _preflight(self, hosted: Hosted, request: Request, send: Send) -> None:
        headers = self._guard.preflight_headers(
            request, anybody=request.path in self._pages or request.path in hosted.cards.paths
        )
        if headers is None:
            body = msgspec.json.encode({"error": "pages of this origin may not use this agent: add it to cors"})
            await respond(send, 403, body)
        else:
            await respond(send, 204, b"", headers=headers)

    async def _operate(self, hosted: Hosted, request: Request, send: Send, extra: Routes | None) -> None:
        trace.remember(request.headers)
        is_rpc = request.path in _RPC
        allowed = self._guard.cors_headers(request)
        if allowed:
            send = _with_headers(send, allowed)
        try:
            await self._start_for_request()
            user = await self._user(request)
            self._limiter.admit(request, user)
            request.may_list = self._guard.may_list(request, user)
        except A2AError as refused:
            error = self._counted(request, refused)
            self._limiter.denials.note(request.caller, error)
            challenge = [] if self._auth is None else self._auth.challenge(error)
            send = _with_headers(send, challenge) if challenge else send
            if extra is not None:
                await extra.refuse(send, error, challenged=bool(challenge))
            else:
                await self._refuse(hosted.rpc if is_rpc else hosted.rest, request, send, error)
            return
        except Disconnected:
            return
        if user is None and self._auth is not None and request.path == _OLDEST and hosted.needs_user:
            await self._operate_for_stranger(self._auth, hosted, request, send)
            return
        if extra is not None:
            await extra.serve(hosted, request, send, user)
            return
        await (hosted.rpc if is_rpc else hosted.rest).serve(request, send, user)

    async def _user(self, request: Request) -> User | None:
        """Who is calling. Of a foreign page only credentials count that no browser adds by itself.

        Raises:
            Unauthenticated: nobody says, or not convincingly.
            Unauthorized: a foreign page made the request, or the caller may not do this.
        """
        page, auth = self._guard.page(request, self._addresses.base), self._auth
        if page is not Page.FOREIGN:
            return None if auth is None else await auth.user(request, ambient=page is Page.OWN)
        user = None if auth is None else await auth.identify(request, ambient=False)
        if user is None:
            raise self._guard.refusal(request)
        return user

    @staticmethod
    async def _operate_for_stranger(auth: Authentication, hosted: Hosted, request: Request, send: Send) -> None:
        # What tools are asked by the oldest methods there is kept for somebody; the rest is open to strangers.
        names = ", ".join(auth.security()[0])
        stranger = Unauthenticated(f"say who you are, by one of these schemes of the agent's card: {names}")
        challenged = _with_headers(send, auth.challenge(stranger), status=401)
        await hosted.rpc.serve(request, challenged, None, stranger)

    def _counted(self, request: Request, error: A2AError) -> A2AError:
        """Count a stranger who is refused: guessing is limited like anything else."""
        if not request.caller:
            try:
                self._limiter.admit(request, None)
            except A2AError as more:
                return more
        return error

    async def _start_for_request(self) -> None:
        if self._ready and self._loop is asyncio.get_running_loop():
            return
        try:
            await self.start()
        except DragomanError as error:
            logger.error("the server cannot start: %s", error)
            raise ServerError("the server cannot start: its log says why") from None

    @staticmethod
    async def _refuse(transport: JsonRpc | Rest, request: Request, send: Send, error: A2AError) -> None:
        if isinstance(transport, JsonRpc):
            await transport.refuse(send, error, None, "1.0")
        else:
            await transport.refuse(request, send, error, "0.3" if request.segments[:1] == ["v1"] else "1.0")


def _with_headers(send: Send, more: list[Header], status: int | None = None) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and status in (None, message["status"]):
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sending


class Hosted:
    """One agent with everything that answers for it."""

    def __init__(
        self,
        agent: Agent,
        cards: Cards,
        service: Callable[[Outbox | None], Service],
        body_limit: int,
        *,
        blocking: bool,
        limits: JsonLimits = JSON_LIMITS,
        answers: Answers | None = None,
    ) -> None:
        self.agent = agent
        self.cards = cards
        self._answers = answers
        self.needs_user = answers is not None and answers.needs_user
        self._make_service = service
        self._body_limit = body_limit
        self._blocking = blocking
        self._limits = limits

    def renew(self, outbox: Outbox | None, extended: ExtendedCard | None, denials: Denials) -> None:
        """Begin with a fresh engine, for a new event loop."""
        self.service = self._make_service(outbox)
        endpoint = Endpoint(
            self.service,
            self.agent.extensions,
            body_limit=self._body_limit,
            blocking=self._blocking,
            limits=self._limits,
            denials=denials,
            answers=self._answers,
        )
        endpoint.extended = extended
        self.rpc = JsonRpc(endpoint)
        self.rest = Rest(endpoint)
