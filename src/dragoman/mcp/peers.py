"""The A2A agents, as this server calls them."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dragoman.client.client import Client
from dragoman.client.discovery import WELL_KNOWN, CardRecorder, is_card_url
from dragoman.mcp.tools.content import card_shape, complete_answers
from dragoman.mcp.tools.tool import ToolError, card_failed
from dragoman.model.error import BadCard, CannotConnect, ConfigError, DragomanError
from dragoman.model.json import decode_any
from dragoman.model.operation import ListTasksRequest, ListTasksResponse, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.mcp.registry import AgentRecord, Registry
    from dragoman.mcp.serve import McpOptions
    from dragoman.model.card import AgentCard
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
    from dragoman.server.config.remotes import Remote


class AddressPolicy:
    """The agents that were given or configured, this machine, and the hosts that were allowed. Nothing else.

    A model chooses the arguments of a tool, and whoever speaks to the model may choose them too: an address in there
    must not become a way into the network around us.
    """

    def __init__(self, agents: Iterable[str], allow: Iterable[str]) -> None:
        self._origins = {origin_of(agent) for agent in agents}
        self._allow = {each.lower().rstrip(".") for each in allow}

    def check(self, url: str) -> str:
        """The address without the space around it. Raises ToolError when it may not be called."""
        url = url.strip()
        try:
            parts = urlsplit(url)
            scheme, host, port = origin_of(url)
        except ValueError:  # a port that is none, a bracket that is not closed
            raise _bad_address(url) from None
        if "@" in parts.netloc:
            raise ToolError("credentials do not belong into an address: configure the agent under [remotes]")
        if scheme not in ("http", "https") or not host or not _is_plain(url):
            raise _bad_address(url)
        if not (self.allows(host, port) or (scheme, host, port) in self._origins):
            raise ToolError(
                f"{host} may not be called: only configured agents, this machine and allowed hosts may. "
                f"Ask the user to start the server with --allow {host}, or to add it under [remotes]"
            )
        return url

    def allows(self, host: str, port: int | None) -> bool:
        """True for this machine, and for hosts of the allow-list, with or without their port."""
        return is_loopback(host) or host in self._allow or f"{host}:{port}" in self._allow


def _is_plain(url: str) -> bool:
    return url.isprintable() and not any(each in url for each in ' \\"<>')


def _bad_address(url: str) -> ToolError:
    redacted = url.rpartition("@")[2][:200]
    return ToolError(f"{redacted!r} is no address of an agent: give one like https://agents.example.com")


def is_loopback(host: str) -> bool:
    """True for the name and the addresses of this machine.

    Names under `localhost` are not: it depends on the resolver where they lead, and some ask the network.
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address. Raises ValueError when it is none at all."""
    parts = urlsplit(url.strip())
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme.lower(), (parts.hostname or "").lower().rstrip("."), port


class OriginGuard:
    """An interceptor that lets requests pass to the agent's own origin, and to what may be reached anyhow.

    A card names the address that messages are posted to. Whoever writes it must not choose any in our network, nor
    another service on this machine, unless it is on this machine itself.
    """

    def __init__(self, address: str, policy: AddressPolicy) -> None:
        self._origin = origin_of(address)
        self._policy = policy

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass, or not. Raises CannotConnect."""
        try:
            self._check(request.url)
        except (ToolError, ValueError) as problem:
            text = f"the agent's card sends us elsewhere: {problem}"
            raise CannotConnect(text, reason="BAD_ADDRESS", arrived=False) from None
        return await call_next(request)

    def _check(self, url: str) -> None:
        origin = origin_of(url)
        if origin == self._origin:
            return
        if is_loopback(origin[1]) and not is_loopback(self._origin[1]):
            raise ToolError("only an agent on this machine may name an address on this machine")
        self._policy.check(url)


_BOM = b"\xef\xbb\xbf"
# So many clients of an agent's former cards are kept.
_MAX_RETIRED = 4


