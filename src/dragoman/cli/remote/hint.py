"""What to try when an address cannot be called: another scheme, or to start an agent there."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.net.exchange import is_loopback, origin_of, other_scheme_hint

if TYPE_CHECKING:
    from dragoman.model.error import CannotConnect

_PROBE_SECONDS = 3.0


async def connection_hint(url: str, error: CannotConnect) -> str:
    """Return a sentence about what to try after an error; empty when nothing can be said.

    A server that speaks TLS closes a plain connection without a word, so one that did is asked for TLS.
    """
    parts = urlsplit(url)
    is_refused = error.reason == "CANNOT_CONNECT" and "refused" in str(error).lower()
    if is_refused and is_loopback(url):
        port = origin_of(url).rpartition(":")[2]
        flag = f"--grpc 127.0.0.1:{port}" if parts.scheme.startswith("grpc") else f"--port {port}"
        return f"If your agent belongs there, start it with `dragoman serve {flag}`"
    was_closed = error.reason == "CONNECTION_LOST" or str(error).endswith("Socket closed")
    if parts.scheme in ("http", "grpc") and was_closed and error.status is None and await _speaks_tls(url):
        hint = other_scheme_hint(url)
        return f"{hint[0].upper()}{hint[1:]}"
    return ""


async def _speaks_tls(url: str) -> bool:
    host, _, port = origin_of(url).partition("://")[2].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent: this asks only whether the other side speaks TLS.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, ValueError, TimeoutError):
        return False
    writer.transport.abort()
    return True
