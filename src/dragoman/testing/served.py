"""Serves an app on a real port for a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

if TYPE_CHECKING:
    import socket

    import uvicorn

    from dragoman.server.config.keywords import SettingKeywords

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_TICK_SECONDS = 0.1
_CLOSING_TURNS = 10
_HEAD_BYTES = 65_536
_DEFAULTS: SettingKeywords = {"store": "memory:", "drain": 1}


class AppSource(Protocol):
    """Anything with an `app()` method that returns an ASGI app: an Agent, a Server."""

    def app(self, **settings: Unpack[SettingKeywords]) -> ASGIApp:
        """Return the ASGI app with these settings."""
        ...


def app_of(source: AppSource | ASGIApp, settings: SettingKeywords) -> ASGIApp:
    """Return the app of an agent or server, by default in memory and quick to stop; an ASGI app is returned as it is.

    Raises:
        TypeError: settings were given for an ASGI app, which takes none.
    """
    # Callable first: an ASGI middleware often has an attribute `app` too.
    if callable(source):
        if settings:
            raise TypeError(f"an ASGI app takes no settings: {', '.join(settings)}")
        return source
    return source.app(**{**_DEFAULTS, **settings})


@contextmanager
def served(target: AppSource | ASGIApp, **settings: Unpack[SettingKeywords]) -> Generator[str, None, None]:
    """Serve an agent, a server or an ASGI app on a free port of 127.0.0.1, and yield its base URL.

    The app runs in a thread with its own event loop, so tests may be async or not. The settings are those of
    `agent.app()`; by default tasks are kept in memory, and runs have one second to end when the server stops.

    Raises:
        RuntimeError: the server did not start or stop, or not in time.
        TypeError: settings were passed for an ASGI app.
        Exception: what the app raised when it failed to start or stop.
    """
    import uvicorn

    from dragoman.server.http.app import App
    from dragoman.server.listen.http_protocol import HttpProtocol

    app = app_of(target, settings)
    watcher = _LifespanWatcher(app)
    ready = threading.Event()
    port = 0

    class ThreadedServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            nonlocal port
            await super().startup(sockets)
            port = self.servers[0].sockets[0].getsockname()[1]
            if isinstance(app, App):
                app.listens_at(f"http://127.0.0.1:{port}")
            ready.set()

        async def main_loop(self) -> None:
            # uvicorn polls `should_exit` ten times a second. The event stops it at once.
            self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
            counter = 0
            while not self.should_exit and not await self.on_tick(counter):
                counter += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_SECONDS):
                        await self.stopping.wait()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # uvicorn always waits a tenth of a second, whoever is connected.
            if await _close_idle_connections(self):
                await self.lifespan.shutdown()
            else:
                await super().shutdown(sockets)

        def stop(self) -> None:
            self.should_exit = True
            with suppress(AttributeError, RuntimeError):  # it has not started, or has stopped
                self.loop.call_soon_threadsafe(self.stopping.set)

    # Without log_config uvicorn does not touch the logging of the test process.
    server = ThreadedServer(
        uvicorn.Config(
            watcher,
            host="127.0.0.1",
            port=0,
            lifespan="auto",
            http=partial(HttpProtocol, limit=_HEAD_BYTES),  # pyright: ignore[reportArgumentType] - as `serve` does it
            ws="none",
            proxy_headers=False,  # the app decides whose X-Forwarded-* it trusts
            log_config=None,
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
    )

    def run() -> None:
        try:
            server.run()
        except BaseException as error:  # noqa: BLE001 - uvicorn leaves with SystemExit; the test's thread raises it
            watcher.failure = watcher.failure or error
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="dragoman-served", daemon=True)
    thread.start()
    try:
        if not ready.wait(_START_SECONDS):
            raise RuntimeError(f"the server did not start within {_START_SECONDS:g} s")
        _raise_failure(watcher)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        thread.join(_STOP_SECONDS + float(settings.get("drain") or 0))
    if thread.is_alive():
        raise RuntimeError(f"the server did not stop within {_STOP_SECONDS:g} s")
    _raise_failure(watcher)


async def _close_idle_connections(server: uvicorn.Server) -> bool:
    """Accept no more connections and close the idle ones. Return whether none is left."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    for _ in range(_CLOSING_TURNS):
        if not server.server_state.connections and not server.server_state.tasks:
            return True
        await asyncio.sleep(0)
    return False


def _raise_failure(watcher: _LifespanWatcher) -> None:
    if isinstance(watcher.failure, Exception):
        raise watcher.failure
    if watcher.failure is not None:
        raise RuntimeError("the server could not run") from watcher.failure


class _LifespanWatcher:
    """Wraps an app and records why its lifespan failed, which uvicorn would only log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: BaseException | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            if message["type"] in ("lifespan.startup.failed", "lifespan.shutdown.failed"):
                self.failure = RuntimeError(message.get("message") or message["type"])
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            # Without such a message, the exception means that the app does not support lifespan.
            if self.failure is not None:
                self.failure = error
            raise
