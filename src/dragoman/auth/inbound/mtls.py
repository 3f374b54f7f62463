"""Authentication by client certificate, verified by TLS and passed in the ASGI scope (extension `tls`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.auth.inbound.passwords import UserStore
from dragoman.auth.inbound.scheme import AuthScheme, InboundRequest, InvalidCredential
from dragoman.clock import Clock
from dragoman.model.user import User

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CertificateName = Literal["subject", "uri", "dns", "email"]
_CACHE_SIZE = 1024


class MtlsScheme(AuthScheme):
    """Authenticates by a client certificate that an authority in the setting `tls_ca` has signed.

    `by` selects the name of the certificate that identifies the caller. `allow` lists the names that may call, empty
    for all. `users` maps names to users of the store, who have permissions; all others have none.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        by: CertificateName = "subject",
        allow: frozenset[str] = frozenset(),
        users: Mapping[str, str] | None = None,
        store: UserStore | None = None,
    ) -> None:
        about = {"description": "A client certificate, shown when the connection is made."}
        super().__init__("mtls", {"mtlsSecurityScheme": about}, "", ambient=True)
        self._clock = clock
        self._allow = allow
        self._users = dict(users or {})
        self._store = store
        self._read_certificate = lru_cache(_CACHE_SIZE)(partial(_read_certificate, by))

    async def identify(self, request: InboundRequest) -> User | None:
        extensions = cast("Mapping[str, Any]", request.scope.get("extensions") or {})
        tls = cast("Mapping[str, Any] | None", extensions.get("tls"))
        chain: list[str] = list(tls.get("client_cert_chain") or ()) if tls else []
        if tls is None or not chain:
            return None
        if tls.get("client_cert_error"):
            raise InvalidCredential("the client certificate is not valid", cause="bad-certificate")
        name, until = self._read_certificate(chain[0])
        if until <= self._clock.now():
            raise InvalidCredential("the client certificate has expired", cause="expired", user=f"cert|{name}")
        if self._allow and name not in self._allow and name not in self._users:
            raise InvalidCredential(
                "this client certificate is not on the list", cause="not-allowed", user=f"cert|{name}"
            )
        return await self._user(name)

    async def _user(self, name: str) -> User:
        mapped = self._users.get(name)
        if mapped is None:
            return User(id=f"cert|{name}", name=name)
        account = await self._store.by_name(mapped) if self._store is not None else None
        if account is None:
            raise InvalidCredential(
                "this client certificate belongs to a user who does not exist", cause="no-such-user"
            )
        return account.user


def _read_certificate(by: CertificateName, pem: str) -> tuple[str, int]:
    """Return the name of a certificate and its expiry in milliseconds since 1970. Raises InvalidCredential."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(pem.encode())
        name = _certificate_name(certificate, by)
        until = int(certificate.not_valid_after_utc.timestamp() * 1000)
    except ValueError:
        raise InvalidCredential("the client certificate cannot be read", cause="bad-certificate") from None
    if not name or not name.isprintable():
        raise InvalidCredential(f"the client certificate has no name of the kind {by!r}", cause="no-name")
    return name, until


def _certificate_name(certificate: Certificate, by: CertificateName) -> str:
    from cryptography import x509

    if by == "subject":
        return certificate.subject.rfc4514_string()
    kinds = {"uri": x509.UniformResourceIdentifier, "dns": x509.DNSName, "email": x509.RFC822Name}
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    return str(next(iter(names.get_values_for_type(kinds[by])), ""))
