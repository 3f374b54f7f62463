"""Agent cards: made from the agent, spelled for the caller's version, cached by address."""

from __future__ import annotations

import hashlib
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from dragoman.dialects.cards import card_json
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface

if TYPE_CHECKING:
    from dragoman.model.user import User
    from dragoman.server.agent import Agent
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


def card_of(agent: Agent, base: str, user: User | None = None, *, push: bool = False) -> AgentCard:
    """The agent's card at an address. Skills that need a permission are listed for those who have it."""
    permissions = user.permissions if user else frozenset[str]()
    skills = tuple(
        skill.card() for skill in agent.skills if skill.permission is None or skill.permission in permissions
    )
    return AgentCard(
        name=agent.name,
        description=agent.description or agent.name,
        supported_interfaces=tuple(
            AgentInterface(base + path, binding, version) for binding, version, path in _INTERFACES
        ),
        version=agent.version,
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=push, extensions=agent.extensions, extended_agent_card=False
        ),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=skills,
    )


class Cards:
    """Serves one agent's card."""

    def __init__(
        self, agent: Agent, version: Literal["both", "1.0", "0.3"], started_ms: int, *, push: bool = False
    ) -> None:
        self._agent = agent
        self._version: Literal["both", "1.0", "0.3"] = version
        self._push = push
        self._modified_s = started_ms // 1000
        self._modified = formatdate(self._modified_s, usegmt=True).encode()
        self._known: dict[tuple[str, int], Served] = {}

    def serve(self, request: Request, base: str) -> tuple[int, bytes, list[Header]]:
        """Status, body and headers for a card at this address."""
        served = self._card(base)
        headers: list[Header] = [
            (b"etag", served.etag),
            (b"last-modified", self._modified),
            (b"cache-control", b"public, max-age=%d" % MAX_AGE),
            (b"access-control-allow-origin", b"*"),
        ]
        if self._is_known(request, served.etag.decode()):
            return 304, b"", headers
        return 200, served.body, headers

    def _card(self, base: str) -> Served:
        # Skills may be added while the agent is served; their number tells an old card from a new one.
        key = (base, len(self._agent.skills))
        served = self._known.get(key)
        if served is None:
            if len(self._known) >= REMEMBERED:  # the Host header is the caller's to choose
                self._known.clear()
            body = msgspec.json.encode(
                card_json(card_of(self._agent, base, push=self._push), self._agent.card, self._version)
            )
            served = self._known[key] = Served(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode())
        return served

    def _is_known(self, request: Request, etag: str) -> bool:
        asked = request.headers.get("if-none-match")
        if asked is not None:
            return asked.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in asked.split(","))
        since = request.headers.get("if-modified-since")
        if since is None:
            return False
        try:
            return self._modified_s <= int(parsedate_to_datetime(since).timestamp())
        except ValueError:
            return False
