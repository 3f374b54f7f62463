"""Builds the authentication schemes of a server from the setting `auth` and its tables `[auth.NAME]`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dragoman.auth.inbound.cookie import MAX_AGE, NAME, CookieScheme
from dragoman.auth.inbound.issuer_keys import FetchedKeys, IssuerKeys, StaticKeys, require_secure_url
from dragoman.auth.inbound.mtls import CertificateName, MtlsScheme
from dragoman.auth.inbound.passwords import Passwords, UserStore
from dragoman.auth.inbound.scheme import AddressOf, AuthScheme, client_address
from dragoman.auth.inbound.schemes import ApiKeyScheme, BasicScheme, BearerScheme, IssuedTokenScheme
from dragoman.auth.inbound.tokens import ALGORITHMS, TokenRules, TokenVerifier
from dragoman.clock import Clock
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError
from dragoman.net.exchange import HttpClient

MAX_FILE = 1024 * 1024
# Characters allowed in a header, a cookie and a scope without quotes.
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
    """Raise ConfigError when a text has characters that need quotes in a header, or is empty or too long."""
    if _WORD.fullmatch(text) is None:
        raise ConfigError(f"{source}: {text!r} has characters that cannot stand in a header")


def metadata_url(issuer: str) -> str:
    """Return the metadata URL of an OAuth 2 server: between the host and the path of its issuer (RFC 8414)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"


def from_jwks_file(path: Path, source: str) -> StaticKeys:
    """Load the keys of a JWKS file.

    Raises:
        ConfigError: the file cannot be read, or is not a key set.
    """
    try:
        jwks: Any = json.loads(_read_file(path, source))
    except (ValueError, RecursionError):
        raise ConfigError(f"{source}: {path} is not JSON") from None
    if not isinstance(jwks, dict) or not isinstance(cast("dict[str, Any]", jwks).get("keys"), list):
        raise ConfigError(f"{source}: {path} is no key set: it has no list `keys`")
    return StaticKeys(cast("dict[str, Any]", jwks))


def from_pem_file(path: Path, source: str) -> StaticKeys:
    """Load the public key of a PEM file, alone or in a certificate.

    Raises:
        ConfigError: the file cannot be read, or has no public key of a supported type.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

    content = _read_file(path, source)
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
        jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        jwk = ECAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ed25519.Ed25519PublicKey):
        jwk = OKPAlgorithm.to_jwk(key, as_dict=True)
    else:
        raise ConfigError(f"{source}: {path} has a key of a kind that tokens are not signed with")
    return StaticKeys({"keys": [jwk]}, has_kid=False)


def _read_file(path: Path, source: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE)
    except OSError as error:
        raise ConfigError(f"{source}: {path} cannot be read: {error.strerror}") from None


def oauth2_card(config: Oauth2Config) -> dict[str, Any]:
    """Build the card's description of an OAuth 2 server: one flow, in A2A 1.0 form.

    Raises:
        ConfigError: an address that the flow needs is missing, or is not https.
    """
    flow, required = _FLOWS[config.flow]
    flow_details: dict[str, Any] = {}
    for name, member in _ON_CARD.items():
        url: str | None = getattr(config, name)
        if url is not None:
            flow_details[member] = require_secure_url(url, f"[auth.oauth2] {name}")
        elif name in required:
            raise ConfigError(f"[auth.oauth2] needs {name} for the flow {config.flow}")
    flow_details["scopes"] = {**dict.fromkeys(config.scopes, ""), **config.offered}
    if config.flow == "authorization_code":
        flow_details["pkceRequired"] = True
    scheme: dict[str, Any] = {"flows": {flow: flow_details}}
    if config.metadata_url is not None:
        scheme["oauth2MetadataUrl"] = config.metadata_url
    return {"oauth2SecurityScheme": scheme}


T = TypeVar("T")


class CookieConfig(Struct, frozen=True, kw_only=True):
    """`[auth.cookie]`: the sealed cookie. `max_age` is in seconds."""

    name: str = NAME
    max_age: float = MAX_AGE


class ApiKeyConfig(Struct, frozen=True, kw_only=True):
    """`[auth.apikey]`: users' keys, and where requests carry them."""

    location: Literal["header", "query", "cookie"] = "header"
    name: str = "X-API-Key"


class BasicConfig(Struct, frozen=True, kw_only=True):
    """`[auth.basic]`: users' names and passwords. The table has no options."""


