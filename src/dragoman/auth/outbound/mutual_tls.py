"""Authentication by client certificate."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from dragoman.auth.outbound.credential import BaseCredential
from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError
from dragoman.net.exchange import HttpClient, HttpRequest
from dragoman.net.pem import ClientCertificate, PemContext


class MutualTLS(BaseCredential):
    """A client certificate, presented when the connection is made.

    `cert` is a PEM file with the certificate (and its chain), `key` one with the private key if that is not in `cert`,
    `password` decrypts the key. `ca` is a file or folder of authorities: it replaces the system's, and is added to
    those of an `ssl.SSLContext` that the user passes as `verify`.
    """

    __slots__ = ("_ca", "_cert", "_key", "_password")

    def __init__(
        self,
        cert: str | os.PathLike[str],
        key: str | os.PathLike[str] | None = None,
        password: str | None = None,
        *,
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self._cert = Path(cert)
        self._key = None if key is None else Path(key)
        self._password = password
        self._ca = None if ca is None else Path(ca)

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """Check that the request uses TLS; the connection carries the certificate.

        Raises:
            AuthError: the URL is one without TLS.
        """
        if not request.url.lower().startswith(("https:", "grpcs:")):
            raise AuthError("a client certificate needs an https:// or grpcs:// address")

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """Return a context with the certificate loaded; a context of the user's own is changed in place.

        Raises:
            ConfigError: a file is missing or invalid, or the password of the key is missing or wrong.
        """
        trusted = self._ca or (Path(verify) if isinstance(verify, str) else None)
        if isinstance(verify, ssl.SSLContext):
            context = verify
        else:
            context = PemContext.default() if trusted is None else PemContext(ssl.PROTOCOL_TLS_CLIENT)
            context.set_alpn_protocols(["http/1.1"])
        if verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if trusted is not None:
            _trust(context, trusted)
        self._load_certificate(context)
        if isinstance(context, PemContext):
            context.client_certificate = ClientCertificate(self._cert, self._key, self._password)
        return context

    def __repr__(self) -> str:
        return f"MutualTLS({str(self._cert)!r})"

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        password_requests: list[bool] = []

        def password() -> str:
            # Without this, OpenSSL would prompt on the terminal.
            password_requests.append(True)
            return self._password or ""

        for path in filter(None, (self._cert, self._key)):
            if not path.is_file():
                raise ConfigError(f"MutualTLS: there is no file {path}")
        try:
            context.load_cert_chain(self._cert, self._key, password)
        except (ssl.SSLError, OSError, ValueError) as error:
            holder = self._key or self._cert
            if password_requests and not self._password:
                raise ConfigError(f"MutualTLS: the key in {holder} is encrypted: pass password=") from None
            if password_requests:
                raise ConfigError(f"MutualTLS: the password does not open the key in {holder}") from None
            if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(f"MutualTLS: the key in {holder} is not that of {self._cert}") from None
            raise ConfigError(
                f"MutualTLS: {self._cert} and {holder} must be PEM files with a certificate and its private key"
            ) from None


def _trust(context: ssl.SSLContext, path: Path) -> None:
    if not path.exists():
        raise ConfigError(f"there is no file {path} with certificate authorities")
    try:
        if isinstance(context, PemContext):
            context.trust(path)
        elif path.is_dir():
            context.load_verify_locations(capath=str(path))
        else:
            context.load_verify_locations(cafile=str(path))
    except (ssl.SSLError, OSError, ValueError):
        raise ConfigError(f"{path} must be a PEM file with certificate authorities") from None
