"""A TLS context that also keeps the files it was made of, for those who cannot use a context: grpcio."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple


class ClientCertificate(NamedTuple):
    """The files of a caller's certificate and its private key, which may be in one file."""

    certificate: Path
    key: Path | None
    password: str | None


class PemContext(ssl.SSLContext):
    """A client context. `authorities` are the files and folders of those it trusts; none means those of the system."""

    def __init__(self, protocol: int) -> None:
        self.authorities: list[Path] = []
        self.client_certificate: ClientCertificate | None = None

    @classmethod
    def default(cls, authorities: Path | None = None) -> PemContext:
        """Return a context as `ssl.create_default_context` makes it.

        Raises:
            OSError: the authorities cannot be read.
        """
        context, like = cls(ssl.PROTOCOL_TLS_CLIENT), ssl.create_default_context()
        context.options, context.verify_flags = like.options, like.verify_flags
        if authorities is None:
            context.load_default_certs()
        else:
            context.trust(authorities)
        return context

    def trust(self, path: Path) -> None:
        """Trust the authorities in a file or folder. Raises OSError, of which ssl.SSLError is one."""
        if path.is_dir():
            self.load_verify_locations(capath=str(path))
        else:
            self.load_verify_locations(cafile=str(path))
        self.authorities.append(path)
