"""One agent of a server: its cards, its engine, and the endpoints over which it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.transports.jsonrpc.serve import jsonrpc_app
from dragoman.transports.rest.serve import rest_app

if TYPE_CHECKING:
    from dragoman.server.agent.agent import Agent
    from dragoman.server.cards.cache import Cards
    from dragoman.transports.endpoint import Endpoint


class HostedAgent:
    """One agent with its cards, engine and endpoints."""

    def __init__(self, agent: Agent, cards: Cards, endpoint: Endpoint) -> None:
        self.agent = agent
        self.cards = cards
        self.endpoint = endpoint
        self.service = endpoint.service
        self.rpc = jsonrpc_app(endpoint)
        self.rest = rest_app(endpoint)

    @property
    def needs_user(self) -> bool:
        """True when the path `/a2a` requires an authenticated caller, on a server with authentication."""
        operations = self.endpoint.plugin_operations
        return operations is not None and operations.needs_user
