"""`dragoman doctor URL`: checks how well an agent conforms to A2A."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.auth.outbound.choose import credential_of
from dragoman.cli.doctor.interface import InterfaceChecker
from dragoman.cli.doctor.tls import check_tls
from dragoman.cli.printing import state_name
from dragoman.client.cards import WELL_KNOWN, is_card_url
from dragoman.client.connection import Sender
from dragoman.client.interface import interfaces_of
from dragoman.dialects.cards.card import parse_card
from dragoman.dialects.cards.rules.validate import card_problems
from dragoman.dialects.table import GRPC
from dragoman.model.error import BadCard, ConfigError, DragomanError
from dragoman.model.task import Task
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.net.grpc.address import is_grpc
from dragoman.net.grpc.library import has_grpc, no_grpc_error
from dragoman.net.sockets import SocketClient
from dragoman.stores.administration import HealthFinding
from dragoman.transports.sse import SseReader

if TYPE_CHECKING:
    from dragoman.cli.remote.session import CommandSession, Options
    from dragoman.client.client import Client
    from dragoman.client.event import Event
    from dragoman.client.interface import Interface
    from dragoman.model.card import AgentCard, AgentInterface
    from dragoman.net.exchange import HttpResponse

_PLACE = "A2A 1.0, 8.2: the card is at /.well-known/agent-card.json"
_OLD_PLACE = "A2A 0.2: the card is at /.well-known/agent.json"
_MEDIA = "Advice: a card is served as application/json"
_CACHING = "A2A 1.0, 8.6.1: a card is served with an ETag and with Cache-Control: max-age"
_CONDITIONAL = "RFC 9110, 13.1.2: a request with the current ETag in If-None-Match is answered 304"
_FIRST = "A2A 1.0, 3.1.2: a stream begins with a Task or a Message"
_MAX_AGE = re.compile(r"max-age\s*=\s*\"?\d", re.IGNORECASE)
# Seconds. A request that starts no work is answered at once.
_REPLY_TIMEOUT = 20.0
_MAX_BYTES = 4 * 1024 * 1024


async def check_agent(session: CommandSession, text: str | None) -> list[HealthFinding]:
    """Check an agent. Only `text` starts work: it is sent once and streamed once.

    Raises:
        ConfigError: the token cannot be sent, or no interface on the card has the protocol or transport of the options.
        BadCard: with these options, the card has no interface that is supported here.
    """
    client = ProbeClient(session.options)
    findings: list[HealthFinding] = []
    url = session.options.target.url
    try:
        if is_grpc(url):
            findings.append(await _ask_for_card(client, session.client))
        else:
            findings.append(await check_tls(url, session.options.verification()))
            findings += [finding async for finding in _check_discovery(client, url)]
        if client.card is not None:
            findings += await _check_interfaces(client, client.card, session.options)
            if text is not None:
                findings += [await _check_send(session.client, text), await _check_stream(session.client, text)]
    finally:
        await client.close()
    return findings


# -- probes ----------------------------------------------------------------------------------------------------------


class ProbeResponse(NamedTuple):
    """The response to a probe. For a stream, `body` is the data of the first event."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def media_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def summary(self) -> str:
        """Status and media type in a few words."""
        return f"HTTP {self.status}, {self.media_type or 'no content type'}"

    def json(self) -> Any:
        """Decode the body. Raises DecodeError or RecursionError when that is not possible."""
        return msgspec.json.decode(self.body)

    @property
    def is_json(self) -> bool:
        """True when the body is JSON."""
        try:
            self.json()
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


class ProbeClient:
    """Sends probes. Once `card` is set, it says how the credentials are sent."""

    def __init__(self, options: Options) -> None:
        self.card: AgentCard | None = None
        self._http = SocketClient(verify=options.verification())
        self._sender = Sender(
            self._http,
            origin=options.target.url,
            credential=credential_of(options.token),
            headers=options.headers,
            interceptors=options.interceptors(),
        )

    async def send(self, request: HttpRequest) -> ProbeResponse:
        """Send a request and read the response.

        Raises:
            CannotConnect: the connection fails.
            BadResponse: the response is a redirect, or too large.
            AuthError: the credentials cannot be obtained, or are not meant for that URL.
        """
        request.read_timeout = _REPLY_TIMEOUT
        start = time.perf_counter()
        response = await self._sender.send(request, self.card)
        streams = response.headers.get("Content-Type", "").startswith("text/event-stream")
        body = await _first_event(response) if streams else await response.read(_MAX_BYTES)
        return ProbeResponse(response.status, response.headers, body, time.perf_counter() - start)

    async def close(self) -> None:
        """Close every connection."""
        await self._http.close()