class TokenConfig(TokenRules, frozen=True, kw_only=True):
    """The options that all tables for tokens share."""

    jwks_url: str | None = None


class BearerConfig(TokenConfig, frozen=True, kw_only=True):
    """`[auth.bearer]`: users' keys as bearer tokens, and an issuer's tokens when a source of its keys is set."""

    jwks_file: str | None = None
    pem: str | None = None
    users: bool = True


class Oauth2Config(TokenConfig, frozen=True, kw_only=True):
    """`[auth.oauth2]`: the tokens of an OAuth 2 server. The URLs are published on the card."""

    flow: Literal["client_credentials", "authorization_code", "device_code"] = "client_credentials"
    token_url: str | None = None
    authorization_url: str | None = None
    device_url: str | None = None
    refresh_url: str | None = None
    offered: dict[str, str] = {}  # noqa: RUF012 - a Struct, which copies it
    metadata_url: str | None = None


class OidcConfig(TokenConfig, frozen=True, kw_only=True):
    """`[auth.oidc]`: the tokens of an OpenID Connect provider, discovered from its issuer."""


class MtlsConfig(Struct, frozen=True, kw_only=True):
    """`[auth.mtls]`: callers' certificates. `users` maps names on certificates to users of the store."""

    by: CertificateName = "subject"
    allow: tuple[str, ...] = ()
    users: dict[str, str] = {}


class _Dependencies(NamedTuple):
    users: UserStore | None
    ring: KeyRing | None
    http: HttpClient | None
    clock: Clock
    passwords: Passwords | None
    base: Path
    address_of: AddressOf


def build_schemes(
    names: Sequence[str],
    tables: Mapping[str, Mapping[str, Any]],
    users: UserStore | None,
    ring: KeyRing | None,
    http: HttpClient | None,
    clock: Clock,
    *,
    passwords: Passwords | None = None,
    base: Path | None = None,
    address_of: AddressOf = client_address,
) -> list[AuthScheme]:
    """Build the schemes in the order of `names`. Paths in the tables are relative to `base`.

    `address_of` returns the client address of a request, for the limits on wrong passwords.

    Raises:
        ConfigError: a name or a key is unknown, a value wrong, a needed one missing, or a file unreadable.
    """
    for name in (*names, *tables):
        if name not in _BUILDERS:
            raise ConfigError(f"auth: there is no scheme `{name}`{_suggest(name, _BUILDERS)}")
    for name in tables:
        if name not in names:
            raise ConfigError(f"[auth.{name}] is there and auth does not name it: add {name!r} to auth")
    parts = _Dependencies(users, ring, http, clock, passwords, base or Path(), address_of)
    return [_BUILDERS[name](tables.get(name, {}), parts) for name in dict.fromkeys(names)]


def _read(name: str, table: Mapping[str, Any], kind: type[T]) -> T:
    fields = msgspec.structs.fields(kind)  # type: ignore[arg-type]
    for key in table:
        if key not in [field.name for field in fields]:
            raise ConfigError(
                f"[auth.{name}]: there is no setting `{key}`{_suggest(key, [field.name for field in fields])}"
            )
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        raise ConfigError(f"[auth.{name}] {place.rstrip('`')}: {problem}") from None


