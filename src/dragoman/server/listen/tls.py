"""TLS: the server's certificate, and those of its callers."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    import asyncio


class PeerCertificateProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, which also tells the app about the caller's certificate (the `tls` extension of ASGI)."""

    _tls: dict[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A caller has connected, and TLS is done."""
        super().connection_made(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        # Read once: a certificate stays as it is while the connection lives.
        self._tls = None if ssl_object is None else _tls_extension(ssl_object)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}


def tls_options(cert: str, key: str | None, ca: str | None, *, required: bool = False) -> dict[str, Any]:
    """What uvicorn's Config needs to speak TLS.

    `ca` is a file of authorities: callers are asked for a certificate that one of them signed. With `required` nobody
    gets in without; else the app decides, and a caller may use another scheme.

    Raises:
        ConfigError: a file is missing or not what it should be.
    """
    for setting, path in (("tls_cert", cert), ("tls_key", key), ("tls_ca", ca)):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"{setting}: there is no file {path}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # uvicorn would only say so once it is listening. A key with a passphrase cannot be asked for one by a server.
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


def _tls_extension(ssl_object: ssl.SSLObject) -> dict[object, object]:
    der = ssl_object.getpeercert(binary_form=True)
    chain = [] if der is None else [ssl.DER_cert_to_PEM_cert(der)]
    return {
        "server_cert": None,
        "client_cert_chain": chain,
        "client_cert_name": None if der is None else _subject(chain[0]),
        "client_cert_error": None,
        "tls_version": None,
        "cipher_suite": None,
    }


def _subject(pem: str) -> str:
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(pem.encode()).subject.rfc4514_string()
