"""Checks the TLS of a server: whether it is used, and its certificate."""

from __future__ import annotations

import asyncio
import ssl
import time
from urllib.parse import urlsplit

from dragoman.net.exchange import is_loopback
from dragoman.stores.administration import HealthFinding

_ENCRYPTED = "A2A 1.0, 7.1: in production all is encrypted, with a modern TLS"
_IDENTITY = "A2A 1.0, 7.2: callers check the certificate of the server"
# Seconds.
_TLS_TIMEOUT = 10.0
_FEW_DAYS = 14
_DAY = 86_400


async def check_tls(url: str, verification: bool | ssl.SSLContext = True, *, now: float | None = None) -> HealthFinding:
    """Check TLS of a server: whether it is used, and how long the certificate is valid.

    `verification` says whom to trust. If that is anybody, False, an untrusted certificate is a warning.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        if is_loopback(url):
            return HealthFinding("ok", "tls", "none, on this machine")
        return HealthFinding("warn", "tls", "none: everybody on the way can read and change what is said", _ENCRYPTED)
    host = parts.hostname or ""
    context = verification if isinstance(verification, ssl.SSLContext) else ssl.create_default_context()
    try:
        async with asyncio.timeout(_TLS_TIMEOUT):
            _, writer = await asyncio.open_connection(host, parts.port or 443, ssl=context)
    except ssl.SSLCertVerificationError as error:
        says = f"the certificate is not trusted: {error.verify_message}"
        return HealthFinding("FAIL" if verification else "warn", "tls", says, _IDENTITY)
    except (OSError, TimeoutError) as error:
        # A direct connection may be impossible where a proxy is required.
        return HealthFinding("warn", "tls", f"the certificate could not be looked at: {error or 'no answer'}")
    try:
        return _check_certificate(writer.get_extra_info("ssl_object"), time.time() if now is None else now)
    finally:
        writer.transport.abort()


def _check_certificate(tls: ssl.SSLObject, now: float) -> HealthFinding:
    version = tls.version() or "TLS"
    until = (tls.getpeercert() or {}).get("notAfter")
    days = int((ssl.cert_time_to_seconds(str(until)) - now) // _DAY) if until else 0
    says = f"{version}, the certificate is valid for {days} more {'day' if days == 1 else 'days'}"
    if days < _FEW_DAYS:
        return HealthFinding("warn", "tls", says, "renew it")
    if version not in ("TLSv1.2", "TLSv1.3"):
        return HealthFinding("warn", "tls", says, _ENCRYPTED)
    return HealthFinding("ok", "tls", says)
