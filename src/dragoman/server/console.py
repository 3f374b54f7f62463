"""Builds the console of a server: who may see it, and the parts of its API."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dragoman import __version__
from dragoman.console.access import ConsoleAccess
from dragoman.console.api import ANY, ApiRoute
from dragoman.console.server.view import ServerView, WatchedStore
from dragoman.console.tasks.view import TasksView
from dragoman.engine.execute.threads import in_thread
from dragoman.engine.ports.store import ScopeFilter
from dragoman.net.postgres import is_postgres_url
from dragoman.server.administration import open_administration
from dragoman.server.http.console import ConsoleSettings
from dragoman.server.http.pages import AGENTS, CARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.clock import Clock
    from dragoman.console.access import Viewer
    from dragoman.engine.ports.store import Store
    from dragoman.model.user import User
    from dragoman.server.config.settings import Settings
    from dragoman.server.http.address import Addresses
    from dragoman.server.http.hosted import HostedAgent
    from dragoman.transports.http import Request
    from dragoman.webhooks.service import DeliveryService


def build_console(
    settings: Settings,
    hosted: Sequence[HostedAgent],
    store: Store,
    delivery: DeliveryService | None,
    clock: Clock,
    addresses: Addresses,
    *,
    store_url: str | None,
    shared: bool,
) -> ConsoleSettings | None:
    """Build the console of a server; None when it is off.

    `store_url` is None for a store that is not that of the settings. `shared` says that other servers use it too.
    """
    if settings.console == "off":
        return None
    view = ServerView(
        _watched_store(store_url, store, shared=shared),
        clock,
        node=settings.node_name,
        version=__version__,
        services=[each.service for each in hosted],
        delivery=delivery,
    )
    routes = [
        *_tasks_view(hosted, store, delivery).routes(),
        *_call_routes(hosted, addresses),
        ApiRoute("GET", ("server",), "admin", view.show),
    ]
    return ConsoleSettings(ConsoleAccess(settings.console, settings.console_token), routes, view)


def _tasks_view(hosted: Sequence[HostedAgent], store: Store, delivery: DeliveryService | None) -> TasksView:
    def wake_webhooks() -> None:
        if delivery is not None:
            delivery.wake()

    cancelers = {each.agent.name: each.service.canceler for each in hosted}
    return TasksView(store, cancelers, on_woken=wake_webhooks)


def _call_routes(hosted: Sequence[HostedAgent], addresses: Addresses) -> list[ApiRoute]:
    names = [each.agent.name for each in hosted]

    # Imported when somebody asks: the messages of gRPC and the rules of cards take long.
    async def show_calls(viewer: Viewer, request: Request, segments: Sequence[str]) -> Any:
        calls = await in_thread(import_module, "dragoman.console.calls")
        return await calls.CallsView(names, addresses.base, addresses.grpc).show(viewer, request, segments)

    async def show_cards(viewer: Viewer, request: Request, segments: Sequence[str]) -> Any:
        cards = await in_thread(import_module, "dragoman.console.cards")
        served = {each.agent.name: partial(_served_card, each, addresses) for each in hosted}
        return await cards.CardsView(served).show(viewer, request, segments)

    return [
        ApiRoute("POST", ("calls",), "public", show_calls),
        ApiRoute("GET", ("cards", ANY), "public", show_cards),
    ]


def _served_card(hosted: HostedAgent, addresses: Addresses, request: Request, user: User | None) -> tuple[str, bytes]:
    """Return the URL of an agent's card, and the card as it is there."""
    root, prefix = addresses.base(request), f"{AGENTS}{quote(hosted.agent.name, safe='')}"
    return f"{root}{prefix}{CARD}", hosted.cards.body_for(request, root, prefix, user)


def _watched_store(url: str | None, store: Store, *, shared: bool) -> WatchedStore:
    administration = None if url is None else open_administration(url)
    if url is None or administration is None:
        kind = "custom" if store.durable else "memory"
    else:
        kind = "postgresql" if is_postgres_url(url) else "sqlite"
    return WatchedStore(kind, administration, lambda: store.counts(ScopeFilter()), shared=shared)
