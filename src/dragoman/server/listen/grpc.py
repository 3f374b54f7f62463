"""Listens for gRPC with grpcio, on the event loop of the HTTP server, and hands each call to the ASGI app."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import grpc
from grpc import StatusCode

from dragoman.clock import SystemClock
from dragoman.dialects.table import GRPC_ROWS
from dragoman.model.error import ConfigError
from dragoman.net.grpc.status import CODES
from dragoman.server.http.authentication import AuthSettings
from dragoman.server.listen.grpc_port import FOREVER, GrpcPort
from dragoman.server.listen.port import bind
from dragoman.server.listen.tls import tls_extension, tls_options
from dragoman.transports.grpc.health import HealthService
from dragoman.transports.grpc.method import METHODS
from dragoman.transports.grpc.reflection import reflection_methods
from dragoman.transports.grpc.status import DETAILS, MESSAGE, OK, STATUS, status_trailers
from dragoman.transports.http import GRPC_CALL, TooLarge

if TYPE_CHECKING:
    from dragoman.server.config.settings import Settings
    from dragoman.server.http.app import App
    from dragoman.transports.http import Header

Message = MutableMapping[str, Any]
_CODES = {code.value[0]: code for code in StatusCode}
_BY_HTTP = {http: _CODES[number] for number, http in reversed(CODES.values())}
# How often a connection without traffic is probed, and how long the answer may take, in milliseconds: the streams of a
# caller that is gone without a word end then.
_PING_MS, _PING_TIMEOUT_MS = 30_000, 20_000
# How often callers may probe in turn; grpcio refuses those who do it more often than every five minutes by default.
_MIN_PING_MS = 10_000
# What each field of metadata counts beside its name and value, as HTTP/2 has it.
_FIELD = 32

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared, not used


class GrpcCall:
    """One call as an ASGI connection: its metadata are headers, a message is a body, the status is in the trailers."""

    __slots__ = ("_body", "_context", "_headers", "_status", "_streams", "_trailers")

    def __init__(self, context: Any, *, streams: bool) -> None:
        self._context = context
        self._streams = streams
        self._headers: Sequence[Header] = ()
        self._trailers: Sequence[Header] = OK
        self._body = b""
        # Until the app answers: it may end without an answer.
        self._status = 500

    async def receive(self) -> Message:
        """Return the one message of the call."""
        message: Any = await self._context.read()
        return {"type": "http.request", "body": message if isinstance(message, bytes) else b""}

    async def send(self, message: Message) -> None:
        """Take a part of the response: a stream is sent at once, and waits for its reader; anything else at the end."""
        kind: str = message["type"]
        if kind == "http.response.body":
            if self._streams and self._status == 200:
                await self._context.write(message["body"])
            else:
                self._body += message["body"]
        elif kind == "http.response.start":
            self._headers, self._status = message["headers"], message["status"]
            if "trailers_only" in message:
                return
        else:
            self._trailers = message["headers"]
            return
        if self._streams and self._headers and self._status == 200:
            headers, self._headers = self._headers, ()
            if metadata := _metadata(headers):
                await self._context.send_initial_metadata(metadata)

    async def finish(self) -> bytes:
        """End the call, and return its message, which is empty for a stream.

        Raises:
            grpc.aio.AbortError: the call has failed; grpcio sends its status.
        """
        trailers = self._trailers
        if self._status != 200:  # what answered knows nothing of gRPC
            code = _BY_HTTP.get(self._status, StatusCode.UNKNOWN)
            trailers = [(STATUS, b"%d" % code.value[0]), (MESSAGE, self._body)]
        # Initial metadata of their own would cost a call a third more.
        metadata = _metadata(self._headers)
        if trailers is OK:
            if metadata:
                self._context.set_trailing_metadata(metadata)
            return self._body
        fields = dict(trailers)
        code, text = _CODES[int(fields.pop(STATUS))], fields.pop(MESSAGE, b"").decode("utf-8", "replace")
        if DETAILS in fields:
            metadata.append((DETAILS.decode(), fields.pop(DETAILS)))
        await self._context.abort(code, text, (*metadata, *_metadata(tuple(fields.items()))))
        return b""


def _metadata(headers: Sequence[Header]) -> list[tuple[str, str | bytes]]:
    return [(name.decode(), value.decode("latin-1")) for name, value in headers if name != b"content-type"]


class GrpcListener:
    """A gRPC server. It must be used on one event loop, the one that the app runs on.

    With `shared`, other processes listen on the same port.
    """

    def __init__(self, app: App, settings: Settings, *, shared: bool = False) -> None:
        """Bind the port, without listening yet.

        Raises:
            ConfigError: the address cannot be had, or a file of the TLS settings cannot be read.
        """
        assert settings.grpc is not None
        self._app = app
        self._http_host = settings.host
        self._closing: asyncio.Future[None] | None = None
        self._host = settings.grpc.host or settings.host
        self._tls = settings.tls_cert is not None
        limits = settings.limits
        options = [
            ("grpc.max_receive_message_length", limits.body),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", limits.headers),
            ("grpc.absolute_max_metadata_size", limits.headers),
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_MS),
        ]
        if limits.request_timeout:
            options.append(("grpc.server_handshake_timeout_ms", round(limits.request_timeout * 1000)))
        # Whatever can fail comes first: a process that ends with a server of grpcio that was never stopped may crash.
        credentials = _credentials(settings) if self._tls else None
        if not shared and settings.grpc.port:
            # grpcio does not say what is wrong with an address.
            bind(self._host, settings.grpc.port, flag="--grpc").close()
        # Neither needs credentials, as the pages of health and the public card need none.
        self._health = HealthService(app.is_ready, [row.service for row in GRPC_ROWS], SystemClock())
        others = self._health.methods() | reflection_methods()
        handlers = [_Handlers(self._serve, others, limits.headers)]
        try:
            self._port = GrpcPort(self._host, settings.grpc.port, credentials, handlers, options, shared=shared)
        except RuntimeError:
            address = _join(self._host, settings.grpc.port)
            raise ConfigError(f"grpc: cannot listen on {address}") from None

    @property
    def public_address(self) -> tuple[str, int]:
        """The host and port for other callers; the host is empty for the one by which they reach HTTP."""
        return "" if self._host in (self._http_host, *_EVERYWHERE) else self._host, self._port.number

    @property
    def local_address(self) -> str:
        """The address by which this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 - replaced, not used
        return _join(host, self._port.number)

    async def start(self) -> None:
        """Accept calls."""
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_departure)
        await self._port.start()

    async def report_health(self) -> None:
        """Tell callers who watch the health of the server what has changed."""
        await self._health.look()

    def close(self) -> None:
        """Accept no more calls, and let those that are there go on: callers connect again, to whoever listens."""
        self._closing = asyncio.ensure_future(self._port.stop(FOREVER))

    async def stop(self, seconds: float) -> None:
        """Accept no more calls, and end those that are not done after some time."""
        self._health.close()
        await self._port.stop(seconds)
        if self._closing is not None:
            await self._closing

    async def _serve(self, path: str, context: Any, *, streams: bool) -> bytes:
        scope: Message = {
            "type": GRPC_CALL,
            "http_version": "2",
            "method": "POST",
            "scheme": "https" if self._tls else "http",
            "path": path,
            "headers": [
                (name.encode(), value.encode() if isinstance(value, str) else value)
                for name, value in context.invocation_metadata()
            ],
            "client": _address_of(context.peer()),
            "server": (self._host, self._port.number),
        }
        if self._tls:
            chain: Sequence[bytes] = context.auth_context().get("x509_pem_cert", ())
            scope["extensions"] = {"tls": tls_extension([each.decode() for each in chain])}
        call = GrpcCall(context, streams=streams)
        await self._app(scope, call.receive, call.send)
        return await call.finish()