async def _first_event(response: HttpResponse) -> bytes:
    reader = SseReader()
    try:
        async for chunk in response.chunks():
            for data, _ in reader.feed(chunk):
                if data:
                    return bytes(data)
        return b""
    finally:
        await response.close()


# -- discovery -------------------------------------------------------------------------------------------------------


async def _check_discovery(client: ProbeClient, target: str) -> AsyncIterator[HealthFinding]:
    """Fetch the card from both well-known paths; the first valid one is set on the client."""
    base = target.partition("?")[0].partition("#")[0].rstrip("/")
    urls = [target] if is_card_url(target) else [base + path for path in WELL_KNOWN]
    responses: dict[str, ProbeResponse] = {}
    for url in urls:
        try:
            responses[url] = await client.send(_card_request(url))
        except DragomanError as error:
            yield HealthFinding("FAIL", "discovery", str(error))
            return
    for url, response in responses.items():
        yield _location_finding(url, response, responses)
    usable = [(url, reply) for url, reply in responses.items() if reply.status == 200]
    if not usable:
        return
    url, response = next(((url, reply) for url, reply in usable if reply.body.lstrip()[:1] == b"{"), usable[0])
    for problem in card_problems(response.body, url=url):
        level = "FAIL" if problem.level == "error" else "warn"
        yield HealthFinding(level, "card", f"{problem.field}: {problem.found}", problem.rule)
    try:
        client.card = parse_card(response.body)
    except BadCard as error:
        yield HealthFinding(
            "FAIL", "card", f"{error}, so the rest is not checked", "A2A 1.0, 4.4.1: what a card must have"
        )
        return
    yield HealthFinding("ok", "card", f"{client.card.name} {client.card.version}, {len(client.card.skills)} skills")
    async for finding in _check_caching(client, url, response):
        yield finding


async def _ask_for_card(client: ProbeClient, caller: Client) -> HealthFinding:
    """Ask a gRPC server for its card, which is set on the client; it has none for everybody."""
    try:
        client.card = await caller.card()
    except DragomanError as error:
        return HealthFinding("FAIL", "discovery", str(error))
    versions = ", ".join(each.protocol_version for each in client.card.supported_interfaces)
    return HealthFinding("ok", "discovery", f"{client.card.name} speaks {versions} there; a card is served over HTTP")


def _card_request(url: str, etag: str = "") -> HttpRequest:
    headers = {"Accept": "application/json"}
    if etag:
        headers["If-None-Match"] = etag
    return HttpRequest("GET", url, headers, operation="GetAgentCard")


def _location_finding(url: str, response: ProbeResponse, responses: dict[str, ProbeResponse]) -> HealthFinding:
    """Report whether there is a card at this URL, and whether there has to be one."""
    where = redact_url(url)
    if response.status == 200:
        return HealthFinding("ok", "discovery", f"{where}: found in {1000 * response.seconds:.0f} ms")
    elsewhere = any(other.status == 200 for other in responses.values())
    if url.endswith(WELL_KNOWN[1]) and elsewhere:
        return HealthFinding(
            "ok", "discovery", f"{where}: HTTP {response.status}, where callers before 0.3 look for the card"
        )
    old = url.endswith(WELL_KNOWN[1]) and len(responses) == 2
    return HealthFinding(
        "warn" if elsewhere else "FAIL", "discovery", f"{where}: HTTP {response.status}", _OLD_PLACE if old else _PLACE
    )


