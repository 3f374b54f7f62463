"""The A2A agents this MCP server calls: resolves and looks them up, and restricts which addresses are reachable."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dragoman.client.card_recorder import CardRecorder
from dragoman.client.cards import WELL_KNOWN, is_card_url
from dragoman.client.client import Client, open_connection
from dragoman.mcp.tools.content import card_to_json, complete_answers
from dragoman.mcp.tools.tool import ToolError, card_failed
from dragoman.model.error import AuthError, BadCard, CannotConnect, ConfigError, DragomanError
from dragoman.model.json import decode_any
from dragoman.model.operation import ListTasksRequest, ListTasksResponse, Operation
from dragoman.net.grpc.address import SCHEMES as GRPC_SCHEMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.mcp.registry import AgentRecord, Registry
    from dragoman.mcp.serve import McpOptions
    from dragoman.model.card import AgentCard
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
    from dragoman.server.config.remotes import Remote


_WEB_SCHEMES = ("http", "https")
_AGENT_SCHEMES = (*_WEB_SCHEMES, *GRPC_SCHEMES)


class ParsedAddress(NamedTuple):
    """A well-formed address from a tool's arguments, its host, and whether this server may call it."""

    url: str
    host: str
    is_allowed: bool


class AddressPolicy:
    """Decides which addresses tools may call: configured agents, this machine, and allowed hosts. Nothing else.

    Tool arguments come from a model, and prompt injection can choose them: an address among them must not give access
    to the local network (SSRF).
    """

    def __init__(self, agents: Iterable[str], allow: Iterable[str]) -> None:
        self._origins = {origin_of(agent) for agent in agents}
        self._allow = {each.lower().rstrip(".") for each in allow}

    def check(self, url: str) -> str:
        """Return the address without surrounding whitespace. Raises ToolError when it may not be called."""
        address = self.examine(url, _AGENT_SCHEMES)
        if not address.is_allowed:
            raise ToolError(
                f"{address.host} may not be called: only configured agents, this machine and allowed hosts may. "
                f"Ask the user to start the server with --allow {address.host}, or to add it under [remotes]"
            )
        return address.url

    def examine(self, url: str, schemes: Sequence[str] = _WEB_SCHEMES) -> ParsedAddress:
        """Return the address without surrounding whitespace. Raises ToolError when it is malformed."""
        url = url.strip()
        try:
            parts = urlsplit(url)
            scheme, host, port = origin_of(url)
        except ValueError:  # an invalid port, an unclosed bracket
            raise _bad_address(url) from None
        if "@" in parts.netloc:
            raise ToolError("credentials do not belong in an address: configure the agent under [remotes]")
        if scheme not in schemes or not host or not _is_plain(url):
            raise _bad_address(url)
        return ParsedAddress(url, host, self.allows(host, port) or (scheme, host, port) in self._origins)

    def allows(self, host: str, port: int | None) -> bool:
        """True for this machine, and for hosts on the allow list, with or without a port."""
        return is_loopback(host) or host in self._allow or f"{host}:{port}" in self._allow


def _is_plain(url: str) -> bool:
    return url.isprintable() and not any(each in url for each in ' \\"<>')


def _bad_address(url: str) -> ToolError:
    redacted = url.rpartition("@")[2][:200]
    return ToolError(f"{redacted!r} is no address of an agent: give one like https://agents.example.com")


