"""The A2A agents, as this server calls them."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dragoman.client.client import Client
from dragoman.client.discovery import WELL_KNOWN, CardRecorder, is_card_url
from dragoman.mcp.tools.content import card_shape, complete_answers
from dragoman.mcp.tools.tool import ToolProblem, card_failed
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


class Reach:
    """The agents that were given or configured, this machine, and the hosts that were allowed. Nothing else.

    A model chooses the arguments of a tool, and whoever speaks to the model may choose them too: an address in there
    must not become a way into the network around us.
    """

    def __init__(self, agents: Iterable[str], allow: Iterable[str]) -> None:
        self._origins = {origin_of(agent) for agent in agents}
        self._allow = {each.lower().rstrip(".") for each in allow}

    def check(self, url: str) -> str:
        """The address without the space around it. Raises ToolProblem when it may not be called."""
        url = url.strip()
        try:
            parts = urlsplit(url)
            scheme, host, port = origin_of(url)
        except ValueError:  # a port that is none, a bracket that is not closed
            raise _no_address(url) from None
        if "@" in parts.netloc:
            raise ToolProblem("credentials do not belong into an address: configure the agent under [remotes]")
        if scheme not in ("http", "https") or not host or not _is_plain(url):
            raise _no_address(url)
        if not (self.allows(host, port) or (scheme, host, port) in self._origins):
            raise ToolProblem(
                f"{host} may not be called: only configured agents, this machine and allowed hosts may. "
                f"Ask the user to start the server with --allow {host}, or to add it under [remotes]"
            )
        return url

    def allows(self, host: str, port: int | None) -> bool:
        """True for this machine, and for hosts of the allow-list, with or without their port."""
        return is_loopback(host) or host in self._allow or f"{host}:{port}" in self._allow


def _is_plain(url: str) -> bool:
    return url.isprintable() and not any(each in url for each in ' \\"<>')


def _no_address(url: str) -> ToolProblem:
    shown = url.rpartition("@")[2][:200]
    return ToolProblem(f"{shown!r} is no address of an agent: give one like https://agents.example.com")


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


class Guard:
    """An interceptor that lets requests pass to the agent's own origin, and to what may be reached anyhow.

    A card names the address that messages are posted to. Whoever writes it must not choose any in our network, nor
    another service on this machine, unless it is on this machine itself.
    """

    def __init__(self, address: str, reach: Reach) -> None:
        self._origin = origin_of(address)
        self._reach = reach

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass, or not. Raises CannotConnect."""
        try:
            self._check(request.url)
        except (ToolProblem, ValueError) as problem:
            text = f"the agent's card sends us elsewhere: {problem}"
            raise CannotConnect(text, reason="BAD_ADDRESS", arrived=False) from None
        return await call_next(request)

    def _check(self, url: str) -> None:
        origin = origin_of(url)
        if origin == self._origin:
            return
        if is_loopback(origin[1]) and not is_loopback(self._origin[1]):
            raise ToolProblem("only an agent on this machine may name an address on this machine")
        self._reach.check(url)


