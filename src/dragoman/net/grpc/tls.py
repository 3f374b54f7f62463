"""The TLS of gRPC channels. grpcio takes PEM texts: it can use neither a context of Python nor a file."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.model.error import CannotConnect, ConfigError
from dragoman.net.exchange import tls_error
from dragoman.net.pem import ClientCertificate, PemContext

_NO_CONTEXT = (
    "an ssl.SSLContext cannot be used over gRPC: give verify= the file or folder of the authorities, and a certificate "
    "of your own as auth=MutualTLS(…); or choose another transport="
)


class ChannelTls(NamedTuple):
    """What grpcio takes: the trusted authorities (None for its own), a certificate with its key, and its name."""

    authorities: bytes | None
    key: bytes | None = None
    certificate: bytes | None = None
    # The name that the server's certificate has to have, if that is not the host.
    name: str = ""


async def load_tls(verify: bool | ssl.SSLContext, host: str, port: int, seconds: float | None) -> ChannelTls:
    """Return the TLS settings of a channel. `verify` is True, False, or the context of a `Client`.

    Raises:
        ConfigError: the context was not made of files.
        CannotConnect: any certificate is to be accepted, and the server has none.
    """
    own = None
    if isinstance(verify, ssl.SSLContext):
        if not isinstance(verify, PemContext):
            raise ConfigError(_NO_CONTEXT)
        own = verify.client_certificate
    key, certificate = (None, None) if own is None else _read_certificate(own)
    if verify is False or (isinstance(verify, PemContext) and verify.verify_mode is ssl.CERT_NONE):
        # grpcio verifies always. So whatever certificate the server has becomes the one that is trusted.
        offered = await _fetch_certificate(host, port, seconds)
        return ChannelTls(ssl.DER_cert_to_PEM_cert(offered).encode(), key, certificate, _name_in(offered) or host)
    paths = verify.authorities if isinstance(verify, PemContext) else []
    authorities = b"\n".join(map(_read_authorities, paths)) if paths else _system_authorities()
    return ChannelTls(authorities, key, certificate)


def _read_authorities(path: Path) -> bytes:
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    return b"\n".join(each.read_bytes() for each in files)


@cache
def _system_authorities() -> bytes | None:
    """Return the authorities of the system, as HTTPS uses them; None for those that grpcio has of its own."""
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    if found:
        return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode()
    folder = ssl.get_default_verify_paths().capath  # its files are read one by one when they are needed
    return _read_authorities(Path(folder)) or None if folder else None


def _read_certificate(files: ClientCertificate) -> tuple[bytes, bytes]:
    """Return the private key, decrypted, and the certificate."""
    key = (files.key or files.certificate).read_bytes()
    if b"ENCRYPTED" in key:
        from cryptography.hazmat.primitives import serialization as pem

        loaded = pem.load_pem_private_key(key, (files.password or "").encode())
        key = loaded.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    return key, files.certificate.read_bytes()


async def _fetch_certificate(host: str, port: int, seconds: float | None) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        raise tls_error(f"grpcs://{where}", str(error.reason or error)) from None
    except OSError as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error.strerror or error).lower()
        raise CannotConnect(f"nobody answers at {where}: {why}", arrived=False) from None
    try:
        tls: Any = writer.get_extra_info("ssl_object")
        return tls.getpeercert(binary_form=True) or b""
    finally:
        writer.transport.abort()


def _name_in(certificate: bytes) -> str:
    """Return a name that a certificate is for."""
    from cryptography import x509

    try:
        loaded = x509.load_der_x509_certificate(certificate)
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ""
    found = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return found[0].replace("*", "any") if found else ""
