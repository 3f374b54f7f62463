"""The addresses of gRPC servers, as cards write them and as URLs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from dragoman.model.error import ConfigError
from dragoman.net.exchange import redact_url

SCHEMES = ("grpc", "grpcs")
_SECURE_SCHEMES, _PLAIN_SCHEMES = ("grpcs", "https"), ("grpc", "http")
_PORTS = {"grpc": 80, "grpcs": 443}


class GrpcUrl(NamedTuple):
    """A parsed URL: where to connect, and the path of the method."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The host and the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(256)
def parse_grpc_url(url: str) -> GrpcUrl:
    """Parse a grpc or grpcs URL.

    Raises:
        ValueError: it is not one.
        ConfigError: it has a query, in which only a key can be.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in SCHEMES or not host or not url.isprintable() or " " in url:
        raise ValueError("not an address that can be called")
    if parts.query:
        raise ConfigError("the agent wants a key in the query of a URL, and gRPC has none: choose another transport=")
    name = host if host.isascii() else host.encode("idna").decode()
    return GrpcUrl(parts.scheme == "grpcs", name, parts.port or _PORTS[parts.scheme], parts.path)


def grpc_url(address: str, *, secure: bool) -> str:
    """Return the `grpc://` or `grpcs://` URL of the address of an interface, which most cards write as `host:port`.

    `secure` says whether an address without a scheme means TLS; at port 443 it always does.

    Raises:
        ValueError: it is no address.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "", address.removeprefix("dns:")
    elif scheme.lower() == "dns":
        # dns://SERVER/host:port, where the name server may be left out.
        scheme, rest = "", rest.partition("/")[2]
    parts = urlsplit(f"//{rest.lstrip('/')}")
    host, port = parts.hostname, parts.port
    if not host or not rest.isprintable() or " " in rest:
        raise ValueError(f"{redact_url(address)!r} is not the address of a gRPC server")
    is_secure = scheme.lower() in _SECURE_SCHEMES or (
        scheme.lower() not in _PLAIN_SCHEMES and (secure or port == _PORTS["grpcs"])
    )
    name = f"[{host}]" if ":" in host else host
    scheme = "grpcs" if is_secure else "grpc"
    return f"{scheme}://{name}:{port or _PORTS[scheme]}"


def is_grpc(url: str) -> bool:
    """True for a URL of gRPC."""
    return url.partition("://")[0].lower() in SCHEMES
