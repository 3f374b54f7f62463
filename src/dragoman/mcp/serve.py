"""Runs the MCP server over stdio or HTTP, and holds its options."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from dragoman.client.options import DEFAULT_LIMIT, RECONNECT
from dragoman.mcp.session.stdio import HostStreams, PendingRequests, StdinReader, StdoutWriter, host_streams
from dragoman.model.error import ConfigError
from dragoman.server.config.remotes import Remote
from dragoman.server.listen.shutdown import stop_signals

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    from dragoman.mcp.registry import RegistryStore

PATH = "/mcp"
# How many seconds running calls get when the server stops.
GRACE = 5


# -- standard input and output ---------------------------------------------------------------------------------------


async def serve_stdio(
    options: McpOptions, store: RegistryStore | None = None, streams: HostStreams | None = None
) -> None:
    """Serve the host that started this program until it closes standard input or SIGTERM arrives.

    `streams` are the host's streams if `host_streams` has been entered already.

    Raises:
        ConfigError: standard input or output is closed.
    """
    if streams is None:
        with host_streams() as wire:
            return await serve_stdio(options, store, wire)
    loop = asyncio.get_running_loop()
    work = loop.create_task(_run_stdio(options, store, streams))
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        work.cancel()

    # Not every platform and thread supports signal handlers.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)


async def _run_stdio(options: McpOptions, store: RegistryStore | None, streams: HostStreams) -> None:
    from mcp.server.stdio import stdio_server

    from dragoman.mcp.server import McpServer

    this_task = asyncio.current_task()
    assert this_task is not None
    is_disconnected = False

    def on_closed() -> None:
        nonlocal is_disconnected
        if not is_disconnected:
            is_disconnected = True
            this_task.cancel()

    async with McpServer(options, store=store) as server:
        # The SDK's own stdio files block in threads that cannot be interrupted: SIGTERM would have no effect.
        pending = PendingRequests()
        incoming, outgoing = StdinReader(streams.incoming, pending), StdoutWriter(streams.outgoing, pending, on_closed)
        try:
            async with stdio_server(cast("Any", incoming), cast("Any", outgoing)) as (read, write):
                await server.server.run(read, write, server.server.create_initialization_options())
        except asyncio.CancelledError:
            if not is_disconnected:
                raise
            this_task.uncancel()


# -- HTTP ------------------------------------------------------------------------------------------------------------


async def serve_http(
    options: McpOptions, host: str, port: int, *, announce: Callable[[str], None], store: RegistryStore | None = None
) -> bool:
    """Serve hosts over HTTP until a signal arrives. Returns True when that was Ctrl-C.

    `announce` is called with lines for the user once the server accepts requests. Port 0 picks a free one.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    import uvicorn

    from dragoman.mcp.server import McpServer

    logging.getLogger("mcp").setLevel(logging.WARNING)  # it logs session ids, which are as good as passwords
    with closing(_bind(host, port)) as listener:
        address, bound = cast("tuple[str, int]", listener.getsockname()[:2])

        def announce_address() -> None:
            for line in startup_lines(address, bound):
                announce(line)

        async with McpServer(options, store=store) as server:
            security = transport_security(host, address, bound, options.allow)
            app = server.server.streamable_http_app(
                streamable_http_path=PATH, transport_security=security, host=address
            )
            config = uvicorn.Config(
                app,
                http="h11",  # httptools keeps trailing blanks in header values, and MCP compares those
                ws="none",
                interface="asgi3",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
            signals: list[int] = []
            await _build_server(config, announce_address, signals).serve(sockets=[listener])
            return signal.SIGINT in signals


def startup_lines(address: str, port: int) -> list[str]:
    """Return the lines to print on startup: the URL, and warnings about exposure."""
    from dragoman.mcp.peers import is_loopback

    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    lines = [
        f"serving MCP at http://{place}{PATH}",
        "all hosts that connect share one registry: each sees the agents and tasks of the others",
    ]
    if not is_loopback(address):
        lines.append(
            f"warning: anyone who can reach {place} can use these agents with your credentials, and call what listens "
            "on this machine: bind 127.0.0.1, or let in only those whom you trust"
        )
        lines.append(f"requests must be for {place} or localhost: allow another name for this machine with --allow")
    return lines


def _build_server(config: uvicorn.Config, on_started: Callable[[], None], signals: list[int]) -> uvicorn.Server:
    """Build a uvicorn server that calls `on_started` when it is ready and records the signals that stop it."""
    import uvicorn

    class McpHttpServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_started()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            signals.append(sig)
            super().handle_exit(sig, frame)

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            # uvicorn would raise the signals again on exit.
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, self.handle_exit) for number in stop_signals()}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    return McpHttpServer(config)


def transport_security(host: str, address: str, port: int, allow: tuple[str, ...]) -> TransportSecuritySettings:
    """Return the DNS rebinding protection: only names of this machine and allowed hosts are accepted.

    Web pages from allowed hosts are rejected nevertheless: those hosts serve agents, not MCP clients.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    names = list(dict.fromkeys(("127.0.0.1", "localhost", "[::1]", _host_header(host), _host_header(address))))
    allowed_names = [_host_header(each.lower()) for each in allow]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        # On port 80 clients omit the port.
        allowed_hosts=[
            *(f"{name}:*" for name in names),
            *(names if port == 80 else ()),
            # Allowed hosts may be proxies in front of this server, on any port.
            *allowed_names,
            *(f"{name}:*" for name in allowed_names),
        ],
        allowed_origins=[f"http://{name}:*" for name in names] + [f"http://{name}" for name in names],
    )


def _host_header(host: str) -> str:
    """Return a host as the Host header spells it: IPv6 addresses in brackets."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def _bind(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"host `{host}` cannot be resolved: use --http 127.0.0.1:{port}") from None
    family, _, _, _, address = addresses[0]
    try:
        return socket.create_server(cast("Any", address), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} is in use: use another, or --http {host}:0 for any free one"
        elif error.errno == errno.EACCES:
            text = f"this user may not listen on port {port}: use one from 1024"
        else:
            text = f"cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigError(text) from error


# Hosts abort calls after about a minute.
WAIT_SECONDS = 45.0
# How long an agent may take to respond at all.
ANSWER_SECONDS = 60.0
# How long `send_streaming_message` waits for the agent's task id.
ID_SECONDS = 0.5


class McpOptions(Struct, frozen=True, kw_only=True):
    """The options of the MCP server. `remotes` are the configured agents by name, `tokens` their credentials.

    `allow` are further hosts that tools may call. One task of an agent may send `remote_bytes`, None for no limit. A
    lost connection is tried again for `reconnect` seconds.
    """

    remotes: Mapping[str, Remote] = {}
    tokens: Mapping[str, str] = {}
    allow: tuple[str, ...] = ()
    wait_seconds: float = WAIT_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    id_seconds: float = ID_SECONDS
    store: str | None = None
    simple_tools: bool = False
    verify: bool = True
    remote_bytes: int | None = DEFAULT_LIMIT
    reconnect: float = RECONNECT
