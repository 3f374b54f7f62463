"""TLS options of uvicorn: the server's certificate, and client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.model.error import ConfigError
from dragoman.server.listen.http_protocol import HttpProtocol

if TYPE_CHECKING:
    import asyncio


class PeerCertificateProtocol(HttpProtocol):
    """One connection, with the client certificate in the ASGI scope (extension `tls`)."""

    _tls: dict[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Read the client certificate once the TLS handshake is done."""
        super().connection_made(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        # Read once: the certificate of a connection never changes.
        self._tls = None if ssl_object is None else _read_certificate(ssl_object)

    def on_message_begin(self) -> None:
        """Add the certificate to the scope of the request."""
        super().on_message_begin()
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}


def tls_options(cert: str, key: str | None, ca: str | None, *, required: bool = False) -> dict[str, Any]:
    """Return the options of uvicorn's Config for TLS.

    `ca` is a file of authorities: clients are asked for a certificate that one of them signed. With `required` the
    handshake fails without one; else the app decides, and a caller may use another scheme.

    Raises:
        ConfigError: a file is missing or invalid.
    """
    for setting, path in (("tls_cert", cert), ("tls_key", key), ("tls_ca", ca)):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"{setting}: there is no file {path}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Checked now, because uvicorn would report it only when listening. A server cannot ask for a passphrase.
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, OSError):
        raise ConfigError(
            f"tls_cert {cert}: must be a PEM file with a certificate and its chain, and "
            f"{'tls_key ' + key if key else 'the same file'} its private key, without a passphrase"
        ) from None
    options: dict[str, Any] = {"ssl_certfile": cert, "ssl_keyfile": key}
    if ca is None:
        return options
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError):
        raise ConfigError(f"tls_ca {ca}: must be a PEM file with the authorities to trust") from None
    cert_reqs = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return {**options, "ssl_ca_certs": ca, "ssl_cert_reqs": cert_reqs, "http": PeerCertificateProtocol}


def _read_certificate(ssl_object: ssl.SSLObject) -> dict[object, object]:
    der = ssl_object.getpeercert(binary_form=True)
    return tls_extension([] if der is None else [ssl.DER_cert_to_PEM_cert(der)])


def tls_extension(chain: Sequence[str]) -> dict[object, object]:
    """Return the extension `tls` of an ASGI scope, for a client with these certificates (PEM), its own first."""
    return {
        "server_cert": None,
        "client_cert_chain": chain,
        "client_cert_name": _subject(chain[0]) if chain else None,
        "client_cert_error": None,
        "tls_version": None,
        "cipher_suite": None,
    }


def _subject(pem: str) -> str:
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(pem.encode()).subject.rfc4514_string()
