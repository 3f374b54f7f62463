"""The A2A agents, as this server calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.client.client import Client
from dragoman.client.heard import Heard
from dragoman.mcp.problem import ToolProblem, card_failed
from dragoman.mcp.reach import Reach, origin_of
from dragoman.mcp.shapes import card_shape
from dragoman.model.error import DragomanError
from dragoman.model.json import decode_any
from dragoman.model.operation import Operation
from dragoman.model.request import ListTasksRequest, ListTasksResponse

if TYPE_CHECKING:
    from dragoman.mcp.options import McpOptions
    from dragoman.mcp.record import AgentRecord
    from dragoman.mcp.registry import Registry
    from dragoman.model.card import AgentCard
    from dragoman.server.remotes import Remote


class Fetched(NamedTuple):
    """A card, as it was read and as it was sent, and where that was."""

    card: AgentCard
    raw: dict[str, Any]
    body: bytes
    url: str


class Peers:
    """Finds agents by id, name or address, and keeps a client for each. Credentials come from the configuration."""

    def __init__(self, options: McpOptions, registry: Registry) -> None:
        self._options = options
        self._registry = registry
        self._clients: dict[str, Client] = {}
        self.reach = Reach((remote.url for remote in options.remotes.values()), options.allow)

    async def close(self) -> None:
        """Let go of all. Their tasks go on."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def resolve(self, base_url: str) -> AgentRecord:
        """Fetch an agent's card and note the agent. Raises ToolProblem."""
        address = self._address(base_url)
        fetched = await self.fetch(address)
        remote = self._remote(address)
        record = self._registry.seen(
            address,
            fetched.card.name,
            card_shape(fetched.card, fetched.raw),
            "bearer" if remote is not None and remote.name in self._options.tokens else None,
        )
        # What is known about how to call it may be out of date.
        former = self._clients.pop(record.agent_id, None)
        if former is not None:
            await former.close()
        return record

    async def fetch(self, base_url: str) -> Fetched:
        """An agent's card, fresh. Raises ToolProblem."""
        address = self._address(base_url)
        heard = Heard()
        async with self._new_client(address, heard) as client:
            try:
                card = await client.card()
            except DragomanError as error:
                raise card_failed(error, base_url) from error
        url, body = list(heard.bodies.items())[-1]
        raw: Any = decode_any(body)
        return Fetched(card, raw, body, url)

    async def known(self, agent_id: str) -> AgentRecord:
        """An agent by its id, its name, the name it is configured under, or its address.

        Raises:
            ToolProblem: there is none; or it has to be resolved first, and cannot be.
        """
        found = self._registry.agent(agent_id)
        if found is not None:
            return found
        remote = self._options.remotes.get(agent_id)
        if remote is not None or agent_id.startswith(("http://", "https://")):
            address = remote.url if remote is not None else agent_id
            return self._registry.agent(self._address(address)) or await self.resolve(address)
        raise ToolProblem(f"Agent not found: {agent_id}")

    def client(self, record: AgentRecord) -> Client:
        """How to call an agent."""
        client = self._clients.get(record.agent_id)
        if client is None:
            client = self._clients[record.agent_id] = self._new_client(self._address(record.base_url))
        return client

    async def page(self, record: AgentRecord, limit: int | None, token: str | None) -> ListTasksResponse:
        """A page of the tasks that an agent itself lists for us. Raises DragomanError."""
        connection = await self.client(record)._open()  # pyright: ignore[reportPrivateUsage]
        request = ListTasksRequest(page_size=min(limit, 100) if limit else None, page_token=token)
        result = await connection.perform(Operation.LIST, request)
        assert isinstance(result, ListTasksResponse)
        return result

    def configured(self) -> dict[str, str]:
        """The agents of the configuration: name and address."""
        return {remote.name: remote.url for remote in self._options.remotes.values()}

    def _address(self, base_url: str) -> str:
        remote = self._options.remotes.get(base_url)
        return remote.url.rstrip("/") if remote is not None else self.reach.check(base_url)

    def _remote(self, address: str) -> Remote | None:
        return next((each for each in self._options.remotes.values() if each.url.rstrip("/") == address), None)

    def _new_client(self, address: str, *interceptors: Any) -> Client:
        remote = self._remote(address)
        if remote is None:
            # Another path of a configured agent's origin is that agent still: its credentials are for the origin.
            remote = next((r for r in self._options.remotes.values() if origin_of(r.url) == origin_of(address)), None)
        token = None if remote is None else self._options.tokens.get(remote.name)
        return Client(
            address,
            auth=token,
            protocol=None if remote is None else remote.protocol,
            retries=2,
            verify=self._options.verify,
            interceptors=interceptors,
        )
