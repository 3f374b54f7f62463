"""The certificate of a server, and how long it is good for."""

from __future__ import annotations

import asyncio
import ssl
import time
from urllib.parse import urlsplit

from dragoman.net.exchange import is_loopback
from dragoman.stores.sqlite.health import Finding

FEW_DAYS = 14
_PATIENCE = 10.0
_DAY = 86_400
_ENCRYPTED = "A2A 1.0, 7.1: in production all is encrypted, with a modern TLS"
_IDENTITY = "A2A 1.0, 7.2: callers check the certificate of the server"


async def examine_tls(url: str, *, insecure: bool, now: float | None = None) -> Finding:
    """Whether what is said to a server stays between the two, and for how long its certificate is valid.

    With `insecure`, a certificate nobody vouches for is a warning.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        if is_loopback(url):
            return Finding("ok", "tls", "none, on this machine")
        return Finding("warn", "tls", "none: everybody on the way can read and change what is said", _ENCRYPTED)
    host = parts.hostname or ""
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer = await asyncio.open_connection(host, parts.port or 443, ssl=ssl.create_default_context())
    except ssl.SSLCertVerificationError as error:
        says = f"the certificate is not trusted: {error.verify_message}"
        return Finding("warn" if insecure else "FAIL", "tls", says, _IDENTITY)
    except (OSError, TimeoutError) as error:
        # There may be a proxy on the way that we are not to go round.
        return Finding("warn", "tls", f"the certificate could not be looked at: {error or 'no answer'}")
    try:
        return _judged(writer.get_extra_info("ssl_object"), time.time() if now is None else now)
    finally:
        writer.transport.abort()


def _judged(tls: ssl.SSLObject, now: float) -> Finding:
    version = tls.version() or "TLS"
    until = (tls.getpeercert() or {}).get("notAfter")
    days = int((ssl.cert_time_to_seconds(str(until)) - now) // _DAY) if until else 0
    says = f"{version}, the certificate is valid for {days} more {'day' if days == 1 else 'days'}"
    if days < FEW_DAYS:
        return Finding("warn", "tls", says, "renew it")
    if version not in ("TLSv1.2", "TLSv1.3"):
        return Finding("warn", "tls", says, _ENCRYPTED)
    return Finding("ok", "tls", says)
