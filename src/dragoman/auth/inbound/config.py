"""The schemes that the settings name, made from their tables `[auth.NAME]`."""

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
from dragoman.auth.inbound.issuer_keys import FetchedKeys, GivenKeys, IssuerKeys, safe
from dragoman.auth.inbound.mtls import By, MtlsScheme
from dragoman.auth.inbound.passwords import Passwords, UserStore
from dragoman.auth.inbound.scheme import AddressOf, Scheme, address
from dragoman.auth.inbound.schemes import ApiKeyScheme, BasicScheme, BearerScheme, IssuedTokenScheme
from dragoman.auth.inbound.tokens import ALGORITHMS, TokenRules, Tokens
from dragoman.clock import Clock
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError
from dragoman.net.exchange import HttpClient

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


def from_pem_file(path: Path, source: str) -> GivenKeys:
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
        jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        jwk = ECAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ed25519.Ed25519PublicKey):
        jwk = OKPAlgorithm.to_jwk(key, as_dict=True)
    else:
        raise ConfigError(f"{source}: {path} has a key of a kind that tokens are not signed with")
    return GivenKeys({"keys": [jwk]}, named=False)


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


T = TypeVar("T")


class CookieConfig(Struct, frozen=True, kw_only=True):
    """`[auth.cookie]`: the sealed cookie. `max_age` is in seconds."""

    name: str = NAME
    max_age: float = MAX_AGE


class ApiKeyConfig(Struct, frozen=True, kw_only=True):
    """`[auth.apikey]`: users' keys, and where they stand."""

    location: Literal["header", "query", "cookie"] = "header"
    name: str = "X-API-Key"


class BasicConfig(Struct, frozen=True, kw_only=True):
    """`[auth.basic]`: users' names and passwords. There is nothing to set."""


class TokenConfig(TokenRules, frozen=True, kw_only=True):
    """What all tables for tokens have."""

    jwks_url: str | None = None


class BearerConfig(TokenConfig, frozen=True, kw_only=True):
    """`[auth.bearer]`: users' keys as bearer tokens, and an issuer's tokens when one of its keys is named."""

    jwks_file: str | None = None
    pem: str | None = None
    users: bool = True


class Oauth2Config(TokenConfig, frozen=True, kw_only=True):
    """`[auth.oauth2]`: the tokens of an OAuth 2 server. The addresses are for the card."""

    flow: Literal["client_credentials", "authorization_code", "device_code"] = "client_credentials"
    token_url: str | None = None
    authorization_url: str | None = None
    device_url: str | None = None
    refresh_url: str | None = None
    offered: dict[str, str] = {}  # noqa: RUF012 - a Struct, which copies it
    metadata_url: str | None = None


class OidcConfig(TokenConfig, frozen=True, kw_only=True):
    """`[auth.oidc]`: the tokens of an OpenID Connect provider, which is found by its issuer."""


class MtlsConfig(Struct, frozen=True, kw_only=True):
    """`[auth.mtls]`: callers' certificates. `users` maps names on certificates to users of the store."""

    by: By = "subject"
    allow: tuple[str, ...] = ()
    users: dict[str, str] = {}


class _Parts(NamedTuple):
    users: UserStore | None
    ring: KeyRing | None
    http: HttpClient | None
    clock: Clock
    passwords: Passwords | None
    base: Path
    address_of: AddressOf


def schemes_of(
    names: Sequence[str],
    tables: Mapping[str, Mapping[str, Any]],
    users: UserStore | None,
    ring: KeyRing | None,
    http: HttpClient | None,
    clock: Clock,
    *,
    passwords: Passwords | None = None,
    base: Path | None = None,
    address_of: AddressOf = address,
) -> list[Scheme]:
    """The schemes, in the order of `names`. Paths in the tables are relative to `base`.

    `address_of` says where a request comes from, for the limits on wrong passwords.

    Raises:
        ConfigError: a name or a key is unknown, a value wrong, a needed one missing, or a file unreadable.
    """
    for name in (*names, *tables):
        if name not in _MAKERS:
            raise ConfigError(f"auth: there is no scheme `{name}`{_nearest(name, _MAKERS)}")
    for name in tables:
        if name not in names:
            raise ConfigError(f"[auth.{name}] is there and auth does not name it: add {name!r} to auth")
    parts = _Parts(users, ring, http, clock, passwords, base or Path(), address_of)
    return [_MAKERS[name](tables.get(name, {}), parts) for name in dict.fromkeys(names)]


def _read(name: str, table: Mapping[str, Any], kind: type[T]) -> T:
    known = msgspec.structs.fields(kind)  # type: ignore[arg-type]
    for key in table:
        if key not in [field.name for field in known]:
            raise ConfigError(
                f"[auth.{name}]: there is no setting `{key}`{_nearest(key, [field.name for field in known])}"
            )
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$.")
        raise ConfigError(f"[auth.{name}] {place.rstrip('`')}: {said}") from None


