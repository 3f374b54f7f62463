"""One agent of a server: its cards, its engine, and the endpoints over which it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.transports.endpoint import JSON_LIMITS, Endpoint
from dragoman.transports.jsonrpc.serve import jsonrpc_app
from dragoman.transports.rest.serve import rest_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.dialects.reading.checks import JsonLimits
    from dragoman.engine.operations import Service
    from dragoman.engine.ports.webhooks import Outbox
    from dragoman.server.agent.agent import Agent
    from dragoman.server.cards.cache import Cards
    from dragoman.transports.endpoint import ExtendedCard, PluginOperations
    from dragoman.transports.limits import DenialLog
    from dragoman.webhooks.service import DeliveryService


class HostedAgent:
    """One agent with its cards, engine and endpoints."""

    def __init__(
        self,
        agent: Agent,
        cards: Cards,
        service_factory: Callable[[Outbox | None], Service],
        body_limit: int,
        *,
        blocking: bool,
        strict_files: bool = False,
        limits: JsonLimits = JSON_LIMITS,
        plugin_operations: PluginOperations | None = None,
    ) -> None:
        self.agent = agent
        self.cards = cards
        self._plugin_operations = plugin_operations
        self.needs_user = plugin_operations is not None and plugin_operations.needs_user
        self._service_factory = service_factory
        self._body_limit = body_limit
        self._blocking = blocking
        self._strict_files = strict_files
        self._limits = limits

    def rebuild(self, delivery: DeliveryService | None, extended: ExtendedCard | None, denials: DenialLog) -> None:
        """Build a new engine and its endpoints, before the server starts and for every further event loop."""
        self.delivery, self.service = delivery, self._service_factory(delivery)
        self.endpoint = endpoint = Endpoint(
            self.service,
            self.agent.extensions,
            body_limit=self._body_limit,
            blocking=self._blocking,
            strict_files=self._strict_files,
            limits=self._limits,
            denial_log=denials,
            plugin_operations=self._plugin_operations,
            extended_card=extended,
        )
        self.rpc = jsonrpc_app(endpoint)
        self.rest = rest_app(endpoint)
