"""The card of an agent as session servers have it: under its id, with tools as skills and the ways to call it."""

from __future__ import annotations

import hashlib
from importlib.metadata import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from dragoman.agents.offers import categories, humanized
from dragoman.dialects.cards.security import schemes_to_01
from dragoman.server.cards.cache import MAX_AGE, REMEMBERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model.card import AgentCard, AgentSkill
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.server.cards.cache import Cards
    from dragoman.transports.http import Header, Request

Json = dict[str, Any]

# Where it is, relative to `/api/agents/{id}`.
AGENT_CARD = "/agent-card"
ORGANIZATION = "Dragoman"
_MODES = ["text/plain", "application/json"]
_TAKES, _GIVES = ["application/json"], ["application/json", "text/plain"]


class About(NamedTuple):
    """What a card says of an agent beside its skills. The addresses are made from `url`."""

    name: str
    description: str
    url: str
    version: str
    streaming: bool = True
    push: bool = False
    schemes: Sequence[str] = ("Bearer",)
    provider: Mapping[str, Any] | None = None
    documentation_url: str | None = None


def agent_card(about: About, skills: Iterable[Json], protocols: Iterable[Json]) -> Json:
    """A card, in the order in which people read it."""
    return {
        "name": about.name,
        "description": about.description,
        "url": about.url,
        "provider": dict(about.provider or {"organization": ORGANIZATION, "url": about.url}),
        "version": about.version,
        "documentationUrl": about.documentation_url or documentation() or about.url,
        "capabilities": {
            "streaming": about.streaming,
            "pushNotifications": about.push,
            "stateTransitionHistory": False,
        },
        "authentication": {"schemes": list(about.schemes)},
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": list(skills),
        "supportedProtocols": list(protocols),
    }


def tool_skill(tool: str, description: str = "") -> Json:
    """A tool as a skill."""
    return {
        "id": tool,
        "name": humanized(tool),
        "description": description or f"Tool: {tool}",
        "tags": list(categories(tool)),
        "inputModes": _TAKES,
        "outputModes": _GIVES,
    }


def protocol(name: str, description: str, endpoint: str | None = None) -> Json:
    """A way to talk to an agent."""
    return {"protocol": name, "description": description, **({} if endpoint is None else {"endpoint": endpoint})}


def agent_protocols(url: str) -> list[Json]:
    """The ways to talk to an agent that stands under its id."""
    return [
        protocol("A2A", "Agent2Agent: JSON-RPC here, and tasks that are sent and polled", f"{url}/a2a/tasks/send"),
        protocol("HTTP", "Plain JSON: a message in, a task out", f"{url}/invoke"),
    ]


def documentation() -> str | None:
    """Where this package is explained, as far as it says so itself."""
    for line in metadata("dragoman").get_all("Project-URL") or ():
        name, _, url = str(line).partition(",")
        if name.strip().lower() in ("documentation", "homepage"):
            return url.strip()
    return None


class AgentCards:
    """Serves the card of one agent at `/api/agents/{id}/agent-card`."""

    def __init__(self, agent: Agent, cards: Cards) -> None:
        self._agent = agent
        self._cards = cards
        self._known: dict[tuple[str, tuple[int, int], frozenset[str] | None], tuple[bytes, bytes]] = {}

    def serve(self, request: Request, base: str, user: User | None = None) -> tuple[int, bytes, list[Header]]:
        """Status, body and headers; what a known caller sees is for nobody else to keep."""
        body, etag = self._card(base, user)
        kept = b"public, max-age=%d" % MAX_AGE if user is None else b"private, no-cache"
        headers: list[Header] = [
            (b"etag", etag),
            (b"access-control-allow-origin", b"*"),
            (b"cache-control", kept),
            (b"vary", b"authorization, cookie"),
        ]
        asked = request.headers.get("if-none-match", "")
        if etag.decode() in (tag.strip().removeprefix("W/") for tag in asked.split(",")):
            return 304, b"", headers
        return 200, body, headers

    def _card(self, base: str, user: User | None) -> tuple[bytes, bytes]:
        key = (base, self._agent.revision, user.permissions if user else None)
        served = self._known.get(key)
        if served is None:
            if len(self._known) >= REMEMBERED:  # the Host header is the caller's to choose
                self._known.clear()
            card = card_of_agent(self._agent, self._cards.told(base, user), base)
            body = msgspec.json.format(msgspec.json.encode(card), indent=2)
            served = self._known[key] = (body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode())
        return served


def card_of_agent(agent: Agent, card: AgentCard, url: str) -> Json:
    """The card of an agent that stands at this address, from the one that A2A has of it."""
    about = About(
        name=card.name,
        description=card.description,
        url=url,
        version=card.version,
        streaming=bool(card.capabilities.streaming),
        push=bool(card.capabilities.push_notifications),
        schemes=schemes_to_01(card.security_schemes or {}),
        provider=None if card.provider is None else structs.asdict(card.provider),
        documentation_url=card.documentation_url,
    )
    return agent_card(about, _skills(card.skills, agent.tool_names), agent_protocols(url))


def _skills(skills: Sequence[AgentSkill], permitted: Sequence[str] | None) -> list[Json]:
    """The skills, or those of them that the agent may use, in the order in which it was permitted them."""
    shown = {skill.id: _shown(skill) for skill in skills}
    if permitted is None:
        return list(shown.values())
    return [shown[name] for name in permitted if name in shown]


def _shown(skill: AgentSkill) -> Json:
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description or f"Tool: {skill.id}",
        "tags": list(skill.tags or categories(skill.id, skill.description)),
        "inputModes": list(skill.input_modes or _MODES),
        "outputModes": list(skill.output_modes or _MODES),
    }
