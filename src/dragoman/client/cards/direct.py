"""The card of a server that is given by its gRPC address: it has none over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from dragoman.client.discovery import Discovery, ResolvedCard
from dragoman.dialects.negotiate import dialect_of
from dragoman.dialects.table import GRPC, GRPC_ROWS, Row, row_of
from dragoman.dialects.v1.dialect import V1_0
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.error import CannotConnect, ConfigError, DragomanError, MethodNotFound, Overloaded, ServerError
from dragoman.model.operation import GetExtendedAgentCardRequest, Operation
from dragoman.net.grpc.address import grpc_url
from dragoman.net.grpc.library import has_grpc, no_grpc_error
from dragoman.transports.grpc.call import GrpcBinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.client.connection import Sender
    from dragoman.client.discovery import CardCache

_MAX_CARD_BYTES = 4 * 1024 * 1024


class GrpcDiscovery(Discovery):
    """Asks a gRPC server for its card. One that does not show it is called as if it had everything.

    The address is `grpc://host:port` or `grpcs://host:port`, with the tenant as its path where the server has several
    agents. Of the card, only the interfaces over gRPC count, and they are at this address, whatever the card says.
    """

    def __init__(self, sender: Sender, cache: CardCache, *, timeout: float | None, protocol: str | None) -> None:
        """Raises ConfigError when gRPC is not installed, or this version of A2A has none."""
        super().__init__(sender, cache, timeout=timeout)
        if not has_grpc():
            raise no_grpc_error()
        if protocol is not None and dialect_of(protocol, GRPC) is None:
            raise ConfigError(f"A2A {protocol} has no gRPC: leave protocol out, or call the agent's http:// address")
        self._rows = GRPC_ROWS if protocol is None else (row_of(protocol, GRPC),)

    async def find(self, target: str) -> ResolvedCard:
        """Return the card of the agent.

        Raises:
            CannotConnect: the server cannot be reached.
            Overloaded: the server limits the rate of requests.
        """
        cached = self._cache.fresh(target)
        if cached is not None and not (self._public_only and cached.is_private):
            return cached
        url, tenant = grpc_url(target, secure=False), unquote(urlsplit(target).path.strip("/")) or None
        card, spoken = await self._ask_all(url, tenant)
        if card is None:
            # A server may have all but this method.
            return _resolved(_assumed_card(url, spoken or self._rows, tenant), target)
        resolved = _resolved(_with_address(card, url, spoken, tenant), target)
        resolved = resolved._replace(is_private=self._sender.credential is not None)
        if not (resolved.is_private and self._public_only):
            self._cache.store(target, resolved, "", "")
        return resolved

    async def _ask_all(self, url: str, tenant: str | None) -> tuple[AgentCard | None, list[Row]]:
        """Ask for the card in one package after the other. Returns it, if there is one, and what the server speaks."""
        spoken: list[Row] = []
        for row in self._rows:
            try:
                card = await self._ask(url, row, tenant)
            except MethodNotFound:
                continue
            except (CannotConnect, Overloaded, ServerError):
                raise
            except DragomanError:  # it speaks this version, and has no card for us: perhaps in the other
                spoken.append(row)
            else:
                return card, [*spoken, row]
        return None, spoken

    async def _ask(self, url: str, row: Row, tenant: str | None) -> AgentCard:
        dialect = dialect_of(row.version, GRPC)
        assert dialect is not None
        binding, operation = GrpcBinding(url, dialect), Operation.EXTENDED_CARD
        request = binding.build_request(operation, GetExtendedAgentCardRequest(tenant))
        request.connect_timeout = request.read_timeout = self._timeout
        response = await self._sender.send(request)
        body = await response.read(_MAX_CARD_BYTES)
        card = binding.read_result(operation, response.status, response.headers, body)
        assert isinstance(card, AgentCard)
        return card


def _with_address(card: AgentCard, url: str, spoken: Sequence[Row], tenant: str | None) -> AgentCard:
    """Return a card whose interfaces are at this address: in what the server speaks, and what it names for gRPC."""
    named = [each.protocol_version for each in card.supported_interfaces if each.protocol_binding.upper() == GRPC]
    versions = dict.fromkeys([*(row.version for row in spoken), *named])
    interfaces = tuple(AgentInterface(url, GRPC, version, tenant) for version in versions)
    return replace(card, supported_interfaces=interfaces)


def _assumed_card(url: str, rows: Sequence[Row], tenant: str | None) -> AgentCard:
    return AgentCard(
        name=url.partition("://")[2],
        description="",
        version="",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supported_interfaces=tuple(AgentInterface(url, GRPC, row.version, tenant) for row in rows),
        default_input_modes=(),
        default_output_modes=(),
        skills=(),
    )


def _resolved(card: AgentCard, target: str) -> ResolvedCard:
    return ResolvedCard(card, V1_0.write_result(Operation.EXTENDED_CARD, card), target)