def _nearest(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(name, list(known), n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; there are {', '.join(known)}" if known else "; there are none"


def _need(value: T | None, name: str, what: str) -> T:
    if value is None:
        raise ConfigError(f"[auth.{name}] {what}")
    return value


def _users(name: str, parts: _Parts) -> UserStore:
    return _need(parts.users, name, "needs a store of users")


def _cookie(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("cookie", table, CookieConfig)
    check_word(config.name, "[auth.cookie] name")
    if not 0 < config.max_age <= 400 * 24 * 3600:  # browsers keep none longer
        raise ConfigError("[auth.cookie] max_age: must be seconds, more than 0 and at most 400 days")
    ring = _need(parts.ring, "cookie", "needs a secret: set DRAGOMAN_SECRET, or use a SQLite store, which has one")
    return CookieScheme(_users("cookie", parts), ring, parts.clock, cookie_name=config.name, max_age=config.max_age)


def _apikey(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("apikey", table, ApiKeyConfig)
    check_word(config.name, "[auth.apikey] name")
    return ApiKeyScheme(_users("apikey", parts), location=config.location, key_name=config.name)


def _basic(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    _read("basic", table, BasicConfig)
    passwords = parts.passwords or Passwords(_users("basic", parts), parts.clock)
    return BasicScheme(passwords, address_of=parts.address_of)


def _bearer(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("bearer", table, BearerConfig)
    sources = [each for each in (config.jwks_url, config.jwks_file, config.pem) if each is not None]
    users = _users("bearer", parts) if config.users else None
    if not sources:
        if config.audience or config.issuer:
            raise ConfigError("[auth.bearer] needs the issuer's keys: set jwks_url, jwks_file or pem")
        return BearerScheme(_need(users, "bearer", "users = false leaves nobody: set jwks_url, jwks_file or pem"))
    if len(sources) > 1:
        raise ConfigError("[auth.bearer] has several sources of keys: keep one of jwks_url, jwks_file and pem")
    if config.jwks_url is not None:
        source = _published("bearer", config.jwks_url, parts)
    elif config.jwks_file is not None:
        source = from_jwks_file(parts.base / config.jwks_file, "[auth.bearer] jwks_file")
    else:
        source = from_pem_file(parts.base / sources[0], "[auth.bearer] pem")
    return BearerScheme(users, _tokens("bearer", source, config, parts), scopes=config.scopes)


def _oauth2(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("oauth2", table, Oauth2Config)
    issuer = safe(_need(config.issuer, "oauth2", "needs issuer"), "[auth.oauth2] issuer")
    card = oauth2_card(config)
    if config.jwks_url is not None:
        source = _published("oauth2", config.jwks_url, parts)
    else:
        url = safe(config.metadata_url or metadata_url(issuer), "[auth.oauth2] metadata_url")
        source = FetchedKeys(_http("oauth2", parts), url, parts.clock, issuer)
    return IssuedTokenScheme("oauth2", _tokens("oauth2", source, config, parts), card, config.scopes)


def _oidc(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("oidc", table, OidcConfig)
    issuer = safe(_need(config.issuer, "oidc", "needs issuer"), "[auth.oidc] issuer")
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    if config.jwks_url is not None:
        source = _published("oidc", config.jwks_url, parts)
    else:
        source = FetchedKeys(_http("oidc", parts), url, parts.clock, issuer)
    card = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
    return IssuedTokenScheme("oidc", _tokens("oidc", source, config, parts), card, config.scopes)


def _mtls(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("mtls", table, MtlsConfig)
    store = _users("mtls", parts) if config.users else None
    return MtlsScheme(parts.clock, by=config.by, allow=frozenset(config.allow), users=config.users, store=store)


def _http(name: str, parts: _Parts) -> HttpClient:
    return _need(parts.http, name, "needs to fetch keys, and nothing is there to fetch with")


def _published(name: str, url: str, parts: _Parts) -> FetchedKeys:
    http = _http(name, parts)
    return FetchedKeys(http, safe(url, f"[auth.{name}] jwks_url"), parts.clock)


def _tokens(name: str, keys: IssuerKeys, config: TokenConfig, parts: _Parts) -> Tokens:
    """What judges the tokens of a scheme. Raises ConfigError for rules that are none."""
    _need(config.audience or None, name, "needs audience: the name by which the issuer's tokens mean this server")
    for scope in config.scopes:
        check_word(scope, f"[auth.{name}] scopes")
    for algorithm in config.algorithms:
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"[auth.{name}] algorithms: there is no `{algorithm}`{_nearest(algorithm, ALGORITHMS)}")
    if not 0 <= config.leeway <= 600:
        raise ConfigError(f"[auth.{name}] leeway: must be seconds, from 0 to 600")
    return Tokens(name, keys, config, parts.clock)


_MAKERS: dict[str, Callable[[Mapping[str, Any], _Parts], Scheme]] = {
    "cookie": _cookie,
    "bearer": _bearer,
    "apikey": _apikey,
    "basic": _basic,
    "oauth2": _oauth2,
    "oidc": _oidc,
    "mtls": _mtls,
}
NAMES = tuple(_MAKERS)