def is_loopback(host: str) -> bool:
    """True for `localhost` and for loopback addresses.

    Names under `localhost` do not count: some resolvers ask the network for them.
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
    """Return scheme, host and port of a URL. Raises ValueError when it is malformed."""
    parts = urlsplit(url.strip())
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme.lower(), (parts.hostname or "").lower().rstrip("."), port


class OriginGuard:
    """An interceptor that passes only requests to the agent's own origin, or to addresses the policy allows.

    Messages are posted to the URL in the agent's card. The card's author must not be able to direct them into our
    network, or to another service on this machine, unless the agent itself runs on this machine.
    """

    def __init__(self, address: str, policy: AddressPolicy) -> None:
        self._origin = origin_of(address)
        self._policy = policy

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Pass a request on if its address is allowed. Raises CannotConnect."""
        try:
            self._check(request.url)
        except (ToolError, ValueError) as problem:
            text = f"the agent's card sends us elsewhere: {problem}"
            raise CannotConnect(text, reason="BAD_ADDRESS", arrived=False) from None
        return await call_next(request)

    def _check(self, url: str) -> None:
        origin = origin_of(url)
        if origin == self._origin or self._is_own_grpc(origin):
            return
        if is_loopback(origin[1]) and not is_loopback(self._origin[1]):
            raise ToolError("only an agent on this machine may name an address on this machine")
        self._policy.check(url)

    def _is_own_grpc(self, origin: tuple[str, str, int]) -> bool:
        """True for gRPC on the agent's own host, where it has a port of its own; not without the TLS of the agent."""
        is_weaker = origin[0] == "grpc" and self._origin[0] in ("https", "grpcs")
        return origin[0] in GRPC_SCHEMES and origin[1] == self._origin[1] and not is_weaker


_BOM = b"\xef\xbb\xbf"
# How many clients for outdated cards of one agent are kept open.
_MAX_RETIRED = 4


class CardDocument(NamedTuple):
    """A card as parsed, as JSON and as bytes, and its URL."""

    card: AgentCard
    raw: dict[str, Any]
    body: bytes
    url: str


