"""The schemes that the settings name, made from their tables `[auth.NAME]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from dragoman.auth.inbound import config_keys as keys
from dragoman.auth.inbound.apikey import ApiKeyScheme
from dragoman.auth.inbound.basic import BasicScheme
from dragoman.auth.inbound.bearer import BearerScheme
from dragoman.auth.inbound.cookie import MAX_AGE, NAME, CookieScheme
from dragoman.auth.inbound.issued import IssuedTokenScheme
from dragoman.auth.inbound.issuer_keys import safe
from dragoman.auth.inbound.mtls import By, MtlsScheme
from dragoman.auth.inbound.passwords import Passwords
from dragoman.auth.inbound.presented import AddressOf, address
from dragoman.auth.inbound.scheme import Scheme
from dragoman.auth.inbound.tokens import ALGORITHMS, TokenRules, Tokens
from dragoman.auth.inbound.users import UserStore
from dragoman.engine.clock import Clock
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError
from dragoman.net.exchange import HttpClient

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


class TokenConfig(Struct, frozen=True, kw_only=True):
    """What all tables for tokens have. `permissions` is the claim with the caller's permissions; else scopes count."""

    audience: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway: float = 60.0
    subject: str = "sub"
    permissions: str | None = None
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
    offered: dict[str, str] = {}
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
    keys.check_word(config.name, "[auth.cookie] name")
    if not 0 < config.max_age <= 400 * 24 * 3600:  # browsers keep none longer
        raise ConfigError("[auth.cookie] max_age: must be seconds, more than 0 and at most 400 days")
    ring = _need(parts.ring, "cookie", "needs a secret: set DRAGOMAN_SECRET, or use a SQLite store, which has one")
    return CookieScheme(_users("cookie", parts), ring, parts.clock, cookie_name=config.name, max_age=config.max_age)


def _apikey(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("apikey", table, ApiKeyConfig)
    keys.check_word(config.name, "[auth.apikey] name")
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
        source = keys.fetched(_http("bearer", parts), safe(config.jwks_url, "[auth.bearer] jwks_url"), parts.clock)
    elif config.jwks_file is not None:
        source = keys.from_jwks_file(parts.base / config.jwks_file, "[auth.bearer] jwks_file")
    else:
        source = keys.from_pem_file(parts.base / sources[0], "[auth.bearer] pem")
    tokens = Tokens("bearer", source, _rules("bearer", config), parts.clock)
    return BearerScheme(users, tokens, scopes=config.scopes)


def _oauth2(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("oauth2", table, Oauth2Config)
    issuer = safe(_need(config.issuer, "oauth2", "needs issuer"), "[auth.oauth2] issuer")
    card = keys.oauth2_card(config)
    if config.jwks_url is not None:
        source = keys.fetched(_http("oauth2", parts), safe(config.jwks_url, "[auth.oauth2] jwks_url"), parts.clock)
    else:
        url = config.metadata_url or keys.metadata_url(issuer)
        source = keys.discovered(_http("oauth2", parts), issuer, safe(url, "[auth.oauth2] metadata_url"), parts.clock)
    tokens = Tokens("oauth2", source, _rules("oauth2", config), parts.clock)
    return IssuedTokenScheme("oauth2", tokens, card, config.scopes)


def _oidc(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("oidc", table, OidcConfig)
    issuer = safe(_need(config.issuer, "oidc", "needs issuer"), "[auth.oidc] issuer")
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    http = _http("oidc", parts)
    if config.jwks_url is not None:
        source = keys.fetched(http, safe(config.jwks_url, "[auth.oidc] jwks_url"), parts.clock)
    else:
        source = keys.discovered(http, issuer, url, parts.clock)
    tokens = Tokens("oidc", source, _rules("oidc", config), parts.clock)
    card = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
    return IssuedTokenScheme("oidc", tokens, card, config.scopes)


def _mtls(table: Mapping[str, Any], parts: _Parts) -> Scheme:
    config = _read("mtls", table, MtlsConfig)
    store = _users("mtls", parts) if config.users else None
    return MtlsScheme(parts.clock, by=config.by, allow=frozenset(config.allow), users=config.users, store=store)


def _http(name: str, parts: _Parts) -> HttpClient:
    return _need(parts.http, name, "needs to fetch keys, and nothing is there to fetch with")


def _rules(name: str, config: TokenConfig) -> TokenRules:
    audience = _need(
        config.audience or None, name, "needs audience: the name by which the issuer's tokens mean this server"
    )
    for scope in config.scopes:
        keys.check_word(scope, f"[auth.{name}] scopes")
    for algorithm in config.algorithms:
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"[auth.{name}] algorithms: there is no `{algorithm}`{_nearest(algorithm, ALGORITHMS)}")
    if not 0 <= config.leeway <= 600:
        raise ConfigError(f"[auth.{name}] leeway: must be seconds, from 0 to 600")
    return TokenRules(
        audience=audience,
        issuer=config.issuer,
        scopes=config.scopes,
        algorithms=config.algorithms,
        leeway=config.leeway,
        subject=config.subject,
        permissions=config.permissions,
    )


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