async def _check_caching(client: ProbeClient, url: str, response: ProbeResponse) -> AsyncIterator[HealthFinding]:
    """Check the content type and the cache headers of the card."""
    if not response.media_type.endswith("json"):
        yield HealthFinding(
            "warn", "discovery", f"the card is {response.media_type or 'without a content type'}", _MEDIA
        )
    control, etag = response.headers.get("Cache-Control", ""), response.headers.get("ETag", "")
    if not _MAX_AGE.search(control):
        says = f"Cache-Control is {control!r}" if control else "there is no Cache-Control"
        yield HealthFinding("warn", "discovery", says, _CACHING)
    if not etag:
        yield HealthFinding("warn", "discovery", "there is no ETag", _CACHING)
        return
    try:
        again = await client.send(_card_request(url, etag))
    except DragomanError as error:
        yield HealthFinding("FAIL", "discovery", f"asked again with its ETag: {error}", _CONDITIONAL)
        return
    if again.status == 304:
        yield HealthFinding("ok", "discovery", f"kept by its ETag, {control or 'for as long as callers like'}")
    else:
        yield HealthFinding("warn", "discovery", f"asked again with its ETag: HTTP {again.status}", _CONDITIONAL)


# -- interfaces ------------------------------------------------------------------------------------------------------


async def _check_interfaces(client: ProbeClient, card: AgentCard, options: Options) -> list[HealthFinding]:
    findings: list[HealthFinding] = []
    source = options.target.url
    if options.protocol or options.transport:
        chosen = interfaces_of(card, options.protocol, options.transport, source=source)[:1]
    else:
        chosen: list[Interface] = []
        for offered in card.supported_interfaces:
            try:
                # Each interface alone, so that none is skipped in favor of another.
                chosen.append(interfaces_of(replace(card, supported_interfaces=(offered,)), source=source)[0])
            except (BadCard, ConfigError) as error:
                findings.append(_unchecked(offered, error))
    for interface in chosen:
        findings += [finding async for finding in _checker(client, interface, card, options).findings()]
    return findings


def _unchecked(offered: AgentInterface, error: DragomanError) -> HealthFinding:
    """Report an interface that is not checked: what it takes is not installed, or it is not spoken here."""
    check = f"{offered.protocol_binding.lower()} {offered.protocol_version}"
    if offered.protocol_binding.upper() == GRPC and not has_grpc():
        return HealthFinding("warn", check, f"at {offered.url}: not checked: {no_grpc_error()}")
    return HealthFinding("ok", check, f"at {offered.url}: not checked, as it is not spoken here")


def _checker(client: ProbeClient, interface: Interface, card: AgentCard, options: Options) -> InterfaceChecker:
    if interface.binding.name != GRPC:
        return InterfaceChecker(client, interface, card)
    from dragoman.cli.doctor.grpc import GrpcChecker

    return GrpcChecker(client, interface, card, options.verification())


# -- work ------------------------------------------------------------------------------------------------------------


async def _check_send(client: Client, text: str) -> HealthFinding:
    start = time.perf_counter()
    try:
        result = await client.send(text)
    except DragomanError as error:
        return HealthFinding(
            "FAIL", "send", str(error), "A2A 1.0, 3.1.1: a message is answered with a Task or a Message"
        )
    kind = "a task" if isinstance(result, Task) else "a message"
    return HealthFinding(
        "ok", "send", f"{kind}, {state_name(result.state)}, in {1000 * (time.perf_counter() - start):.0f} ms"
    )


async def _check_stream(client: Client, text: str) -> HealthFinding:
    start, events = time.perf_counter(), 0
    first: Event | None = None
    began = 0.0
    stream = client.stream(text)
    try:
        async with aclosing(aiter(stream)) as arriving:
            async for event in arriving:
                if first is None:
                    first, began = event, time.perf_counter() - start
                events += 1
                if event.state.waiting:
                    break
    except DragomanError as error:
        return HealthFinding(
            "FAIL", "stream", str(error), "A2A 1.0, 3.1.2: a stream goes on until the task ends or asks"
        )
    state = state_name(stream.result.state)
    says = f"{events} events, the first after {1000 * began:.0f} ms, {state}"
    if first is not None and first.kind not in ("task", "message"):
        return HealthFinding("warn", "stream", f"{says}; it begins with an event of kind {first.kind}", _FIRST)
    return HealthFinding("ok", "stream", says)
