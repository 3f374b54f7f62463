"""Agent cards: built from the agent, written for the caller's version, cached by URL."""

from __future__ import annotations

import hashlib
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.agents.functions.skill import Skill
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.cards.v01 import plain_card
from dragoman.dialects.table import (
    CARD_FORMATS,
    CARD_ROWS,
    GRPC_CARD_ROWS,
    V1_0,
    VERSION_HEADER_RECEIVED,
    CardVersion,
    card_version_of,
)
from dragoman.model.card import SKILL_SCHEMAS, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill
from dragoman.model.error import BadCard, ConfigError
from dragoman.server.http.authentication import OPEN, Security
from dragoman.server.plugins import add_card_members, describe_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dragoman.agents.functions.skill import Offer
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.server.cards.signing import CardSigning
    from dragoman.transports.http import Header, Request

CARD, OLD_CARD = "/.well-known/agent-card.json", "/.well-known/agent.json"
SCHEMAS = "/.well-known/skill-schemas.json"
# Where the card says that the agent is, apart from the root.
_CARD_PATHS = tuple(dict.fromkeys(row.card_path for row in CARD_ROWS if row.card_path))
MAX_AGE = 300
CACHE_SIZE = 64
_MODES = ("text/plain", "application/json")
_SCHEMAS_DESCRIPTION = "JSON schemas of what the skills take and give, by skill id"


class CachedCard(NamedTuple):
    """The body of a card, and its ETag."""

    body: bytes
    etag: bytes


def offers_for(agent: Agent, user: User | None) -> list[Offer]:
    """Return the skills this caller may use: those that need a permission only if the caller has it."""
    permissions = user.permissions if user else frozenset[str]()
    return [offer for offer in agent.skills if offer.permission is None or offer.permission in permissions]


def schemas_of(agent: Agent, offers: Sequence[Offer]) -> dict[str, Any]:
    """Return the JSON schemas of these skills by id, for those that have one."""
    tools = [offer.id for offer in offers if not isinstance(offer, Skill)]
    schemas: dict[str, Any] = {} if agent.tools is None else dict(agent.tools.schemas(tools))
    functions = ((offer.id, offer.schemas()) for offer in offers if isinstance(offer, Skill))
    return schemas | {name: schema for name, schema in functions if schema}


def describe(agent: Agent) -> str:
    """Return the description of an agent: its own, that of its MCP server, else its name."""
    own = "" if agent.tools is None else agent.tools.about.description
    return describe_agent(agent, agent.description or own or agent.name)


def build_card(
    agent: Agent,
    base: str,
    user: User | None = None,
    *,
    push: bool = False,
    security: Security = OPEN,
    extended: bool = False,
    linked: bool = False,
    grpc: str | None = None,
    tenant: str = "",
    oldest: bool = False,
) -> AgentCard:
    """Build the agent's card for a URL. Schemas of skills are on it, or behind a link if `linked`.

    `grpc` is the address of gRPC, if it is served. There, `tenant` tells the agents of a server apart. With `oldest`,
    `/a2a` is for callers with credentials only.
    """
    offers = offers_for(agent, user)
    own_name, _, own_version = ("", "", "") if agent.tools is None else agent.tools.about
    extensions = agent.extensions
    schemes, requirements = security
    needs_user = oldest and bool(schemes) and not requirements
    if agent.tools is not None or any(isinstance(offer, Skill) for offer in offers):
        params = _link(base) if linked else {"schemas": schemas_of(agent, offers)}
        extensions = (*extensions, AgentExtension(SKILL_SCHEMAS, _SCHEMAS_DESCRIPTION, params=params))
    return AgentCard(
        name=own_name or agent.name,
        description=describe(agent),
        supported_interfaces=(
            *(
                AgentInterface(base if needs_user else base + row.card_path, row.binding, row.version)
                for row in CARD_ROWS
            ),
            *(_grpc_interfaces(grpc, tenant) if grpc else ()),
        ),
        version=agent.version or own_version or "0.1.0",
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=push, extensions=extensions, extended_agent_card=extended
        ),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=tuple(_complete(offer.card(), agent.name) for offer in offers),
        security_schemes=schemes or None,
        security_requirements=tuple(requirements),
    )


