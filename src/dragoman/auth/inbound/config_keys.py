"""What a table for tokens names: keys in files, at addresses or by discovery, and the flows on the card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from dragoman.auth.inbound.issuer_keys import FetchedKeys, GivenKeys, OneKey, discovery, safe
from dragoman.engine.clock import Clock
from dragoman.model.error import ConfigError
from dragoman.net.exchange import HttpClient

if TYPE_CHECKING:
    from dragoman.auth.inbound.config import Oauth2Config

MAX_FILE = 1024 * 1024
# What can stand in a header, a cookie and a scope without quotes.
_WORD = re.compile(r"[A-Za-z0-9!#$%&'*+./:^_`|~-]{1,200}")
_FLOWS = {
    "client_credentials": ("clientCredentials", ("token_url",)),
    "authorization_code": ("authorizationCode", ("authorization_url", "token_url")),
    "device_code": ("deviceCode", ("device_url", "token_url")),
}
_ON_CARD = {
    "token_url": "tokenUrl",
    "authorization_url": "authorizationUrl",
    "device_url": "deviceAuthorizationUrl",
    "refresh_url": "refreshUrl",
}


def check_word(text: str, source: str) -> None:
    """Refuse what cannot stand in a header. Raises ConfigError."""
    if _WORD.fullmatch(text) is None:
        raise ConfigError(f"{source}: {text!r} has characters that cannot stand in a header")


def fetched(http: HttpClient, url: str, clock: Clock) -> FetchedKeys:
    """The keys at an address."""

    async def locate() -> str:
        return url

    return FetchedKeys(http, locate, clock)


def discovered(http: HttpClient, issuer: str, url: str, clock: Clock) -> FetchedKeys:
    """The keys that an issuer's own document names."""
    return FetchedKeys(http, discovery(http, issuer, url), clock)


def metadata_url(issuer: str) -> str:
    """Where an OAuth 2 server tells about itself: between the host and the path of its name (RFC 8414)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"


def from_jwks_file(path: Path, source: str) -> GivenKeys:
    """The keys of a JWKS file.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        jwks: Any = json.loads(_content(path, source))
    except (ValueError, RecursionError):
        raise ConfigError(f"{source}: {path} is not JSON") from None
    if not isinstance(jwks, dict) or not isinstance(cast("dict[str, Any]", jwks).get("keys"), list):
        raise ConfigError(f"{source}: {path} is no key set: it has no list `keys`")
    return GivenKeys(cast("dict[str, Any]", jwks))


def from_pem_file(path: Path, source: str) -> OneKey:
    """The public key of a PEM file, alone or in a certificate.

    Raises:
        ConfigError: it cannot be read, or has no public key of a known kind.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

    content = _content(path, source)
    if b"PRIVATE KEY" in content:
        raise ConfigError(f"{source}: {path} has a private key: put the public key alone there")
    try:
        if b"CERTIFICATE" in content:
            key = load_pem_x509_certificate(content).public_key()
        else:
            key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{source}: {path} is no public key in PEM form") from None
    if isinstance(key, rsa.RSAPublicKey):
        return OneKey(RSAAlgorithm.to_jwk(key, as_dict=True))
    if isinstance(key, ec.EllipticCurvePublicKey):
        return OneKey(ECAlgorithm.to_jwk(key, as_dict=True))
    if isinstance(key, ed25519.Ed25519PublicKey):
        return OneKey(OKPAlgorithm.to_jwk(key, as_dict=True))
    raise ConfigError(f"{source}: {path} has a key of a kind that tokens are not signed with")


def _content(path: Path, source: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE)
    except OSError as error:
        raise ConfigError(f"{source}: {path} cannot be read: {error.strerror}") from None


def oauth2_card(config: Oauth2Config) -> dict[str, Any]:
    """How the card describes an OAuth 2 server: one flow, as A2A 1.0 has it.

    Raises:
        ConfigError: an address that the flow needs is missing, or is not https.
    """
    flow, needed = _FLOWS[config.flow]
    told: dict[str, Any] = {}
    for name, spelled in _ON_CARD.items():
        url: str | None = getattr(config, name)
        if url is not None:
            told[spelled] = safe(url, f"[auth.oauth2] {name}")
        elif name in needed:
            raise ConfigError(f"[auth.oauth2] needs {name} for the flow {config.flow}")
    told["scopes"] = {**dict.fromkeys(config.scopes, ""), **config.offered}
    if config.flow == "authorization_code":
        told["pkceRequired"] = True
    scheme: dict[str, Any] = {"flows": {flow: told}}
    if config.metadata_url is not None:
        scheme["oauth2MetadataUrl"] = config.metadata_url
    return {"oauth2SecurityScheme": scheme}