class CardDocument(NamedTuple):
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
        # Clients of cards that have changed: somebody may still follow a task with them.
        self._retired: dict[str, list[Client]] = {}
        # Where the card is, of agents whose newer path has something else.
        self._card_urls: dict[str, str] = {}
        self.policy = AddressPolicy((remote.url for remote in options.remotes.values()), options.allow)

    async def close(self) -> None:
        """Let go of all. Their tasks go on."""
        clients = [*self._clients.values(), *(each for former in self._retired.values() for each in former)]
        self._clients, self._retired = {}, {}
        for client in clients:
            await client.close()

    async def resolve(self, base_url: str) -> AgentRecord:
        """Fetch an agent's card and note the agent. Raises ToolError."""
        address = self._address(base_url)
        document = await self.fetch(address)
        remote = self._remote(address)
        before = self._registry.agent_at(address)
        record = self._registry.register_agent(
            address,
            document.card.name,
            card_shape(document.card, document.raw),
            "bearer" if remote is not None and remote.name in self._options.tokens else None,
        )
        if before is None or before.card != record.card:
            # What is known about how to call it is out of date.
            client = self._clients.pop(record.agent_id, None)
            if client is not None:
                retired = self._retired.setdefault(record.agent_id, [])
                retired.append(client)
                if len(retired) > _MAX_RETIRED:
                    await retired.pop(0).close()
        return record

    async def fetch(self, base_url: str) -> CardDocument:
        """An agent's card, fresh. Raises ToolError."""
        address = self._address(base_url)
        self._card_urls.pop(address, None)
        try:
            # All of it: a card may come drop by drop.
            async with asyncio.timeout(self._options.answer_seconds):
                return await self._fetch_either_path(address)
        except TimeoutError:
            raise ToolError("Failed to resolve agent card: timeout") from None
        except DragomanError as error:
            raise card_failed(error, base_url) from error

    async def _fetch_either_path(self, address: str) -> CardDocument:
        try:
            return await self._fetch_document(address, address)
        except BadCard:
            older = address + WELL_KNOWN[1]
            if is_card_url(address):
                raise
            # The newer path may have something that is no card, while the older has one.
            document = await self._fetch_document(address, older)
            self._card_urls[address] = older
            return document

    async def _fetch_document(self, address: str, card_url: str) -> CardDocument:
        recorder = CardRecorder()
        async with self._new_client(address, card_url, recorder) as client:
            card = await client.card()
        url, body = list(recorder.bodies.items())[-1]
        body = body.removeprefix(_BOM)
        raw: Any = decode_any(body)
        return CardDocument(card, raw, body, url)

    async def find_agent(self, agent_id: str) -> AgentRecord:
        """An agent by its id, its name, the name it is configured under, or its address.

        Raises:
            ToolError: there is none; or it has to be resolved first, and cannot be.
        """
        record = self._registry.agents.get(agent_id)
        if record is not None:
            return record
        # Before the names on cards: nobody takes the place of a configured agent by calling itself so.
        is_address = agent_id.strip().lower().startswith(("http://", "https://"))
        if is_address or agent_id in self._options.remotes:
            return self._registry.agent_at(self._address(agent_id)) or await self.resolve(agent_id)
        record = self._registry.agent_by_name(agent_id)
        if record is None:
            raise ToolError(f"Agent not found: {agent_id}")
        return record

    def client(self, record: AgentRecord) -> Client:
        """How to call an agent."""
        client = self._clients.get(record.agent_id)
        if client is None:
            address = self._address(record.base_url)
            client = self._new_client(address, self._card_urls.get(address, address))
            self._clients[record.agent_id] = client
        return client

    async def list_tasks(self, record: AgentRecord, limit: int | None, token: str | None) -> ListTasksResponse:
        """A page of the tasks that an agent itself lists for us. Raises DragomanError."""
        connection = await self.client(record)._open()  # pyright: ignore[reportPrivateUsage]
        request = ListTasksRequest(page_size=min(limit, 100) if limit else None, page_token=token)
        result = await connection.perform(Operation.LIST, request)
        assert isinstance(result, ListTasksResponse)
        return result

    def configured_agents(self) -> dict[str, str]:
        """The agents of the configuration: name and address."""
        return {remote.name: remote.url for remote in self._options.remotes.values()}

    def _address(self, base_url: str) -> str:
        remote = self._options.remotes.get(base_url)
        return (remote.url if remote is not None else self.policy.check(base_url)).rstrip("/")

    def _remote(self, address: str) -> Remote | None:
        """The configured agent whose credentials are for this address: it is there, or nearest above."""
        remotes = self._options.remotes.values()
        exact = next((each for each in remotes if each.url.rstrip("/") == address), None)
        segments = _path_segments(address)
        if exact is not None or any(each.partition(";")[0] in (".", "..") for each in segments):
            return exact  # a path with dots may lead to a neighbour
        origin, depth, nearest = origin_of(address), -1, None
        for remote in remotes:
            path = _path_segments(remote.url)
            is_above = origin_of(remote.url) == origin and segments[: len(path)] == path
            # With a query it is one of several at the same path.
            if is_above and len(path) > depth and "?" not in remote.url:
                depth, nearest = len(path), remote
        return nearest

    def _new_client(self, address: str, card_url: str, *interceptors: Any) -> Client:
        """A client for the agent at this address, whose card is at that place."""
        remote = self._remote(address)
        token = None if remote is None else self._options.tokens.get(remote.name)
        try:
            return Client(
                card_url,
                auth=token,
                protocol=None if remote is None else remote.protocol,
                retries=2,
                limit=self._options.remote_bytes,
                verify=self._options.verify,
                interceptors=(OriginGuard(address, self.policy), complete_answers, *interceptors),
            )
        except ConfigError as error:
            raise ToolError(str(error)) from None


def _path_segments(url: str) -> list[str]:
    """The segments of an address's path, without the path of a card."""
    path = unquote(urlsplit(url).path).rstrip("/")
    for card in WELL_KNOWN:
        path = path.removesuffix(card)
    return path.split("/")[1:]