def _grpc_interfaces(address: str, tenant: str) -> Iterator[AgentInterface]:
    for row in GRPC_CARD_ROWS:
        if row.tenants or not tenant:  # a version without tenants has no way to name an agent
            yield AgentInterface(address, row.binding, row.version, tenant=tenant or None)


def _complete(skill: AgentSkill, tag: str) -> AgentSkill:
    """Return a skill with at least one tag, as A2A requires, and with modes, which some readers want of every skill."""
    return replace(
        skill,
        tags=skill.tags or (tag,),
        input_modes=skill.input_modes or _MODES,
        output_modes=skill.output_modes or _MODES,
    )


def _link(base: str) -> dict[str, Any]:
    return {"url": base + SCHEMAS}


def _with_link(card: AgentCard, base: str) -> AgentCard:
    """Replace the schemas on a card by a link to them."""
    capabilities = card.capabilities
    extensions = (
        replace(each, params=_link(base)) if each.uri == SKILL_SCHEMAS else each for each in capabilities.extensions
    )
    return replace(card, capabilities=replace(capabilities, extensions=tuple(extensions)))


class Cards:
    """Serves the card of one agent, in the format of each path, and the schemas of its skills."""

    def __init__(
        self,
        agent: Agent,
        version: CardVersion,
        started_ms: int,
        *,
        push: bool = False,
        signing: CardSigning | None = None,
        grpc: Callable[[str], str | None] = lambda _: None,
        tenant: str = "",
        oldest: bool = False,
    ) -> None:
        self._agent = agent
        self._version: CardVersion = version
        self._push = push
        self.signing = signing
        self._grpc = grpc
        self._tenant = tenant
        self._oldest = oldest
        self._security: Security = OPEN
        self.has_extended = False
        self._modified_seconds = started_ms // 1000
        self._modified = formatdate(self._modified_seconds, usegmt=True).encode()
        self._cache: dict[tuple[Any, ...], CachedCard] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The public paths of the agent's card and schemas.

        The card is also below the URL that it names: some callers keep that URL, and look for the card there.
        """
        return (CARD, OLD_CARD, SCHEMAS, *(below + path for below in _CARD_PATHS for path in (CARD, OLD_CARD)))

    def check(self) -> None:
        """Check at startup that the card can be signed, if it should be.

        Raises:
            ConfigError: it cannot, or the keys cannot be read.
        """
        if self.signing is None:
            return
        try:
            self._build(CARD, self._version, "http://localhost", "http://localhost", None)
        except BadCard as error:
            raise ConfigError(f"sign: {self._agent.name!r}: {error}") from None

    def set_security(self, security: Security) -> None:
        """Put the security schemes on the card, and that there is an extended card."""
        self._security, self.has_extended = security, True
        self._cache.clear()

    def card_for(self, base: str, user: User | None, *, linked: bool = False) -> AgentCard:
        """Return the card as this caller may see it."""
        return build_card(
            self._agent,
            base,
            user,
            push=self._push,
            security=self._security,
            extended=self.has_extended,
            linked=linked,
            grpc=self._grpc(base),
            tenant=self._tenant,
            oldest=self._oldest,
        )

    def extended_card(self, base: str, user: User | None) -> AgentCard:
        """Return the extended card: `card_for` with the author's own additions."""
        card = self.card_for(base, user)
        try:
            return read_card(card_json(card, self._agent.card, V1_0)) if self._agent.card else card
        except BadCard:  # the author's additions may be anything
            return card

    def serve(self, request: Request, base: str, user: User | None = None) -> tuple[int, bytes, list[Header]]:
        """Return status, body and headers for one of `paths`. Shared caches may keep only the anonymous card.

        Where the card is one of both versions, callers who name theirs get that of it alone: some readers of 1.0 refuse
        every key they do not know.
        """
        kind, version = self._kind(request.path), self._version
        vary = ["authorization, cookie"] if self.has_extended else []
        if kind == CARD and version == "both":
            version = card_version_of(request.headers.get(VERSION_HEADER_RECEIVED, ""))
            vary.append(VERSION_HEADER_RECEIVED)
        served = self._cached(kind, version, base, self._root(request, base) if kind == CARD else None, user)
        headers: list[Header] = [(b"etag", served.etag), (b"access-control-allow-origin", b"*")]
        if user is None:
            headers.append((b"cache-control", b"public, max-age=%d" % MAX_AGE))
            if self._agent.tools is None:  # tools change at unknown times
                headers.append((b"last-modified", self._modified))
        else:
            headers.append((b"cache-control", b"private, no-cache"))
        if vary:
            headers.append((b"vary", ", ".join(vary).encode()))
        if self._is_not_modified(request, served.etag.decode(), dated=user is None):
            return 304, b"", headers
        return 200, served.body, headers

    def body_for(self, request: Request, root: str, prefix: str, user: User | None) -> bytes:
        """Return the card that the agent's callers get at the path `prefix` below the server's root URL."""
        signed = root if self.signing is not None and self.signing.may_sign(request, root) else None
        return self._cached(CARD, self._version, root + prefix, signed, user).body

    def sign(self, card: AgentCard, request: Request, base: str) -> AgentCard:
        """Sign a card for this URL, if the server signs cards."""
        root = self._root(request, base)
        if root is None or self.signing is None:
            return card
        try:
            return self.signing.sign_model(card, root)
        except BadCard:
            # Schemas may have numbers that cannot be signed, those of MCP servers above all.
            return self.signing.sign_model(_with_link(card, base), root)

    def _kind(self, path: str) -> str:
        """Return which document a path serves, named by one of `paths`.

        `OLD_CARD` is the plain card of 0.1, for agents that answer as the oldest servers did; for all others the old
        path has the same card as `CARD`.
        """
        for below in _CARD_PATHS:
            path = path.removeprefix(below)
        return CARD if path == OLD_CARD and not self._oldest else path

    def _root(self, request: Request, base: str) -> str | None:
        """Return the server's root URL, for the key set; None when the card at this URL is not signed."""
        root = base.removesuffix(request.prefix)
        return root if self.signing is not None and self.signing.may_sign(request, root) else None

    def _cached(self, kind: str, version: CardVersion, base: str, root: str | None, user: User | None) -> CachedCard:
        # Skills may change while the agent is served; the revision changes with them.
        key = (kind, version, base, root, self._agent.revision, user.permissions if user else None)
        served = self._cache.get(key)
        if served is None:
            if len(self._cache) >= CACHE_SIZE:  # the Host header is the caller's to choose
                self._cache.clear()
            body = self._build(kind, version, base, root, user)
            served = self._cache[key] = CachedCard(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode())
        return served

    def _build(self, kind: str, version: CardVersion, base: str, root: str | None, user: User | None) -> bytes:
        if kind == SCHEMAS:
            return msgspec.json.encode(schemas_of(self._agent, offers_for(self._agent, user)))
        model = self.card_for(base, user, linked=True)
        if kind == OLD_CARD:
            skills = ((offer.id, offer.description) for offer in offers_for(self._agent, user))
            return msgspec.json.encode(plain_card(model, base, skills, self._agent.card))
        card = card_json(model, self._agent.card, version)
        if CARD_FORMATS[version].older:  # some readers of the newest cards refuse members of others
            card = add_card_members(self._agent, model, base, card)
        if root is not None and self.signing is not None:
            card = self.signing.sign(card, root)
        return msgspec.json.encode(card)

    def _is_not_modified(self, request: Request, etag: str, *, dated: bool) -> bool:
        """True when the client has this card already. A date is enough only for the anonymous card."""
        if_none_match = request.headers.get("if-none-match")
        if if_none_match is not None:
            is_wildcard = dated and if_none_match.strip() == "*"
            return is_wildcard or etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
        since = request.headers.get("if-modified-since")
        if since is None or not dated or self._agent.tools is not None:
            return False
        try:
            return self._modified_seconds <= int(parsedate_to_datetime(since).timestamp())
        except ValueError:
            return False
