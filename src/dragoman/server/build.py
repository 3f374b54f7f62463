"""Composition root: builds the ASGI app of agents and settings. The one place that names concrete parts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dragoman import __version__
from dragoman.bus.local import LocalBus
from dragoman.clock import SystemClock
from dragoman.dialects.reading.checks import JsonLimits
from dragoman.engine.execute.threads import helper_threads, sample_threads, skill_threads
from dragoman.engine.journal.retention import Janitor, Retention
from dragoman.engine.operations import Service
from dragoman.engine.quota import MemoryQuota
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import ConfigError
from dragoman.net.grpc.library import no_grpc_error, quiet_grpc
from dragoman.net.guard import AddressGuard as AddressGuard
from dragoman.net.postgres import is_postgres_url
from dragoman.server.administration import open_users
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.cards.cache import Cards
from dragoman.server.cards.signing import CardSigning
from dragoman.server.config.memory_limit import memory_for
from dragoman.server.config.settings import WorkerSettings
from dragoman.server.config.store_url import parse_store
from dragoman.server.console import build_console
from dragoman.server.http.address import Addresses
from dragoman.server.http.app import App
from dragoman.server.http.authentication import Authentication, AuthSettings, SchemeAuthentication
from dragoman.server.http.cross_site import CrossSiteCheck
from dragoman.server.http.hosted import HostedAgent
from dragoman.server.http.lazy import LazyHttp, LazyKeys
from dragoman.server.http.limiter import Limiter
from dragoman.server.plugins import PluginContext, chosen_plugins, webhook_senders
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.transports.endpoint import Endpoint
from dragoman.webhooks.request import ISSUER
from dragoman.webhooks.service import DeliveryService

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.engine.ports.ownership import Ownership
    from dragoman.engine.ports.store import Store
    from dragoman.model.card import AgentCard
    from dragoman.model.user import User
    from dragoman.net.exchange import HttpClient
    from dragoman.server.agent.agent import Agent
    from dragoman.server.config.settings import Settings
    from dragoman.server.config.values import ListenAddress
    from dragoman.server.http.app import CallListener, MetricsExporter
    from dragoman.transports.http import Request
    from dragoman.webhooks.sender import WebhookSender

# How many agents may call each other in a row, unless a plug-in sets it.
_MAX_DEPTH = 3
# Where the console is, relative to the login page.
_HOME = "./"


logger = logging.getLogger("dragoman.server")
_NEED = (
    "need a key that all servers on one PostgreSQL have in common: set DRAGOMAN_SECRET to the same random text on "
    'each; python -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one'
)


class _Storage(NamedTuple):
    """A store, the bus that reaches all who use it, and who may write which task; None is this process alone.

    `samplers` set metrics.
    """

    store: Store
    bus: LocalBus
    ownership: Ownership | None = None
    samplers: tuple[Callable[[], None], ...] = ()


def open_store(url: str, clock: Clock | None = None, agents: Sequence[Agent] = ()) -> Store:
    """Create the store of a URL, which is not that of PostgreSQL, without opening it. Raises ConfigError."""
    path = parse_store(url)
    return MemoryStore(clock) if path is None else SqliteStore(path, clock, [agent.name for agent in agents])


def _open_storage(agents: Sequence[Agent], settings: Settings, clock: Clock, keys: LazyKeys) -> _Storage:
    """Create the store of a server and what belongs to it, without opening it. Raises ConfigError."""
    if not is_postgres_url(settings.store):
        return _Storage(open_store(settings.store, clock, agents), LocalBus(clock))
    # Imported here: most servers need neither these nor asyncpg, which may be missing.
    from dragoman.bus.postgres import PostgresBus
    from dragoman.stores.postgres.lease import NodeLease
    from dragoman.stores.postgres.sql.database import PostgresDatabase
    from dragoman.stores.postgres.sql.nodes import PostgresNodes
    from dragoman.stores.postgres.store import PostgresStore

    url = settings.store
    store = PostgresStore(
        PostgresDatabase(url),
        PostgresNodes(url),
        name=settings.node_name,
        agents=tuple(agent.name for agent in agents),
        version=__version__,
        keys=keys.fingerprints(),
        runs_limit=settings.limits.runs,
        lease=NodeLease(settings.lease),
        clock=clock,
        node_id=settings.node_id if isinstance(settings, WorkerSettings) else None,
        ended=settings.ended if isinstance(settings, WorkerSettings) else (),
    )
    ownership = store.ownership
    bus = PostgresBus(clock, url, store.generations, on_foreign=ownership.on_touched, on_work=ownership.on_work)
    ownership.connect(bus.announce_work, bus.notify)
    return _Storage(store, bus, ownership, (store.sample,))


def _without_secret(settings: Settings) -> Settings:
    """Return the settings of a server that shares its store and has no secret: it encrypts nothing, so no webhooks."""
    if settings.push:
        logger.warning("there are no webhooks: their credentials %s. --no-push ends this warning", _NEED)
    return msgspec.structs.replace(settings, push=False)


def _check_secret(agents: Sequence[Agent], settings: Settings) -> None:
    """Raise ConfigError when several servers need the same key, and there is none. The agents are open."""
    uses = {
        "signed cards": settings.sign,
        "logins": settings.auth is not None or _takes_cookies(agents, settings),
    }
    needed = [use for use, is_on in uses.items() if is_on]
    if needed:
        raise ConfigError(f"{' and '.join(needed)} {_NEED}")


def build(
    agents: Sequence[Agent], settings: Settings, *, store: Store | None = None, clock: Clock | None = None
) -> App:
    """Build the ASGI app: one store and one bus for all agents, an engine for each.

    Raises:
        ConfigError: a setting is wrong, there is no agent, or two agents have the same name.
    """
    if not agents:
        raise ConfigError("a server needs at least one agent")
    names = [agent.name for agent in agents]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two agents are called {name!r}: each needs its own name")
    for pool in (skill_threads(), helper_threads()):
        pool.resize(settings.limits.threads, shared=len(agents) > 1)
    clock = clock or SystemClock()
    lacks_secret = store is None and is_postgres_url(settings.store) and not settings.secret
    if lacks_secret:
        settings = _without_secret(settings)
    keys = LazyKeys(settings.secret, None if is_postgres_url(settings.store) else parse_store(settings.store))
    store_url = settings.store if store is None else None
    storage = _open_storage(agents, settings, clock, keys) if store is None else _Storage(store, LocalBus(clock))
    store, bus, ownership, samplers = storage
    home = settings.sessions
    extra = chosen_plugins(settings.compat)
    operations = [
        next(filter(None, (plugin.operations(agent, store, clock) for plugin in extra)), None) for agent in agents
    ]
    if settings.compat is not None and not any(operations):
        raise ConfigError(f"compat: {settings.compat} is for agents made of MCP tools, and there is none here")
    depths = [depth for plugin in extra if (depth := plugin.max_depth(os.environ)) is not None] or [_MAX_DEPTH]
    for agent in agents:
        if agent.backend.sessions is not None:
            agent.backend.sessions.configure(home, settings.limits.keep, depths[0])
    engine = settings.for_engine()
    refiners = [plugin.engine(store, clock) for plugin in extra]
    addresses = Addresses(settings.url, settings.trust_proxy, settings.grpc_url)
    signing = _signing(settings, keys) if settings.sign else None
    delivery = None
    if settings.push:
        delivery = _webhook_delivery(settings, storage, clock, keys, addresses, webhook_senders(agents))
    limits = settings.limits
    json_limits = JsonLimits(limits.nesting, limits.values, limits.parts)
    limiter = Limiter(limits, clock, addresses, MemoryQuota(*memory_for(limits, workers=settings.workers)))
    hosted: list[HostedAgent] = []
    for agent, own_operations in zip(agents, operations, strict=True):
        cards = Cards(
            agent,
            settings.card_version,
            clock.now(),
            push=settings.push,
            signing=signing,
            grpc=addresses.grpc,
            tenant="" if agent is agents[0] else agent.name,
            oldest=own_operations is not None,
        )
        refined = reduce(partial(_refine, agent), refiners, engine)
        endpoint = Endpoint(
            Service(EngineAgent(agent), store, bus, clock, refined, delivery, ownership=ownership),
            agent.extensions,
            body_limit=limits.body,
            blocking=settings.blocking,
            strict_files=settings.strict_files,
            limits=json_limits,
            denial_log=limiter.denials,
            plugin_operations=own_operations,
            extended_card=partial(_extended_card, cards, addresses),
        )
        hosted.append(HostedAgent(agent, cards, endpoint))
    retention = Retention(keep=limits.keep, keep_tasks=limits.keep_tasks, compact=limits.compact)
    cross_site = _cross_site(settings)
    janitor = Janitor(store, clock, retention)
    if all(agent.tools is None for agent in agents):  # else it is checked at the start, when the tools are known
        _check_console(agents, settings)
    context = PluginContext(hosted, bus, clock, limits.body, json_limits, limiter.denials, os.environ)
    return App(
        hosted,
        store,
        addresses,
        limiter,
        cross_site,
        janitor,
        authentication=partial(_authentication, agents, settings, keys, clock, addresses),
        bus=bus,
        check=partial(_check_secret, agents, settings) if lacks_secret else None,
        delivery=delivery,
        keys=keys,
        grpc_factory=None if settings.grpc is None else _grpc_factory(settings),
        metrics=None if settings.metrics is None else _metrics_exporter(settings, settings.metrics),
        extra=[routes for plugin in extra if (routes := plugin.routes(context)) is not None],
        console=build_console(
            settings, hosted, store, delivery, clock, addresses, store_url=store_url, shared=ownership is not None
        ),
        watches_loop=isinstance(clock, SystemClock),
        samplers=(sample_threads, bus.sample, *samplers),
    )


def _grpc_factory(settings: Settings) -> Callable[[App], CallListener]:
    """Return what makes the listener of gRPC. Raises ConfigError when the extra is missing."""
    quiet_grpc()
    try:
        from dragoman.server.listen.grpc import GrpcListener
    except ImportError:
        raise no_grpc_error("grpc") from None
    return partial(GrpcListener, settings=settings, shared=isinstance(settings, WorkerSettings))


def _metrics_exporter(settings: Settings, address: ListenAddress) -> MetricsExporter:
    # Imported here, because it takes prometheus_client, which takes longer than all that most servers need.
    from dragoman.server.listen.metrics import MetricsListener, WorkerMetrics

    if isinstance(settings, WorkerSettings):
        return WorkerMetrics(settings.metrics_file, address)
    return MetricsListener(address, hosts=_cross_site(settings))


def _cross_site(settings: Settings) -> CrossSiteCheck:
    return CrossSiteCheck(settings.url, settings.allow_hosts, settings.cors, open_list=settings.open_list)


def _refine(
    agent: Agent, settings: EngineSettings, refine: Callable[[Agent, EngineSettings], EngineSettings]
) -> EngineSettings:
    return refine(agent, settings)


def _takes_cookies(agents: Sequence[Agent], settings: Settings) -> bool:
    """True where callers can log in although `auth` is not set."""
    return settings.compat is not None or any(skill.permission for agent in agents for skill in agent.skills)


def _check_console(agents: Sequence[Agent], settings: Settings) -> None:
    """Raise ConfigError when the console is for users, and nobody can be one."""
    if settings.console == "auth" and settings.auth is None and not _takes_cookies(agents, settings):
        raise ConfigError(
            "console: nobody can sign in here: set auth, as with --auth cookie, or leave out --console auth"
        )


def _extended_card(cards: Cards, addresses: Addresses, request: Request, user: User | None) -> AgentCard | None:
    """Return the card for an authenticated caller; None on a server without authentication."""
    if not cards.has_extended:
        return None
    base = addresses.base(request) + request.prefix
    return cards.sign(cards.extended_card(base, user), request, base)


def _authentication(
    agents: Sequence[Agent], settings: Settings, keys: LazyKeys, clock: Clock, addresses: Addresses
) -> Authentication | None:
    auth = settings.auth
    if auth is not None and not isinstance(auth, AuthSettings):
        return Authentication(auth)
    # A skill that needs a permission enables the cookie scheme, and so does `compat`; other skills stay open to anyone.
    allow_anonymous = auth is None
    if allow_anonymous:
        _check_console(agents, settings)
        if not _takes_cookies(agents, settings):
            return None
        auth = AuthSettings(("cookie",))

    def http() -> HttpClient:
        from dragoman.net.sockets import SocketClient

        return SocketClient()

    users = partial(open_users, settings.store, clock)
    return SchemeAuthentication(
        auth,
        users,
        keys,
        clock,
        LazyHttp(http),
        address_of=addresses.caller,
        allow_anonymous=allow_anonymous,
        home=None if settings.console == "off" else _HOME,
    )


def _signing(settings: Settings, keys: LazyKeys) -> CardSigning:
    return CardSigning(keys, url=settings.url, host=settings.host, version=settings.card_version)


def _webhook_delivery(
    settings: Settings,
    storage: _Storage,
    clock: Clock,
    keys: LazyKeys,
    addresses: Addresses,
    senders: Mapping[str, WebhookSender],
) -> DeliveryService:
    guard = AddressGuard(settings.push_allow)

    def http() -> HttpClient:
        from dragoman.net.aio import AioClient

        return AioClient(guard=guard)

    client = LazyHttp(http)

    def warm() -> None:
        keys.prepare()  # first: registering a webhook waits for them
        client.prepare()

    return DeliveryService(
        storage.store,
        storage.bus,
        clock,
        client,
        keys,
        guard,
        signer=keys,
        issuer=addresses.own or ISSUER,
        chunks=settings.push_chunks,
        warm=warm,
        senders=senders,
        ownership=storage.ownership,
    )
