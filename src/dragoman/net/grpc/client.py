"""An HTTP client for gRPC: `grpc://host:port/SERVICE/METHOD`, and `grpcs://…` with TLS, on channels of grpcio."""

from __future__ import annotations

import asyncio
import binascii
import re
import ssl
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dragoman.model.error import CannotConnect
from dragoman.model.operation import Operation
from dragoman.net.exchange import MAX_RESPONSE, HttpRequest, redact_url
from dragoman.net.grpc.address import GrpcUrl, parse_grpc_url
from dragoman.net.grpc.call import GrpcResponse, OutgoingCall
from dragoman.net.grpc.channel import GrpcChannel, Metadata
from dragoman.net.grpc.frames import read_frames
from dragoman.net.grpc.library import load_grpc
from dragoman.net.grpc.tls import load_tls

_STREAMS = frozenset(operation.value for operation in Operation if operation.streams)
_KEY = re.compile(r"[0-9a-z_.-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
# gRPC sets these itself.
_OWN_HEADERS = frozenset(("accept", "connection", "content-length", "content-type", "host", "te", "user-agent"))
# A server on grpcio closes a connection on which pings come more often than every five minutes.
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 330_000, 20_000
_MAX_METADATA = 64 * 1024


class GrpcClient:
    """An `HttpClient` for gRPC, whose calls to one origin share a channel.

    The headers of a request are its metadata, and its body is a message in a frame. The status of a response is the
    HTTP status that means the same as its gRPC status, its headers are the metadata, and its body is the messages in
    frames with the trailers as the last one. A call that fails before its first message has no body: the trailers are
    among its headers, as gRPC itself sends them. A stream is one by the operation of its request; the head of its
    response has arrived with its first message.

    grpcio neither retries nor waits between attempts to connect: that is up to the caller. Each event loop has its own
    channels. A process must not fork while it has any: grpcio does not survive that.

    `verify` is True, False or an SSL context. `limit` is the most bytes of one message. `proxy_of` returns the URL of
    the proxy on the way to a URL, or None.

    Raises:
        ConfigError: grpcio is not installed.
    """

    def __init__(
        self,
        *,
        verify: bool | ssl.SSLContext = True,
        agent: str = "dragoman",
        limit: int = MAX_RESPONSE,
        proxy_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._grpc = load_grpc()
        self._verify = verify
        self._agent = agent
        self._limit = limit
        self._proxy_of = proxy_of
        self._pools: dict[asyncio.AbstractEventLoop, dict[str, GrpcChannel]] = {}

    async def send(self, request: HttpRequest) -> GrpcResponse:
        try:
            url = parse_grpc_url(request.url)
            metadata = _encode_metadata(tuple(request.headers.items()))
            (message,) = [frame.data for frame in read_frames(request.body or b"")]
        except (ValueError, UnicodeError) as error:
            raise CannotConnect(
                f"{redact_url(request.url)} cannot be called: {error}", reason="BAD_ADDRESS", arrived=False
            ) from None
        channel = await self._open(url, request)
        call = OutgoingCall(channel, request, self._limit)
        is_stream = request.operation in _STREAMS
        return await (call.stream if is_stream else call.perform)(url.path, message, metadata)

    async def close(self) -> None:
        """Close the channels of the running event loop; other loops close their own. Calls in flight fail."""
        pool = self._pools.pop(asyncio.get_running_loop(), {})
        for channel in pool.values():
            await channel.close()

    async def _open(self, url: GrpcUrl, request: HttpRequest) -> GrpcChannel:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            # Channels of a closed loop can be neither used nor closed.
            self._pools = {each: pool for each, pool in self._pools.items() if not each.is_closed()}
            pool = self._pools[loop] = {}
        key = f"{url.tls} {url.authority}"
        channel = pool.get(key)
        if channel is not None:
            return channel
        options = self._options(request.url)
        credentials = await self._credentials(url, request, options) if url.tls else None
        channel = pool.get(key)  # another call may have been faster
        if channel is None:
            aio: Any = self._grpc.aio
            target = f"dns:///{url.authority}"
            made = (
                aio.insecure_channel(target, options)
                if credentials is None
                else aio.secure_channel(target, credentials, options)
            )
            channel = pool[key] = GrpcChannel(self._grpc, made, lambda: pool.pop(key, None))
        return channel

    async def _credentials(self, url: GrpcUrl, request: HttpRequest, options: list[tuple[str, Any]]) -> Any:
        tls = await load_tls(self._verify, url.host, url.port, request.connect_timeout)
        if tls.name:
            options.append(("grpc.ssl_target_name_override", tls.name))
        return self._grpc.ssl_channel_credentials(tls.authorities, tls.key, tls.certificate)

    def _options(self, url: str) -> list[tuple[str, Any]]:
        proxy = self._proxy_of(url)
        return [
            ("grpc.primary_user_agent", self._agent),
            ("grpc.max_receive_message_length", self._limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", _MAX_METADATA),
            ("grpc.absolute_max_metadata_size", _MAX_METADATA),
            # The caller decides what is repeated, and when.
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            # A channel that cannot connect is not used again: the next one tries at once. With the pool that grpcio
            # shares between channels, it would inherit the pause that the failure has caused.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
            # grpcio's own reading of the proxy variables would send calls of this machine to the proxy, too.
            ("grpc.enable_http_proxy", 0 if proxy is None else 1),
            *(() if proxy is None else (("grpc.http_proxy", proxy),)),
        ]


@lru_cache(256)
def _encode_metadata(headers: tuple[tuple[str, str], ...]) -> Metadata:
    """Return headers as metadata. Raises ValueError for one that gRPC cannot carry."""
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        key = name.lower()
        if key in _OWN_HEADERS:
            continue
        if not _KEY.fullmatch(key) or key.startswith("grpc-") or not _VALUE.fullmatch(value):
            raise ValueError(f"gRPC cannot carry the header {name!r}: its name is not allowed, or its value not ASCII")
        metadata.append((key, _decode_bytes(name, value) if key.endswith("-bin") else value))
    return tuple(metadata)


def _decode_bytes(name: str, value: str) -> bytes:
    try:
        return b64decode(value + "=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise ValueError(f"the header {name!r} has to be Base64, as its name ends in -bin") from None