class Peers:
    """Looks up agents by id, name or address and keeps a client for each. Credentials come from the configuration."""

    def __init__(self, options: McpOptions, registry: Registry) -> None:
        self._options = options
        self._registry = registry
        self._clients: dict[str, Client] = {}
        # Clients for cards that have changed: tasks may still be followed with them.
        self._retired: dict[str, list[Client]] = {}
        # Card URLs of agents that serve no valid card at the newer path.
        self._card_urls: dict[str, str] = {}
        self.policy = AddressPolicy((remote.url for remote in options.remotes.values()), options.allow)

    async def close(self) -> None:
        """Close all clients. Remote tasks continue."""
        clients = [*self._clients.values(), *(each for former in self._retired.values() for each in former)]
        self._clients, self._retired = {}, {}
        for client in clients:
            await client.close()

    async def resolve(self, base_url: str) -> AgentRecord:
        """Fetch an agent's card and register the agent. Raises ToolError."""
        address = self._address(base_url)
        document = await self.fetch(base_url)
        remote = self._remote(address)
        before = self._registry.agent_at(address)
        record = self._registry.register_agent(
            address,
            document.card.name,
            card_to_json(document.card, document.raw),
            "bearer" if remote is not None and remote.name in self._options.tokens else None,
        )
        if before is None or before.card != record.card:
            # The client was built for the old card.
            client = self._clients.pop(record.agent_id, None)
            if client is not None:
                retired = self._retired.setdefault(record.agent_id, [])
                retired.append(client)
                if len(retired) > _MAX_RETIRED:
                    await retired.pop(0).close()
        return record

    async def fetch(self, base_url: str) -> CardDocument:
        """Fetch an agent's card, bypassing the cache. Raises ToolError."""
        address = self._address(base_url)
        self._card_urls.pop(address, None)
        try:
            # The timeout covers the whole exchange: a card may arrive byte by byte.
            async with asyncio.timeout(self._options.answer_seconds):
                return await self._fetch_either_path(address)
        except TimeoutError:
            raise ToolError("Failed to resolve agent card: timeout") from None
        except DragomanError as error:
            raise card_failed(error, address if base_url in self._options.remotes else base_url) from error

    async def _fetch_either_path(self, address: str) -> CardDocument:
        try:
            return await self._fetch_document(address, address)
        except (BadCard, AuthError) as problem:
            older = address + WELL_KNOWN[1]
            if is_card_url(address):
                raise
            # The newer path may serve something that is not a card, or be forbidden, while the older one has it.
            try:
                document = await self._fetch_document(address, older)
            except DragomanError as error:
                # The cause, rather than what came of it.
                raise problem if isinstance(problem, AuthError) else error from None
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
        """Return an agent by its id, its name, its configured name, or its address; resolve it if needed.

        Raises:
            ToolError: there is no such agent, or it cannot be resolved.
        """
        record = self._registry.agents.get(agent_id)
        if record is not None:
            return record
        # Before names from cards: no agent can impersonate a configured one by its card's name.
        is_address = agent_id.strip().lower().startswith(("http://", "https://", "grpc://", "grpcs://"))
        if is_address or agent_id in self._options.remotes:
            return self._registry.agent_at(self._address(agent_id)) or await self.resolve(agent_id)
        record = self._registry.find_agent(agent_id)
        if record is None:
            raise ToolError(f"Agent not found: {agent_id}")
        return record

    def client(self, record: AgentRecord) -> Client:
        """Return the client for an agent. Raises ToolError when its address may not be called."""
        client = self._clients.get(record.agent_id)
        if client is None:
            address = self._address(record.base_url)
            client = self._new_client(address, self._card_urls.get(address, address))
            self._clients[record.agent_id] = client
        return client

    async def list_tasks(self, record: AgentRecord, limit: int | None, token: str | None) -> ListTasksResponse:
        """Return one page of the agent's own task list. Raises DragomanError."""
        connection = await open_connection(self.client(record))
        request = ListTasksRequest(page_size=min(limit, 100) if limit else None, page_token=token)
        result = await connection.perform(Operation.LIST, request)
        assert isinstance(result, ListTasksResponse)
        return result

    def configured_agents(self) -> dict[str, str]:
        """Return the configured agents: addresses by name."""
        return {remote.name: remote.url for remote in self._options.remotes.values()}

    def _address(self, base_url: str) -> str:
        remote = self._options.remotes.get(base_url)
        return (remote.url if remote is not None else self.policy.check(base_url)).rstrip("/")

    def _remote(self, address: str) -> Remote | None:
        """Return the configured agent whose credentials apply to this address: the same one, or the nearest parent."""
        remotes = self._options.remotes.values()
        exact = next((each for each in remotes if each.url.rstrip("/") == address), None)
        segments = _path_segments(address)
        if exact is not None or any(each.partition(";")[0] in (".", "..") for each in segments):
            return exact  # dot segments may lead to a sibling path
        origin, depth, nearest = origin_of(address), -1, None
        for remote in remotes:
            path = _path_segments(remote.url)
            is_above = origin_of(remote.url) == origin and segments[: len(path)] == path
            # With a query it is one of several agents at the same path.
            if is_above and len(path) > depth and "?" not in remote.url:
                depth, nearest = len(path), remote
        return nearest

    def _new_client(self, address: str, card_url: str, *interceptors: Any) -> Client:
        """Build a client for the agent at `address`, whose card is at `card_url`."""
        remote = self._remote(address)
        token = None if remote is None else self._options.tokens.get(remote.name)
        try:
            return Client(
                card_url,
                auth=token,
                protocol=None if remote is None else remote.protocol,
                retries=2,
                limit=self._options.remote_bytes,
                reconnect=self._options.reconnect,
                verify=self._options.verify,
                interceptors=(OriginGuard(address, self.policy), complete_answers, *interceptors),
            )
        except ConfigError as error:
            raise ToolError(str(error)) from None


def _path_segments(url: str) -> list[str]:
    """Return the path segments of a URL, without the well-known path of a card."""
    path = unquote(urlsplit(url).path).rstrip("/")
    for card in WELL_KNOWN:
        path = path.removesuffix(card)
    return path.split("/")[1:]
