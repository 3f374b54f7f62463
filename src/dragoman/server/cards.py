"""Agent cards: made from the agent, spelled for the caller's version, cached by address."""

from __future__ import annotations

import hashlib
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from dragoman.dialects.cards import card_json, read_card
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.error import BadCard, ConfigError
from dragoman.server.authentication import OPEN, Security

if TYPE_CHECKING:
    from dragoman.model.user import User
    from dragoman.server.agent import Agent
    from dragoman.server.signing import CardSigning
    from dragoman.transports.http import Header, Request

MAX_AGE = 300
REMEMBERED = 64
_INTERFACES = (
    ("JSONRPC", "1.0", "/a2a"),
    ("HTTP+JSON", "1.0", ""),
    ("JSONRPC", "1.1", "/a2a"),
    ("HTTP+JSON", "1.1", ""),
    ("JSONRPC", "0.3", "/a2a"),
    ("HTTP+JSON", "0.3", ""),
)
_MODES = ("text/plain", "application/json")


class Served(NamedTuple):
    """A card as it goes out."""

    body: bytes
    etag: bytes


def card_of(
    agent: Agent,
    base: str,
    user: User | None = None,
    *,
    push: bool = False,
    security: Security = OPEN,
    extended: bool = False,
) -> AgentCard:
    """The agent's card at an address. Skills that need a permission are listed for those who have it."""
    permissions = user.permissions if user else frozenset[str]()
    skills = tuple(
        skill.card() for skill in agent.skills if skill.permission is None or skill.permission in permissions
    )
    told, numbered = ("", "") if agent.tools is None else agent.tools.about
    return AgentCard(
        name=agent.name,
        description=agent.description or told or agent.name,
        supported_interfaces=tuple(
            AgentInterface(base + path, binding, version) for binding, version, path in _INTERFACES
        ),
        version=agent.version or numbered or "0.1.0",
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=push, extensions=agent.extensions, extended_agent_card=extended
        ),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=skills,
        security_schemes=security[0] or None,
        security_requirements=tuple(security[1]),
    )


class Cards:
    """Serves one agent's card."""

    def __init__(
        self,
        agent: Agent,
        version: Literal["both", "1.0", "0.3"],
        started_ms: int,
        *,
        push: bool = False,
        signing: CardSigning | None = None,
    ) -> None:
        self._agent = agent
        self._version: Literal["both", "1.0", "0.3"] = version
        self._push = push
        self.signing = signing
        self._security: Security = OPEN
        self._extended = False
        self._modified_s = started_ms // 1000
        self._modified = formatdate(self._modified_s, usegmt=True).encode()
        self._known: dict[tuple[str, str | None, tuple[int, int], frozenset[str] | None], Served] = {}

    def check(self) -> None:
        """Look whether the card can be signed as it should be, so that a mistake is told at the start.

        Raises:
            ConfigError: it cannot, or the keys cannot be read.
        """
        if self.signing is None:
            return
        try:
            self._made("http://localhost", "http://localhost", None)
        except BadCard as error:
            raise ConfigError(f"sign: {self._agent.name!r}: {error}") from None

    def guard(self, security: Security) -> None:
        """Say on the card how callers are known, and that there is more to see for them."""
        self._security, self._extended = security, True
        self._known.clear()

    def extended(self, base: str, user: User | None) -> AgentCard:
        """The card as this caller may see it."""
        return card_of(self._agent, base, user, push=self._push, security=self._security, extended=self._extended)

    def told(self, base: str, user: User | None) -> AgentCard:
        """The same with what the author says beside it, for who asks for the extended card."""
        card = self.extended(base, user)
        try:
            return read_card(card_json(card, self._agent.card, "1.0")) if self._agent.card else card
        except BadCard:  # an author may say anything
            return card

    def serve(self, request: Request, base: str, user: User | None = None) -> tuple[int, bytes, list[Header]]:
        """Status, body and headers for a card at this address; a known caller's is for nobody else to keep."""
        served = self._card(base, self._root(request, base), user)
        headers: list[Header] = [(b"etag", served.etag), (b"access-control-allow-origin", b"*")]
        if user is None:
            headers.append((b"cache-control", b"public, max-age=%d" % MAX_AGE))
            headers.append((b"last-modified", self._modified))
        else:
            headers.append((b"cache-control", b"private, no-cache"))
        if self._extended:
            headers.append((b"vary", b"authorization, cookie"))
        if self._is_known(request, served.etag.decode(), dated=user is None):
            return 304, b"", headers
        return 200, served.body, headers

    def signed(self, card: AgentCard, request: Request, base: str) -> AgentCard:
        """A card at this address as it is shown to who asks: signed, where cards are."""
        root = self._root(request, base)
        return card if root is None or self.signing is None else self.signing.signed_model(card, root)

    def _root(self, request: Request, base: str) -> str | None:
        """Where the keys are to be found; None when the card at this address is not signed."""
        root = base.removesuffix(request.prefix)
        return root if self.signing is not None and self.signing.is_ours(request, root) else None

    def _card(self, base: str, root: str | None, user: User | None) -> Served:
        # Skills may come and go while the agent is served; the revision tells an old card from a new one.
        key = (base, root, self._agent.revision, user.permissions if user else None)
        served = self._known.get(key)
        if served is None:
            if len(self._known) >= REMEMBERED:  # the Host header is the caller's to choose
                self._known.clear()
            body = self._made(base, root, user)
            served = self._known[key] = Served(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode())
        return served

    def _made(self, base: str, root: str | None, user: User | None) -> bytes:
        card = card_json(self.extended(base, user), self._agent.card, self._version)
        if root is not None and self.signing is not None:
            card = self.signing.signed(card, root)
        return msgspec.json.encode(card)

    def _is_known(self, request: Request, etag: str, *, dated: bool) -> bool:
        """True when who asks has this card. A date says so of the card for everybody alone."""
        asked = request.headers.get("if-none-match")
        if asked is not None:
            anything = dated and asked.strip() == "*"
            return anything or etag in (tag.strip().removeprefix("W/") for tag in asked.split(","))
        since = request.headers.get("if-modified-since")
        if since is None or not dated:
            return False
        try:
            return self._modified_s <= int(parsedate_to_datetime(since).timestamp())
        except ValueError:
            return False
