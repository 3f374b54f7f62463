"""The ASGI app: startup and shutdown of the server's parts, and dispatch of requests to routes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.engine.handle import read_handle, unusable_handle
from dragoman.model.error import ConfigError, DragomanError, ServerError
from dragoman.server.http.cross_site import CrossSiteCheck
from dragoman.server.http.pages import check_ready, unavailable
from dragoman.server.http.routes import Routing
from dragoman.telemetry import trace
from dragoman.telemetry.loop import LoopMonitor
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.otel import FORWARDING
from dragoman.telemetry.spans import TRACING
from dragoman.transports.http import GRPC_CALL, REQUEST, Request, respond

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.engine.journal.retention import Janitor
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.store import Store
    from dragoman.model.task import Task
    from dragoman.server.http.address import Addresses
    from dragoman.server.http.authentication import Authentication
    from dragoman.server.http.console import ConsoleSettings
    from dragoman.server.http.hosted import HostedAgent
    from dragoman.server.http.lazy import LazyKeys as Keys
    from dragoman.server.http.limiter import Limiter
    from dragoman.server.http.router import Router
    from dragoman.server.plugins import Routes
    from dragoman.telemetry.loop import RunningSkill
    from dragoman.transports.http import AsgiApp, AsgiScope, Receive, Send
    from dragoman.webhooks.service import DeliveryService

logger = logging.getLogger("dragoman.server")
_RETRY_SOON = (b"retry-after", b"1")
# How long gRPC calls may take to end once the runs have ended, in seconds.
_CALL_SECONDS = 1.0
_OTHER_LOOP = (
    "this app was started on another event loop, and an app lives on one: run it with its lifespan, as every ASGI "
    "server does; use test clients in a `with` block, and build an app for each: `agent.app()` is cheap"
)
_STOPPED = "this app was stopped, and an app starts once: build another one, which is cheap, with `agent.app()`"


class CallListener(Protocol):
    """What listens for gRPC calls, and hands them to the app."""

    @property
    def local_address(self) -> str:
        """The address for callers on this machine."""
        ...

    @property
    def public_address(self) -> tuple[str, int]:
        """The host and port for other callers; the host is empty for the one by which they reach HTTP."""
        ...

    async def start(self) -> None:
        """Accept calls."""
        ...

    async def report_health(self) -> None:
        """Tell callers who watch the health of the server what has changed."""
        ...

    def close(self) -> None:
        """Accept no more calls, and let those that are there go on."""
        ...

    async def stop(self, seconds: float) -> None:
        """Accept no more calls, and end those that are not done after some time."""
        ...


class MetricsExporter(Protocol):
    """What has metrics recorded, for somebody who reads them."""

    @property
    def address(self) -> str:
        """The URL at which this machine reads them."""
        ...

    def start(self) -> None:
        """Begin. Idempotent. Raises ConfigError."""
        ...

    def close(self) -> None:
        """End. Idempotent."""
        ...


class App:
    """A plain ASGI app. It starts once and lives on one event loop, the one that it is first started on.

    Lifespan is optional: without it the app starts with the first request and does not drain. `watches_loop` is False
    where time stands still, as in tests. `samplers` set metrics once a second. When the store and the agents are open,
    `check` raises ConfigError if a setting is missing that the agents need, and `authentication` is built: tools and
    their permissions come from MCP servers.
    """

    def __init__(
        self,
        hosted: Sequence[HostedAgent],
        store: Store,
        addresses: Addresses,
        limiter: Limiter,
        cross_site: CrossSiteCheck | None = None,
        janitor: Janitor | None = None,
        *,
        authentication: Callable[[], Authentication | None] = lambda: None,
        bus: Bus | None = None,
        check: Callable[[], None] | None = None,
        delivery: DeliveryService | None = None,
        keys: Keys | None = None,
        grpc_factory: Callable[[App], CallListener] | None = None,
        metrics: MetricsExporter | None = None,
        extra: Sequence[Routes] = (),
        console: ConsoleSettings | None = None,
        watches_loop: bool = True,
        samplers: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._by_name = {one.agent.name: one for one in hosted}
        self._hosted = hosted
        self._store = store
        self._bus = bus
        self._check = check
        self._addresses = addresses
        self._authentication = authentication
        self._auth: Authentication | None = None
        self._cross_site = cross_site or CrossSiteCheck(None, (), (), open_list=False)
        self._janitor = janitor
        self._delivery = delivery
        self._keys = keys
        self._limiter = limiter
        self._shared = limiter.shared
        self._grpc_factory = grpc_factory
        self._grpc: CallListener | None = None
        self._metrics = metrics
        self._extra = extra
        self._console = console
        # Built at the start, because they depend on authentication.
        self._router: Router
        self._grpc_app: AsgiApp
        # The loop that the app lives on, from its first attempt to start, and the same while it serves.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready_loop: asyncio.AbstractEventLoop | None = None
        self._start_lock = asyncio.Lock()
        self._opening_store: asyncio.Task[None] | None = None
        self._draining = False
        self.startup_error: BaseException | None = None
        self.monitor = LoopMonitor(self._find_skill)
        for sampler in (self._sample, *samplers):
            self.monitor.add_sampler(sampler)
        self._watches_loop = watches_loop

    # -- start and stop --------------------------------------------------------------------------------------------

    def listens_at(self, url: str) -> None:
        """Set where the server listens, for receivers of webhooks: that is where the keys of signatures are."""
        self._addresses.listening = url
        if self._delivery is not None:
            self._delivery.issuer = self._addresses.own or url

    @property
    def grpc_address(self) -> str:
        """The address at which this machine reaches the server over gRPC; empty while it does not listen there."""
        return "" if self._grpc is None else self._grpc.local_address

    @property
    def has_console(self) -> bool:
        """True when browsers are shown the console."""
        return self._console is not None

    @property
    def metrics_address(self) -> str:
        """The URL at which this machine reads the metrics of the server; empty if there is none."""
        return "" if self._metrics is None else self._metrics.address

    def close_grpc(self) -> None:
        """Accept no more calls over gRPC, because others do; those that are there go on."""
        if self._grpc is not None:
            self._grpc.close()

    async def start(self) -> None:
        """Open the store and all parts, and recover tasks that a crash interrupted. Idempotent until `stop`.

        A start that failed may be tried again.

        Raises:
            ConfigError: a setting does not fit, or the store cannot be opened. Or the app was stopped, or was started
                on another event loop.
            DragomanError: an agent cannot be opened.
        """
        loop = asyncio.get_running_loop()
        if self._ready_loop is loop:
            return
        if self._loop is None:
            self._loop = loop
        self._check_loop()
        async with self._start_lock:
            if self._ready_loop is None:
                if self._draining:
                    raise ConfigError(_STOPPED)
                TRACING.detect()
                FORWARDING.detect()
                try:
                    self._observe()  # first: what is recovered counts
                    await self._open()
                except BaseException:
                    self._observe_no_more()
                    raise
                self._ready_loop = loop
                if self._janitor is not None:
                    self._janitor.start()
                if self._watches_loop:
                    self.monitor.start()

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise ConfigError(_STOPPED if self._draining else _OTHER_LOOP)

    def _observe(self) -> None:
        if self._metrics is not None:
            self._metrics.start()
        if self._console is not None:
            self._console.start()

    def _observe_no_more(self) -> None:
        if self._console is not None:
            self._console.stop()
        if self._metrics is not None:
            self._metrics.close()

    def give_up_start(self) -> None:
        """Stop waiting for the store, which may take long while its database is down: `start` raises ServerError."""
        if self._opening_store is not None:
            self._opening_store.cancel()

    async def _open(self) -> None:
        opening = self._opening_store = asyncio.ensure_future(self._store.open())
        try:
            await opening
        except asyncio.CancelledError:
            if not opening.cancelled() or (current := asyncio.current_task()) is None or current.cancelling():
                raise
            raise ServerError("the server was stopped before its store answered") from None
        finally:
            self._opening_store = None
        try:
            if self._bus is not None:
                await self._bus.open()
            await self._open_parts()
        except BaseException:
            await self._close_auth()
            await self._close_store()
            await asyncio.gather(*(hosted.agent.close() for hosted in self._hosted))
            raise

    async def _open_parts(self) -> None:
        results = await asyncio.gather(
            *(hosted.agent.backend.open() for hosted in self._hosted), return_exceptions=True
        )
        for error in filter(None, results):  # after all have finished, so that none is half open
            raise error
        if self._check is not None:
            self._check()
        for hosted in self._hosted:
            hosted.cards.check()
        auth = self._auth = self._authentication()
        if auth is not None:
            await auth.open()
            for hosted in self._hosted:
                hosted.cards.set_security(auth.security())
        self._build_routes()
        for hosted in self._hosted:
            await hosted.service.start()
        if self._delivery is not None:
            await self._delivery.start()
        if self._grpc_factory is not None:
            self._grpc = self._grpc_factory(self)
            self._addresses.grpc_at(*self._grpc.public_address)
            await self._grpc.start()

    def _build_routes(self) -> None:
        routing = Routing(
            self._hosted,
            self._store,
            self._addresses,
            self._cross_site,
            self._limiter,
            self._auth,
            self._keys,
            self._extra,
            self._console,
            lambda: self._draining,
        )
        self._router = routing.build_router()
        if self._grpc_factory is not None:
            self._grpc_app = routing.build_grpc_app()

    @property
    def running(self) -> int:
        """How many runs are active."""
        return sum(hosted.service.running for hosted in self._hosted)

    def _sample(self) -> None:
        """Set the metrics of what is under way now: runs, streams, webhooks."""
        for hosted in self._hosted:
            hosted.service.sample()
        if self._delivery is not None:
            self._delivery.sample()

    def _find_skill(self, worker: asyncio.Task[Any]) -> RunningSkill | None:
        found = (hosted.service.runner.find(worker) for hosted in self._hosted)
        return next(filter(None, found), None)

    async def is_ready(self) -> bool:
        """True while requests may be sent here: the server is not stopping, and its store works."""
        try:
            await check_ready(self._store, is_draining=self._draining)
        except Exception:  # noqa: BLE001 - whatever a store raises, it does not work
            return False
        return True

    async def drain(self) -> None:
        """Let runs finish and end the streams while connections are still open. Idempotent.

        Raises:
            ConfigError: this is another event loop than the one that the app was started on.
        """
        if self._ready_loop is not None and not self._draining:
            self._check_loop()
            self._draining = True
            if self._grpc is not None:
                await self._grpc.report_health()
            # All of them, before the first is closed: a node answers for all its agents until it leaves.
            await asyncio.gather(*(hosted.service.drain() for hosted in self._hosted))
            await asyncio.gather(*(hosted.service.close() for hosted in self._hosted))
            for routes in self._extra:
                await routes.close()

    async def stop(self) -> None:
        """Drain, then close the store, the agents and all other parts. The app cannot be started again.

        Raises:
            ConfigError: this is another event loop than the one that the app was started on.
        """
        await self.drain()
        if self._ready_loop is not None:
            self._ready_loop = None
            self.monitor.stop()
            if self._grpc is not None:
                await self._grpc.stop(_CALL_SECONDS)
                self._grpc = None
            if self._janitor is not None:
                await self._janitor.stop()
            if self._delivery is not None:
                await self._delivery.close()
            await self._close_auth()
            await self._close_store()
            for hosted in self._hosted:
                await hosted.agent.close()
            if METRICS.on:
                self.monitor.sample()  # in a process that goes on, nothing of this server is under way any more
            self._observe_no_more()  # last: operators watch how a server stops

    async def _close_auth(self) -> None:
        auth, self._auth = self._auth, None
        if auth is not None:
            await auth.close()

    async def _close_store(self) -> None:
        if self._bus is not None:
            await self._bus.close()
        await self._store.close()

    async def resume(self, handle: str, data: Any = None) -> Task:
        """Continue a task that waits for a login, once your own code has verified that login.

        `handle` is what `ctx.ask_auth` has given to `url=`, and `data`, JSON, is what it returns in the skill. A handle
        continues its task once. The server is started if it was not started yet.

        Raises:
            ConfigError: the server was stopped, or runs on another event loop.
            InvalidParams: no task waits for a login with this handle; it may be used, old, or a task id.
            ServerError: the server is stopping, or the store cannot take writes.
        """
        hosted = self._by_name.get(read_handle(handle).agent)
        if hosted is None:
            raise unusable_handle()
        await self.start()
        return await hosted.service.resume(handle, data)

    # -- requests --------------------------------------------------------------------------------------------------

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection: a request, a gRPC call, or the lifespan. Websockets are closed."""
        kind = scope["type"]
        if kind != "http" and kind != GRPC_CALL:
            if kind == "lifespan":
                await self._lifespan(receive, send)
            elif kind == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        if self._ready_loop is not asyncio.get_running_loop() and not await self._start_for_request(send):
            return
        match = None
        if kind != "http":
            match = self._grpc_app, (), ""
        elif not scope.get("root_path") and b"%" not in (scope.get("raw_path") or b""):
            match = self._router.exact.get((scope["method"], scope["path"]))
        app, segments, prefix = match or self._router.find(scope)
        request = scope[REQUEST] = Request(scope, receive, segments, prefix, self._shared)
        headers = request.headers
        if "traceparent" in headers or trace.current.get() is not None:
            trace.extract(headers)
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._draining:
                raise
            await _give_up(send)
        finally:
            # The scope and the request reference each other: break the cycle.
            scope.pop(REQUEST, None)
            if request.lease is not None:
                request.release()

    async def _start_for_request(self, send: Send) -> bool:
        """Start the server, whose lifespan nobody runs. False when it cannot: then the request has its response."""
        try:
            await self.start()
        except DragomanError as error:
            logger.error("the server cannot start: %s", error)
            await unavailable(send, ServerError("the server cannot start: its log says why"))
            return False
        return True

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    self.startup_error = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise  # as frameworks do: test clients hand it on
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _give_up(send: Send) -> None:
    """Respond for a request that the HTTP server ends because it stops: perhaps the store does not answer."""
    try:
        await respond(send, 503, b'{"status":"unavailable","reason":"the server is stopping"}', headers=[_RETRY_SOON])
    except RuntimeError:  # the response has begun: if it is a stream, it ends here
        with suppress(RuntimeError):
            await send({"type": "http.response.body"})
