"""Runs a server with uvicorn: binds the port, starts the app, announces it, and serves until a signal."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from dragoman.console.access import ConsoleAddress, new_token
from dragoman.engine.execute.threads import LoopThreads, helper_threads
from dragoman.model.error import ConfigError, DragomanError
from dragoman.server.agent.target import is_importing
from dragoman.server.config.memory_limit import return_memory
from dragoman.server.config.settings import WorkerSettings
from dragoman.server.http.address import local_url
from dragoman.server.http.authentication import AuthSettings
from dragoman.server.listen.http_protocol import ConnectionTimeouts, close_after_responses
from dragoman.server.listen.port import bind, listen_error
from dragoman.server.listen.request_log import RequestLog
from dragoman.server.listen.shutdown import FINAL_SECONDS, Shutdown
from dragoman.server.listen.startup import Startup
from dragoman.telemetry.terminal import Style, wants_color

if TYPE_CHECKING:
    from dragoman.server.config.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


# How long connections may take to end once the app has drained, in seconds, and what they leave for the store, of the
# time that `Shutdown` allows for everything.
GRACE, STORE_SECONDS = 3, 1
# There is a second more for everything for each so many connections.
CONNECTIONS_PER_SECOND = 1000
# Connections that wait to be accepted: as many as the system allows (`net.core.somaxconn`). When a node stops, all its
# streams come to another one at once, and a connection that is dropped is tried again after a second or more.
BACKLOG = 65_535
# How soon a signal is noticed while the app starts, in seconds.
_SIGNAL_SECONDS = 0.1


class Servable(Protocol):
    """Anything that can be served: an Agent, a Server.

    It may have an attribute `keywords`: settings of its constructor, which the command line respects. The ASGI app may
    have an attribute `startup_error`: the exception that kept it from starting, or None.
    """

    @property
    def name(self) -> str:
        """The name that is announced."""
        ...

    def app_for(self, settings: Settings) -> AsgiApp:
        """Return the ASGI app to run. Raises ConfigError when the settings do not fit."""
        ...


def serve(
    servable: Servable,
    settings: Settings,
    *,
    announce: Callable[[Sequence[str]], None],
    ends_process: bool = False,
    curl: bool = False,
    quiet: bool = False,
    listener_of: Callable[[str, int], socket.socket] = bind,
    hands_over: Callable[[], bool] | None = None,
    console_token: str | None = None,
    on_console: Callable[[ConsoleAddress], None] | None = None,
) -> None:
    """Listen and serve until a signal. SIGTERM ends it normally, Ctrl-C with KeyboardInterrupt.

    `announce` is called once, when the server is ready, with lines for stderr: they are safe for a terminal and may
    have colors. With `curl` they name curl commands to try, with `quiet` there are only warnings. If agents' code does
    not end in time, the process is ended with it; with `ends_process`, also if threads of agents keep it alive after
    this has returned. `listener_of` returns the socket of an address. `hands_over` is called when this process begins
    to stop: it tells whether others accept the connections to that address from then on. `console_token` is the token
    of the console if the settings have none, by default a random one; `on_console` is called before `announce` with
    the addresses of the console, if there is one.

    Raises:
        ConfigError: the address cannot be listened on, a setting does not fit, the settings want several processes, a
            loop is running in this thread, or this is called while `dragoman serve` imports the module.
        DragomanError: the app did not start. Other exceptions of its startup are raised as they are.
    """
    _check_context()
    if settings.workers > 1 and not isinstance(settings, WorkerSettings):
        raise ConfigError(
            f"workers: serve() is one process: set it to 1, or start the agents with `dragoman serve FILE --workers "
            f"{settings.workers}`"
        )
    chosen_token = settings.console_token
    if settings.console != "token":
        settings = msgspec.structs.replace(settings, console_token=None)
    elif chosen_token is None:
        settings = msgspec.structs.replace(settings, console_token=console_token or new_token())
    with closing(listener_of(settings.host, settings.port)) as listener:
        app = servable.app_for(settings)
        host, port = cast("tuple[str, int]", listener.getsockname()[:2])
        local = local_url(host, port, tls=settings.tls_cert is not None)
        listens_at: Callable[[str], None] | None = getattr(app, "listens_at", None)
        if listens_at is not None:
            listens_at(local)

        def announce_ready() -> None:
            # Only now: the skills of some agents are known once they are open, and the port of gRPC too.
            grpc: str = getattr(app, "grpc_address", "")
            metrics: str = getattr(app, "metrics_address", "")
            console_line = ""
            if getattr(app, "has_console", False):
                console = ConsoleAddress.of(settings.console_token, local, settings.url)
                # A token that an operator has chosen is not printed, and neither is one that would be in a log.
                is_printed = chosen_token is None and settings.log != "json"
                console_line = console.url if is_printed else console.page
                if on_console is not None:
                    on_console(console)
            startup = Startup(
                servable, settings, host, port, curl, Style(wants_color(sys.stderr)), grpc, metrics, console_line
            )
            announce((*(() if quiet else startup.lines()), *startup.warnings()))

        with Shutdown(settings.drain, final=ends_process) as shutdown:
            _run(app, settings, listener, announce_ready, shutdown, hands_over)
        if shutdown.interrupted:
            raise KeyboardInterrupt


def _check_context() -> None:
    if is_importing():
        raise ConfigError('serve() runs when this file is imported: put it under `if __name__ == "__main__":`')
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError("serve() blocks, but an event loop is already running: use app() with your own server")


def _run(
    app: AsgiApp,
    settings: Settings,
    listener: socket.socket,
    announce_ready: Callable[[], None],
    shutdown: Shutdown,
    hands_over: Callable[[], bool] | None,
) -> None:
    import uvicorn
    from uvicorn.lifespan.on import LifespanOn

    timeouts = ConnectionTimeouts(settings.limits.request_timeout)

    class Lifespan(LifespanOn):
        async def startup(self) -> None:
            await _start(super().startup(), app, shutdown)
            if not self.should_exit:
                # Another process may have been first to listen. Checked here, because uvloop does not report it.
                listener.listen(self.config.backlog)

    class UvicornServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield  # `Shutdown` handles them

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # A blocked thread must neither keep the process alive nor delay others.
            asyncio.get_running_loop().set_default_executor(LoopThreads(helper_threads()))
            try:
                await super().startup(sockets)
            except OSError as error:
                await self.lifespan.shutdown()
                raise listen_error(error, settings.host, settings.port) from error
            tune_gc()
            return_memory()
            announce_ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if shutdown.interrupted and getattr(app, "running", 0):
                logging.getLogger("dragoman.server").info("stopping; press Ctrl-C again to stop at once")
            close_after_responses(self.server_state)
            more = len(self.server_state.connections) // CONNECTIONS_PER_SECOND
            shutdown.allow(more)
            ticking = asyncio.create_task(_keep_ticking(self.on_tick))
            try:
                await _drain(app, self.servers if hands_over is not None and hands_over() else ())
            finally:
                ticking.cancel()
            shutdown.record_drained()
            self.config.timeout_graceful_shutdown = connection_seconds(shutdown.seconds_left, more)
            await super().shutdown(sockets)
            if getattr(app, "running", 0):
                shutdown.exit_process()  # the event loop would wait for them forever

        async def on_tick(self, counter: int) -> bool:
            timeouts.check(self.server_state.connections)
            return bool(shutdown.received) or await super().on_tick(counter)

    config = uvicorn.Config(
        RequestLog(app) if settings.log_level == "debug" else app,
        loop="auto",  # uvloop where it is installed
        **_protocol(settings),
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the app handles X-Forwarded-* itself: trust_proxy
        server_header=False,
        backlog=BACKLOG,
    )
    config.load()
    config.lifespan_class = Lifespan
    server = UvicornServer(config)
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    with _suppress_startup_log(app):
        try:
            server.run(sockets=[listener])
        except SystemExit:
            if not shutdown.received:  # else it was stopped before it was ready
                # uvicorn has logged why, unless the app has a startup error.
                raise _startup_error(app) from None


async def _start(startup: Coroutine[Any, Any, None], app: AsgiApp, shutdown: Shutdown) -> None:
    """Start the app. After a signal it no longer waits for a store whose database is down."""
    give_up: Callable[[], None] = getattr(app, "give_up_start", lambda: None)
    starting = asyncio.ensure_future(startup)
    while not (await asyncio.wait((starting,), timeout=_SIGNAL_SECONDS))[0]:
        if shutdown.received:
            give_up()
    await starting


async def _keep_ticking(on_tick: Callable[[int], Awaitable[bool]]) -> None:
    """Go on with what uvicorn's main loop does: the time limits of requests, and the Date of responses."""
    for counter in itertools.count():
        await on_tick(counter)
        await asyncio.sleep(0.1)


