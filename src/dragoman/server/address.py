"""Under which address a caller reached us, as the card must say it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.transports.http import Request

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Addresses:
    """Finds the public base URL of a request: the `url` setting, what a trusted proxy says, else the request's own."""

    def __init__(self, url: str | None, trusted: Sequence[Network]) -> None:
        self._url = url.rstrip("/") if url else None
        self._trusted = trusted

    def base(self, request: Request) -> str:
        """The address of the app's root, without a trailing slash."""
        if self._url is not None:
            return self._url
        scope, headers = request.scope, request.headers
        scheme: str = scope.get("scheme", "http")
        host = headers.get("host") or _server(scope.get("server"))
        root: str = scope.get("root_path", "")
        if self.is_trusted(request):
            scheme = _first(headers.get("x-forwarded-proto")) or scheme
            host = _first(headers.get("x-forwarded-host")) or host
            prefix = _first(headers.get("x-forwarded-prefix")).strip("/")
            root = f"/{prefix}{root}" if prefix else root
        return f"{scheme}://{host}{root}".rstrip("/")

    def is_trusted(self, request: Request) -> bool:
        """True when a proxy that may speak for others sent this request."""
        client: Sequence[object] | None = request.scope.get("client")
        if not self._trusted or not client:
            return False
        try:
            address = ipaddress.ip_address(str(client[0]))
        except ValueError:
            return False
        # A socket that listens on both families shows an IPv4 caller as ::ffff:a.b.c.d.
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trusted)


def _first(text: str | None) -> str:
    return text.partition(",")[0].strip() if text else ""


def _server(server: Sequence[object] | None) -> str:
    return f"{server[0]}:{server[1]}" if server else "localhost"
