"""The public URL of a request, and the client address behind trusted proxies."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.transports.http import GRPC_CALL

if TYPE_CHECKING:
    from dragoman.auth.inbound.scheme import InboundRequest
    from dragoman.transports.http import Request

logger = logging.getLogger("dragoman.server")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def local_url(host: str, port: int, *, tls: bool = False) -> str:
    """Return the URL by which this machine reaches a server that listens on an IP address and a port."""
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{'https' if tls else 'http'}://{place}"


class Addresses:
    """Determines the base URL of a request: the setting `url`, a trusted proxy's headers, else the request's own."""

    def __init__(self, url: str | None, trusted: Sequence[Network], grpc_url: str | None = None) -> None:
        self._url = url.rstrip("/") if url else None
        self._trusted = trusted
        self._has_warned = False
        # Where the server listens, as in http://127.0.0.1:8080; None when another program listens for it.
        self.listening: str | None = None
        self._grpc_url = grpc_url
        self._grpc: tuple[str, int] | None = None

    def grpc_at(self, host: str, port: int) -> None:
        """Set where gRPC is served; the host is empty for the one by which a caller reaches HTTP."""
        self._grpc = host, port

    def grpc(self, base: str) -> str | None:
        """Return the address of gRPC as host:port, for callers who use this URL for HTTP; None if it is not served."""
        if self._grpc is None:
            return None
        if self._grpc_url is not None:
            return self._grpc_url
        host, port = self._grpc
        host = host or urlsplit(base).hostname or ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def own(self) -> str | None:
        """The URL of this server, whoever asks: the setting `url`, else where it listens. None when neither is set."""
        return self._url or self.listening

    def base(self, request: Request) -> str:
        """Return the URL of the app's root, without a trailing slash."""
        if self._url is not None:
            return self._url
        scope, headers = request.scope, request.headers
        if scope["type"] == GRPC_CALL:  # its Host and port are those of gRPC
            return self.listening or ""
        scheme: str = scope.get("scheme", "http")
        host = headers.get("host") or _server_host(scope.get("server"))
        root: str = scope.get("root_path", "")
        if self.is_trusted(request):
            scheme = _first(headers.get("x-forwarded-proto")) or scheme
            host = _first(headers.get("x-forwarded-host")) or host
            prefix = _first(headers.get("x-forwarded-prefix")).strip("/")
            root = f"/{prefix}{root}" if prefix else root
        return f"{scheme}://{host}{root}".rstrip("/")

    @property
    def has_proxies(self) -> bool:
        """True when there are trusted proxies."""
        return bool(self._trusted)

    def caller(self, request: InboundRequest) -> str:
        """Return the client address: the last hop that is not a trusted proxy. Empty if unknown.

        For IPv6 it is the /64 network: whoever has one address there has them all.
        """
        client: Sequence[object] | None = request.scope.get("client")
        address = str(client[0]) if client else ""
        if self.is_trusted(request):
            for hop in reversed(request.headers.get("x-forwarded-for", "").split(",")):
                hop_address = _parse_ip(hop.strip())
                if hop_address is None:
                    break
                address = str(hop_address)
                if not any(hop_address in network for network in self._trusted):
                    break
        elif "x-forwarded-for" in request.headers and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a request from %s names another address in X-Forwarded-For: if that is your proxy, name its network "
                "in trust_proxy, else all who come through it count as one caller",
                address or "an unknown address",
            )
        return network_of(address) if ":" in address else address

    def is_trusted(self, request: InboundRequest) -> bool:
        """True when a trusted proxy sent this request."""
        client: Sequence[object] | None = request.scope.get("client")
        if not self._trusted or not client:
            return False
        address = _parse_ip(str(client[0]))
        return address is not None and any(address in network for network in self._trusted)


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address as sockets and proxies write it: some add the port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A dual-stack socket reports an IPv4 client as ::ffff:a.b.c.d.
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(1024)
def network_of(address: str) -> str:
    """Return the /64 network of an IPv6 address, and any other address itself."""
    parsed = _parse_ip(address)
    if not isinstance(parsed, ipaddress.IPv6Address):
        return address if parsed is None else str(parsed)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


def _first(text: str | None) -> str:
    return text.partition(",")[0].strip() if text else ""


def _server_host(server: Sequence[object] | None) -> str:
    return f"{server[0]}:{server[1]}" if server else "localhost"