def _is_no_departure(record: logging.LogRecord) -> bool:
    """Drop what grpcio logs, with a traceback, when a caller has left while the response was sent: it is no error."""
    error = record.exc_info[0] if record.exc_info else None
    return error is None or error.__name__ != "ExecuteBatchError"


class _Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a path; `others` are those that the app does not serve.

    A call is admitted before its message is read, so all of them read it themselves. One with more than `limit` bytes
    of metadata is refused: grpcio does so only once its caller has confirmed the settings of the connection.
    """

    def __init__(self, serve: Callable[..., Awaitable[bytes]], others: Mapping[str, Any], limit: int) -> None:
        self._serve = serve
        self._limit = limit
        self._refusal = _refusal(limit)
        self._handlers: dict[str, Any] = dict(others)
        for path, method in METHODS.items():
            self._handlers[path] = _handler(path, serve, streams=method.operation.streams)

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call. The app refuses those of methods that there are not."""
        metadata = handler_call_details.invocation_metadata
        size = len(metadata) * _FIELD
        if size > self._limit or size + sum(len(name) + len(value) for name, value in metadata) > self._limit:
            return self._refusal
        path: str = handler_call_details.method
        return self._handlers.get(path) or _handler(path, self._serve, streams=False)


def _handler(path: str, serve: Callable[..., Awaitable[bytes]], *, streams: bool) -> Any:
    # grpcio runs whatever is not an `async def` in threads.
    if streams:

        async def stream(_: object, context: Any) -> None:
            await serve(path, context, streams=True)

        return cast("Any", grpc.stream_stream_rpc_method_handler(stream))

    async def answer(_: object, context: Any) -> bytes:
        return await serve(path, context, streams=False)

    return cast("Any", grpc.stream_unary_rpc_method_handler(answer))


def _refusal(limit: int) -> Any:
    """Build the handler of calls that have more metadata than the limit."""
    error = TooLarge(f"the metadata of a call may have {limit} bytes, with 32 for each field", limit="headers")
    trailers = dict(status_trailers(error, GRPC_ROWS[0].version))

    async def refuse(_: object, context: Any) -> None:
        code, text = _CODES[int(trailers[STATUS])], trailers[MESSAGE].decode()
        await context.abort(code, text, ((DETAILS.decode(), trailers[DETAILS]),))

    return cast("Any", grpc.stream_unary_rpc_method_handler(refuse))


def _credentials(settings: Settings) -> Any:
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.tls_ca
    assert cert is not None
    tls_options(cert, key, ca)  # grpcio does not say what is wrong with a file
    chain = Path(cert).read_bytes()
    pair = chain if key is None else Path(key).read_bytes(), chain
    # grpcio cannot ask for a certificate and do without: callers with other credentials need one too, or HTTP.
    asks = ca is not None and not (isinstance(settings.auth, AuthSettings) and "mtls" not in settings.auth.names)
    authorities = Path(ca).read_bytes() if ca is not None and asks else None
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=asks)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(4096)
def _address_of(peer: str) -> tuple[str, int] | None:
    """Return the address in a text like `ipv4:127.0.0.1:50000` or `ipv6:%5B::1%5D:50000`; None for other sockets."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None