_BOM = b"\xef\xbb\xbf"
# So many clients of an agent's former cards are kept.
_MOST_FORMER = 4


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
        # Clients of cards that have changed: somebody may still follow a task with them.
        self._former: dict[str, list[Client]] = {}
        # Where the card is, of agents whose newer path has something else.
        self._cards: dict[str, str] = {}
        self.reach = Reach((remote.url for remote in options.remotes.values()), options.allow)

    async def close(self) -> None:
        """Let go of all. Their tasks go on."""
        clients = [*self._clients.values(), *(each for former in self._former.values() for each in former)]
        self._clients, self._former = {}, {}
        for client in clients:
            await client.close()

    async def resolve(self, base_url: str) -> AgentRecord:
        """Fetch an agent's card and note the agent. Raises ToolProblem."""
        address = self._address(base_url)
        fetched = await self.fetch(address)
        remote = self._remote(address)
        before = self._registry.at(address)
        record = self._registry.seen(
            address,
            fetched.card.name,
            card_shape(fetched.card, fetched.raw),
            "bearer" if remote is not None and remote.name in self._options.tokens else None,
        )
        if before is None or before.card != record.card:
            # What is known about how to call it is out of date.
            client = self._clients.pop(record.agent_id, None)
            if client is not None:
                former = self._former.setdefault(record.agent_id, [])
                former.append(client)
                if len(former) > _MOST_FORMER:
                    await former.pop(0).close()
        return record

    async def fetch(self, base_url: str) -> Fetched:
        """An agent's card, fresh. Raises ToolProblem."""
        address = self._address(base_url)
        self._cards.pop(address, None)
        try:
            # All of it: a card may come drop by drop.
            async with asyncio.timeout(self._options.answer_seconds):
                return await self._found(address)
        except TimeoutError:
            raise ToolProblem("Failed to resolve agent card: timeout") from None
        except DragomanError as error:
            raise card_failed(error, base_url) from error

    async def _found(self, address: str) -> Fetched:
        try:
            return await self._fetched(address, address)
        except BadCard:
            older = address + WELL_KNOWN[1]
            if is_card_url(address):
                raise
            # The newer path may have something that is no card, while the older has one.
            found = await self._fetched(address, older)
            self._cards[address] = older
            return found

    async def _fetched(self, address: str, place: str) -> Fetched:
        recorder = CardRecorder()
        async with self._new_client(address, place, recorder) as client:
            card = await client.card()
        url, body = list(recorder.bodies.items())[-1]
        body = body.removeprefix(_BOM)
        raw: Any = decode_any(body)
        return Fetched(card, raw, body, url)

    async def known(self, agent_id: str) -> AgentRecord:
        """An agent by its id, its name, the name it is configured under, or its address.

        Raises:
            ToolProblem: there is none; or it has to be resolved first, and cannot be.
        """
        found = self._registry.agents.get(agent_id)
        if found is not None:
            return found
        # Before the names on cards: nobody takes the place of a configured agent by calling itself so.
        is_address = agent_id.strip().lower().startswith(("http://", "https://"))
        if is_address or agent_id in self._options.remotes:
            return self._registry.at(self._address(agent_id)) or await self.resolve(agent_id)
        found = self._registry.agent(agent_id)
        if found is None:
            raise ToolProblem(f"Agent not found: {agent_id}")
        return found

    def client(self, record: AgentRecord) -> Client:
        """How to call an agent."""
        client = self._clients.get(record.agent_id)
        if client is None:
            address = self._address(record.base_url)
            client = self._new_client(address, self._cards.get(address, address))
            self._clients[record.agent_id] = client
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
        return (remote.url if remote is not None else self.reach.check(base_url)).rstrip("/")

    def _remote(self, address: str) -> Remote | None:
        """The configured agent whose credentials are for this address: it is there, or nearest above."""
        remotes = self._options.remotes.values()
        exact = next((each for each in remotes if each.url.rstrip("/") == address), None)
        place = _place(address)
        if exact is not None or any(each.partition(";")[0] in (".", "..") for each in place):
            return exact  # a path with dots may lead to a neighbour
        origin, longest, found = origin_of(address), -1, None
        for remote in remotes:
            path = _place(remote.url)
            is_above = origin_of(remote.url) == origin and place[: len(path)] == path
            # With a query it is one of several at the same path.
            if is_above and len(path) > longest and "?" not in remote.url:
                longest, found = len(path), remote
        return found

    def _new_client(self, address: str, place: str, *interceptors: Any) -> Client:
        """A client for the agent at this address, whose card is at that place."""
        remote = self._remote(address)
        token = None if remote is None else self._options.tokens.get(remote.name)
        try:
            return Client(
                place,
                auth=token,
                protocol=None if remote is None else remote.protocol,
                retries=2,
                limit=self._options.remote_bytes,
                verify=self._options.verify,
                interceptors=(Guard(address, self.reach), complete_answers, *interceptors),
            )
        except ConfigError as error:
            raise ToolProblem(str(error)) from None


def _place(url: str) -> list[str]:
    """The segments of an address's path, without the path of a card."""
    path = unquote(urlsplit(url).path).rstrip("/")
    for card in WELL_KNOWN:
        path = path.removesuffix(card)
    return path.split("/")[1:]