def _suggest(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(name, list(names), n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; there are {', '.join(names)}" if names else "; there are none"


def _require(value: T | None, name: str, what: str) -> T:
    if value is None:
        raise ConfigError(f"[auth.{name}] {what}")
    return value


def _users(name: str, parts: _Dependencies) -> UserStore:
    return _require(parts.users, name, "needs a store of users")


def _cookie(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    config = _read("cookie", table, CookieConfig)
    check_word(config.name, "[auth.cookie] name")
    if not 0 < config.max_age <= 400 * 24 * 3600:  # browsers keep none longer
        raise ConfigError("[auth.cookie] max_age: must be seconds, more than 0 and at most 400 days")
    ring = _require(parts.ring, "cookie", "needs a secret: set DRAGOMAN_SECRET, or use a SQLite store, which has one")
    return CookieScheme(_users("cookie", parts), ring, parts.clock, cookie_name=config.name, max_age=config.max_age)


def _apikey(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    config = _read("apikey", table, ApiKeyConfig)
    check_word(config.name, "[auth.apikey] name")
    return ApiKeyScheme(_users("apikey", parts), location=config.location, key_name=config.name)


def _basic(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    _read("basic", table, BasicConfig)
    passwords = parts.passwords or Passwords(_users("basic", parts), parts.clock)
    return BasicScheme(passwords, address_of=parts.address_of)


def _bearer(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    config = _read("bearer", table, BearerConfig)
    sources = [each for each in (config.jwks_url, config.jwks_file, config.pem) if each is not None]
    users = _users("bearer", parts) if config.users else None
    if not sources:
        if config.audience or config.issuer:
            raise ConfigError("[auth.bearer] needs the issuer's keys: set jwks_url, jwks_file or pem")
        return BearerScheme(_require(users, "bearer", "users = false leaves nobody: set jwks_url, jwks_file or pem"))
    if len(sources) > 1:
        raise ConfigError("[auth.bearer] has several sources of keys: keep one of jwks_url, jwks_file and pem")
    if config.jwks_url is not None:
        source = _published_keys("bearer", config.jwks_url, parts)
    elif config.jwks_file is not None:
        source = from_jwks_file(parts.base / config.jwks_file, "[auth.bearer] jwks_file")
    else:
        source = from_pem_file(parts.base / sources[0], "[auth.bearer] pem")
    return BearerScheme(users, _token_verifier("bearer", source, config, parts), scopes=config.scopes)


def _oauth2(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    config = _read("oauth2", table, Oauth2Config)
    issuer = require_secure_url(_require(config.issuer, "oauth2", "needs issuer"), "[auth.oauth2] issuer")
    card = oauth2_card(config)
    if config.jwks_url is not None:
        source = _published_keys("oauth2", config.jwks_url, parts)
    else:
        url = require_secure_url(config.metadata_url or metadata_url(issuer), "[auth.oauth2] metadata_url")
        source = FetchedKeys(_http("oauth2", parts), url, parts.clock, issuer)
    return IssuedTokenScheme("oauth2", _token_verifier("oauth2", source, config, parts), card, config.scopes)


def _oidc(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    config = _read("oidc", table, OidcConfig)
    issuer = require_secure_url(_require(config.issuer, "oidc", "needs issuer"), "[auth.oidc] issuer")
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    if config.jwks_url is not None:
        source = _published_keys("oidc", config.jwks_url, parts)
    else:
        source = FetchedKeys(_http("oidc", parts), url, parts.clock, issuer)
    card = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
    return IssuedTokenScheme("oidc", _token_verifier("oidc", source, config, parts), card, config.scopes)


def _mtls(table: Mapping[str, Any], parts: _Dependencies) -> AuthScheme:
    config = _read("mtls", table, MtlsConfig)
    store = _users("mtls", parts) if config.users else None
    return MtlsScheme(parts.clock, by=config.by, allow=frozenset(config.allow), users=config.users, store=store)


def _http(name: str, parts: _Dependencies) -> HttpClient:
    return _require(parts.http, name, "needs to fetch keys, and nothing is there to fetch with")


def _published_keys(name: str, url: str, parts: _Dependencies) -> FetchedKeys:
    http = _http(name, parts)
    return FetchedKeys(http, require_secure_url(url, f"[auth.{name}] jwks_url"), parts.clock)


def _token_verifier(name: str, keys: IssuerKeys, config: TokenConfig, parts: _Dependencies) -> TokenVerifier:
    """Build the token verifier of a scheme. Raises ConfigError when a rule is invalid."""
    _require(config.audience or None, name, "needs audience: the name by which the issuer's tokens mean this server")
    for scope in config.scopes:
        check_word(scope, f"[auth.{name}] scopes")
    for algorithm in config.algorithms:
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"[auth.{name}] algorithms: there is no `{algorithm}`{_suggest(algorithm, ALGORITHMS)}")
    if not 0 <= config.leeway <= 600:
        raise ConfigError(f"[auth.{name}] leeway: must be seconds, from 0 to 600")
    return TokenVerifier(name, keys, config, parts.clock)


_BUILDERS: dict[str, Callable[[Mapping[str, Any], _Dependencies], AuthScheme]] = {
    "cookie": _cookie,
    "bearer": _bearer,
    "apikey": _apikey,
    "basic": _basic,
    "oauth2": _oauth2,
    "oidc": _oidc,
    "mtls": _mtls,
}
NAMES = tuple(_BUILDERS)