def longest_stop(settings: Settings) -> float:
    """How long a server may take to stop, in seconds, with as many connections as it has streams at most."""
    return settings.drain + FINAL_SECONDS + settings.limits.streams / CONNECTIONS_PER_SECOND


def connection_seconds(left: float, more: int = 0) -> int:
    """How long connections may take to end, of the time that is left for everything; many may take so much more."""
    return int(min(GRACE + more, max(0, left - STORE_SECONDS)))


async def _drain(app: AsgiApp, servers: Sequence[asyncio.AbstractServer]) -> None:
    """Drain the runs while their callers are still connected; uvicorn then has nothing to wait for.

    The servers accept no more connections: new callers get to other processes. What these have to do with the app is
    done as long as their connections last.
    """
    for _ in range(2 if servers else 0):  # connections that the kernel has ready for this process are accepted first
        await asyncio.sleep(0)
    for server in servers:
        server.close()
    close_grpc = getattr(app, "close_grpc", None)
    if servers and close_grpc is not None:
        close_grpc()
    drain = getattr(app, "drain", None)
    if drain is not None:
        await drain()


def _protocol(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options for HTTP and TLS. Raises ConfigError."""
    is_mutual = isinstance(settings.auth, AuthSettings) and "mtls" in settings.auth.names
    if settings.tls_cert is None and (settings.tls_key or settings.tls_ca):
        raise ConfigError("tls_key and tls_ca need tls_cert")
    if is_mutual and settings.tls_ca is None:
        raise ConfigError("auth mtls needs tls_cert, and tls_ca with the authorities of callers' certificates")
    from dragoman.server.listen.http_protocol import HttpProtocol

    options: dict[str, Any] = {"http": HttpProtocol}
    if settings.tls_cert is not None:
        from dragoman.server.listen.tls import tls_options

        options |= tls_options(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return options | {"http": partial(options["http"], limit=settings.limits.headers)}


def tune_gc() -> None:
    """Run the garbage collector less often: a server's long-lived objects need not be scanned all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _startup_error(app: AsgiApp) -> BaseException:
    error = getattr(app, "startup_error", None)
    return error if isinstance(error, BaseException) else DragomanError("the server did not start: the log says why")


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Keep uvicorn from logging a traceback for each stream whose reader was too slow when the server stopped."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


@contextmanager
def _suppress_startup_log(app: AsgiApp) -> Generator[None]:
    """Keep uvicorn from logging a startup failure that is about to be raised."""

    def keep_record(_: logging.LogRecord) -> bool:
        return getattr(app, "startup_error", None) is None

    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(keep_record)
    try:
        yield
    finally:
        logger.removeFilter(keep_record)
