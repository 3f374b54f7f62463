"""Builds the connection for the target and options of a `Client`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from dragoman.auth.outbound.choose import credential_of
from dragoman.auth.outbound.credential import check_sendable
from dragoman.auth.outbound.place import is_token
from dragoman.client.cards import CardCache, CardReader, CardVerifier, grpc_rows, load_keys
from dragoman.client.connection import Connection, InProcess, Sender
from dragoman.client.interface import check_options, main_url
from dragoman.client.remote import RemoteConnection
from dragoman.clock import SystemClock
from dragoman.dialects.cards.card import read_card
from dragoman.model.card import AgentCard
from dragoman.model.error import ConfigError
from dragoman.model.json import decode_any, encode
from dragoman.net.exchange import MAX_RESPONSE, redact_url
from dragoman.net.grpc.address import SCHEMES as GRPC_SCHEMES
from dragoman.net.grpc.address import is_grpc
from dragoman.net.http_url import FRAMING
from dragoman.net.pem import PemContext

if TYPE_CHECKING:
    from dragoman.client.cards import Keys
    from dragoman.client.options import ClientOptions, Verify
    from dragoman.clock import Clock
    from dragoman.net.exchange import HttpClient

IN_PROCESS = "http://in-process"
_SCHEMES = ("http", "https", *GRPC_SCHEMES)
# Cards that anybody may see and their servers allow to keep, shared by all clients of this process.
SHARED_CARDS = CardCache(SystemClock())


def connect(options: ClientOptions, clock: Clock | None = None) -> Connection:
    """Return a connection to a URL, a card, an agent in this process or an ASGI app.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the card cannot be parsed.
    """
    check_options(options.protocol, options.transport)
    _check_limits(options)
    target, auth, timeout = options.target, options.auth, options.connect_timeout
    keys = load_keys(options.trust)
    needs_http = bool(options.protocol or options.transport or auth or options.headers or options.interceptors or keys)
    if isinstance(target, InProcess) and not needs_http:
        return target.in_process()
    extra_headers = _check_headers(options.headers)
    app = _asgi_app(target)
    _check_trust(keys, target, app)
    is_direct = isinstance(target, str) and is_grpc(target.strip())
    if app is not None:
        from dragoman.net.asgi import AsgiClient

        credential = credential_of(auth)
        http: HttpClient = AsgiClient(app, partial(_asgi_app, target))
        address: str | AgentCard = IN_PROCESS
        origin: str | None = None
    else:
        from dragoman.net.sockets import SocketClient

        address, auth = _parse_target(target, auth)
        origin = address if isinstance(address, str) else main_url(address) or IN_PROCESS
        credential = credential_of(auth)
        tls = _tls_verification(options.verify)
        client_tls = credential.ssl_context(tls) if credential is not None else None
        http = SocketClient(verify=tls if client_tls is None else client_tls, limit=options.limit or MAX_RESPONSE)
    sender = Sender(
        http, origin=origin, credential=credential, headers=extra_headers, interceptors=options.interceptors
    )
    # The shared cache serves only clients whose requests for a card would all look the same.
    shares_cache = (
        app is None
        and options.verify is True
        and credential is None
        and not extra_headers
        and not options.interceptors
        and clock is None
    )
    clock = clock or SystemClock()
    cache = CardCache(clock, SHARED_CARDS if shares_cache and keys is None else None)
    verifier = None if keys is None else CardVerifier(keys, sender, clock, timeout=timeout)
    given = None
    if verifier is not None and isinstance(address, AgentCard):
        # The card is verified before anything is sent to the addresses in it.
        raw_card = dict(target) if isinstance(target, Mapping) else target  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
        given, address = decode_any(encode(raw_card)), origin or IN_PROCESS
    rows = grpc_rows(options.protocol) if is_direct else ()
    cards = CardReader(sender, cache, timeout=timeout, verifier=verifier, given=given, grpc_rows=rows)
    return RemoteConnection(address, sender, cards, clock, options)


def _asgi_app(target: object) -> Any:
    if isinstance(target, InProcess):
        in_process: Any = target
        return in_process.app(store="memory:") if hasattr(in_process, "skills") else in_process.app()
    return target if callable(target) and not isinstance(target, type) else None


def _parse_target(target: object, auth: object) -> tuple[str | AgentCard, object]:
    """Return the URL or card to call, and the credentials: a URL may contain them."""
    if isinstance(target, AgentCard):
        return target, auth
    if isinstance(target, Mapping):
        return read_card(dict(target)), auth  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(target, str):
        return _parse_address(target, auth)
    raise ConfigError(
        f"a Client calls an address, a card, an Agent, a Server or an ASGI app, not {type(target).__name__!r}"
    )


def _parse_address(target: str, auth: object) -> tuple[str, object]:
    url = target.strip()
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts = host = port = None
    usable = parts is not None and parts.scheme in _SCHEMES and host and port != 0
    if not usable or not url.isprintable() or " " in url or "\\" in url:
        hint = f": write http://{url}" if url and "://" not in url and " " not in url else ""
        raise ConfigError(f"{redact_url(target) if '://' in target else target!r} is not the address of an agent{hint}")
    assert parts is not None
    if "@" not in parts.netloc:
        return url, auth
    if auth is not None:
        raise ConfigError(f"the address {redact_url(url)} names a user, and there is auth= too: leave one of them out")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), (user, password)


def _check_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (headers or {}).items():
        if not is_token(name):
            raise ConfigError(f"headers: {name!r} is not the name of a header")
        if name.lower() in FRAMING:
            raise ConfigError(f"headers: {name} is set by the HTTP client itself and cannot be overridden")
        # The value may be a secret: it stays out of the error.
        check_sendable(value, f"header {name}", ConfigError, may_be_empty=True)
    return dict(headers or {})


def _check_limits(options: ClientOptions) -> None:
    retries, limit, reconnect = options.retries, options.limit, options.reconnect
    for name, value in (("connect_timeout", options.connect_timeout), ("idle_timeout", options.idle_timeout)):
        if value is not None and not value > 0:
            raise ConfigError(f"{name} is seconds above 0, or None for no limit; not {value!r}")
    if retries < 0:
        raise ConfigError(f"retries is 0 or more, not {retries!r}")
    if limit is not None and limit <= 0:
        raise ConfigError(f"limit is bytes above 0, or None for no limit; not {limit!r}")
    if not reconnect >= 0:
        raise ConfigError(f"reconnect is seconds, 0 for not at all; not {reconnect!r}")


def _check_trust(keys: Keys | None, target: object, app: object) -> None:
    """Check that `trust` fits the target: trusting an origin, or keys at a URL, needs a card that is fetched."""
    if app is not None and (keys is True or isinstance(keys, str)):
        raise ConfigError("trust: for what runs in this process, give the keys themselves, as a dict or a file")
    if keys is not None and isinstance(target, str) and is_grpc(target):
        raise ConfigError("trust: a card that comes over gRPC has no signature: give the agent's https:// address")
    if keys is True and isinstance(target, (AgentCard, Mapping)):
        raise ConfigError("trust=True means the keys of where the card comes from, and this one was given: give keys")


def _tls_verification(verify: Verify) -> bool | ssl.SSLContext:
    if isinstance(verify, (bool, ssl.SSLContext)):
        return verify
    try:
        path = Path(verify)
        return PemContext.default(path)
    except (OSError, TypeError) as error:
        raise ConfigError(f"verify: the certificates in {verify} cannot be read: {error}") from None
