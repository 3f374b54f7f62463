"""From what a user calls a target to a connection."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.auth.outbound.choose import credential_of
from dragoman.client.connection import Connection, InProcess
from dragoman.client.discovery import CardCache, Discovery
from dragoman.client.interfaces import check
from dragoman.client.remote import RemoteConnection
from dragoman.client.sender import Sender
from dragoman.dialects.cards import read_card
from dragoman.engine.clock import SystemClock
from dragoman.model.card import AgentCard
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock
    from dragoman.net.exchange import HttpClient, Interceptor

IN_PROCESS = "http://in-process"
Verify = bool | str | Path | ssl.SSLContext
# The cards that anybody could have asked for, shared by all clients of this process.
CARDS = CardCache(SystemClock())


def connect(
    target: object,
    *,
    auth: object = None,
    protocol: str | None = None,
    transport: str | None = None,
    connect_timeout: float | None = 10.0,
    idle_timeout: float | None = None,
    retries: int = 5,
    verify: Verify = True,
    headers: Mapping[str, str] | None = None,
    interceptors: Sequence[Interceptor] = (),
    clock: Clock | None = None,
) -> Connection:
    """A connection to an address, a card, an agent in this process or an ASGI app.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the card cannot be read.
    """
    check(protocol, transport)
    clock = clock or SystemClock()
    spoken = bool(protocol or transport or auth or headers or interceptors)
    if isinstance(target, InProcess) and not spoken:
        return target.in_process()
    credential = credential_of(auth)
    app = _app_of(target)
    if app is not None:
        from dragoman.net.asgi import AsgiClient

        http: HttpClient = AsgiClient(app)
        where: str | AgentCard = IN_PROCESS
    else:
        from dragoman.net.aio import AioClient

        where = _where(target)
        trust = _trust(verify)
        made = credential.ssl_context(trust) if credential is not None else None
        http = AioClient(verify=trust if made is None else made)
    origin = where if isinstance(where, str) else where.supported_interfaces[0].url
    sender = Sender(http, origin=origin, credential=credential, headers=headers, interceptors=interceptors)
    shared = app is None and verify is True and credential is None and not headers and not interceptors
    cache = CARDS if shared else CardCache(clock)
    return RemoteConnection(
        where,
        sender,
        Discovery(sender, cache, timeout=connect_timeout),
        clock,
        protocol=protocol,
        transport=transport,
        connect_timeout=connect_timeout,
        idle_timeout=idle_timeout,
        retries=retries,
    )


def _app_of(target: object) -> Any:
    if isinstance(target, InProcess):
        made: Any = target
        return made.app(store="memory:") if hasattr(made, "skills") else made.app()
    return target if callable(target) and not isinstance(target, type) else None


def _where(target: object) -> str | AgentCard:
    if isinstance(target, AgentCard):
        return target
    if isinstance(target, Mapping):
        return read_card(dict(target))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(target, str):
        url = target.strip()
        if url.startswith(("http://", "https://")) and len(url) > 8:
            return url
        hint = f": write http://{url}" if url and "://" not in url and " " not in url else ""
        raise ConfigError(f"{target!r} is not the address of an agent{hint}")
    raise ConfigError(
        f"a Client calls an address, a card, an Agent, a Server or an ASGI app, not {type(target).__name__!r}"
    )


def _trust(verify: Verify) -> bool | ssl.SSLContext:
    if isinstance(verify, (bool, ssl.SSLContext)):
        return verify
    path = Path(verify)
    try:
        return ssl.create_default_context(
            cafile=str(path) if path.is_file() else None, capath=str(path) if path.is_dir() else None
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"verify: the certificates in {verify} cannot be read: {error}") from None
