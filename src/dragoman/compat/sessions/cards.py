"""The agent cards of session servers: of the whole instance, and of each agent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import metadata, version
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

import msgspec
from msgspec import structs

from dragoman.agents.offers import categories, humanized
from dragoman.compat.sessions.deps import member
from dragoman.dialects.cards.security import schemes_to_01
from dragoman.server.cards.cache import CACHE_SIZE, MAX_AGE

if TYPE_CHECKING:
    from dragoman.model.card import AgentCard, AgentSkill
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.server.cards.cache import Cards
    from dragoman.transports.http import Header, Request

Json = dict[str, Any]

ORGANIZATION = "Dragoman"
_MODES = ["text/plain", "application/json"]
_TOOL_INPUT_MODES, _TOOL_OUTPUT_MODES = ["application/json"], ["application/json", "text/plain"]


class CardFacts(NamedTuple):
    """The members of a card other than skills and protocols."""

    name: str
    description: str
    url: str
    version: str
    streaming: bool = True
    push: bool = False
    schemes: Sequence[str] = ("Bearer",)
    provider: Mapping[str, Any] | None = None
    documentation_url: str | None = None


def agent_card(facts: CardFacts, skills: Iterable[Json], protocols: Iterable[Json]) -> Json:
    """Build a card; its members are in the order in which people read them."""
    return {
        "name": facts.name,
        "description": facts.description,
        "url": facts.url,
        "provider": dict(facts.provider or {"organization": ORGANIZATION, "url": facts.url}),
        "version": facts.version,
        "documentationUrl": facts.documentation_url or documentation() or facts.url,
        "capabilities": {
            "streaming": facts.streaming,
            "pushNotifications": facts.push,
            "stateTransitionHistory": False,
        },
        "authentication": {"schemes": list(facts.schemes)},
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": list(skills),
        "supportedProtocols": list(protocols),
    }


def tool_skill(tool: str, description: str = "") -> Json:
    """Build the skill that stands for a tool."""
    return _skill(tool, humanized(tool), description, categories(tool), _TOOL_INPUT_MODES, _TOOL_OUTPUT_MODES)


def _skill(
    id: str, name: str, description: str, tags: Iterable[str], input_modes: Iterable[str], output_modes: Iterable[str]
) -> Json:
    return {
        "id": id,
        "name": name,
        "description": description or f"Tool: {id}",
        "tags": list(tags),
        "inputModes": list(input_modes),
        "outputModes": list(output_modes),
    }


def protocol(name: str, description: str, endpoint: str | None = None) -> Json:
    """Build an entry of `supportedProtocols`."""
    return {"protocol": name, "description": description, **({} if endpoint is None else {"endpoint": endpoint})}


def agent_protocols(url: str) -> list[Json]:
    """Build the `supportedProtocols` of an agent whose URL ends with its id."""
    return [
        protocol("A2A", "Agent2Agent: JSON-RPC here, and tasks that are sent and polled", f"{url}/a2a/tasks/send"),
        protocol("HTTP", "Plain JSON: a message in, a task out", f"{url}/invoke"),
    ]


def instance_protocols(base: str) -> list[Json]:
    """Build the `supportedProtocols` of an instance, or of one of its agents, at `base`."""
    return [
        protocol("A2A", "Agent2Agent: tasks that are sent and polled", f"{base}/a2a/tasks/send"),
        protocol("HTTP", "Plain JSON, for agents by their ids", f"{base}/api"),
    ]


def instance_members(card: AgentCard, base: str) -> Json:
    """Build the members that the card of an instance has beside those of A2A."""
    return {
        "authentication": {"schemes": schemes_to_01(card.security_schemes or {})},
        "supportedProtocols": instance_protocols(base),
    }


def documentation() -> str | None:
    """Return the documentation or homepage URL in this package's metadata, if there is one."""
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
        self._cache: dict[tuple[str, tuple[int, int], frozenset[str] | None], tuple[bytes, bytes]] = {}

    def serve(self, request: Request, base: str, user: User | None = None) -> tuple[int, bytes, list[Header]]:
        """Return status, body and headers. A card for an authenticated caller is marked as private."""
        body, etag = self._card(base, user)
        cache_control = b"public, max-age=%d" % MAX_AGE if user is None else b"private, no-cache"
        headers: list[Header] = [
            (b"etag", etag),
            (b"access-control-allow-origin", b"*"),
            (b"cache-control", cache_control),
            (b"vary", b"authorization, cookie"),
        ]
        if_none_match = request.headers.get("if-none-match", "")
        if etag.decode() in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
            return 304, b"", headers
        return 200, body, headers

    def _card(self, base: str, user: User | None) -> tuple[bytes, bytes]:
        key = (base, self._agent.revision, user.permissions if user else None)
        entry = self._cache.get(key)
        if entry is None:
            if len(self._cache) >= CACHE_SIZE:  # bounded, as callers choose the Host header
                self._cache.clear()
            card = card_of_agent(self._agent, self._cards.extended_card(base, user), base)
            body = msgspec.json.format(msgspec.json.encode(card), indent=2)
            entry = self._cache[key] = (body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode())
        return entry


def card_of_agent(agent: Agent, card: AgentCard, url: str) -> Json:
    """Convert the A2A card of an agent to the form of session servers."""
    facts = CardFacts(
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
    return agent_card(facts, _skills(card.skills, agent.tool_names), agent_protocols(url))


def _skills(skills: Sequence[AgentSkill], permitted: Sequence[str] | None) -> list[Json]:
    """Convert the skills; with `permitted`, only those it names, in its order."""
    by_id: dict[str, Json] = {}
    for skill in skills:
        tags = skill.tags or categories(skill.id, skill.description)
        input_modes, output_modes = skill.input_modes or _MODES, skill.output_modes or _MODES
        by_id[skill.id] = _skill(skill.id, skill.name, skill.description, tags, input_modes, output_modes)
    return list(by_id.values()) if permitted is None else [by_id[name] for name in permitted if name in by_id]


# The archetype that descriptions leave out.
_CUSTOM = "custom"


def enrich_description(description: str, persona: Mapping[str, Any] | None, bundles: Sequence[str]) -> str:
    """Append the archetype of the persona and the skill bundles to a description."""
    archetype: Any = None if persona is None else persona.get("archetype")
    if isinstance(archetype, str) and archetype and archetype != _CUSTOM:
        description += f" | Archetype: {archetype}"
    if bundles:
        description += f" | Skills: {', '.join(bundles)}"
    return description


NAME = "Dragoman"
DESCRIPTION = "Runs command-line agents in sessions, and talks to agents elsewhere, by the A2A protocol"
FALLBACK = "Dragoman agent"


def build_agent_card(base_url: str | None = None, *, tools: Iterable[Any] | None = None) -> Json:
    """Build the card of this instance, with every tool as a skill.

    The default `base_url` is built from the environment variables `BIND_HOST` and `PORT`, by default 127.0.0.1 and
    3000. `tools` are names, objects or maps with a `name` and a `description`, or one map from names to descriptions;
    by default the tools of Dragoman's own MCP server, if `dragoman[mcp]` is installed.
    """
    base = _base_url(base_url)
    facts = CardFacts(NAME, DESCRIPTION, base, version("dragoman"))
    described = default_tools() if tools is None else _describe_tools(tools)
    a2a, http = instance_protocols(base)
    protocols = [a2a, protocol("MCP", "Model Context Protocol: the tools below"), http]
    return agent_card(facts, [tool_skill(name, text) for name, text in described.items()], protocols)


def build_agent_card_for_agent(
    agent: object, base_url: str | None = None, db: object = None, *, tools: Iterable[Any] | None = None
) -> Json:
    """Build the card of one agent: an object or a map with `id` and `name`, its members in snake_case or camelCase.

    `tools` are the existing tools, as for `build_agent_card`. The agent's `mcp_tool_permissions` (or `tool_names`) list
    those that become skills; without such a list all do. `persona` and `skill_bundles` are appended to the description;
    what the agent lacks of them is read with `db.get_persona(agent_id)` and `db.get_skill_bundles(agent_id)`, if `db`
    has these methods.
    """
    name = str(member(agent, "name") or "agent")
    agent_id = str(member(agent, "id") or name)
    url = f"{_base_url(base_url)}/api/agents/{quote(agent_id, safe='')}"
    description = str(member(agent, "description") or FALLBACK)
    persona = _read_member(agent, db, agent_id, "persona")
    archetype = persona if isinstance(persona, str) else member(persona, "archetype")
    description = enrich_description(description, {"archetype": archetype}, get_agent_bundles(agent, db))
    facts = CardFacts(name, description, url, version("dragoman"))
    skills = [
        tool_skill(*tool)
        for tool in _permitted_tools(agent, default_tools() if tools is None else _describe_tools(tools))
    ]
    return agent_card(facts, skills, agent_protocols(url))


def get_agent_bundles(agent: object, db: object = None) -> list[str]:
    """Return the names of an agent's skill bundles: its own, else what `db.get_skill_bundles(agent_id)` returns."""
    agent_id = str(member(agent, "id") or member(agent, "name") or "agent")
    return _names(_read_member(agent, db, agent_id, "skill_bundles"))


@lru_cache(maxsize=1)
def default_tools() -> Mapping[str, str]:
    """Return the tools of Dragoman's own MCP server with their descriptions; none without `dragoman[mcp]`."""
    try:
        from dragoman.mcp.tools.table import SIMPLE_TOOLS, TOOLS
    except ImportError:
        return {}
    return {tool.name: tool.to_mcp().description or "" for tool in (*TOOLS, *SIMPLE_TOOLS)}


# -- parts ---------------------------------------------------------------------------------------------------------


def _base_url(base_url: str | None) -> str:
    if base_url is not None:
        return base_url.rstrip("/")
    host = os.environ.get("BIND_HOST") or "127.0.0.1"
    port = os.environ.get("PORT") or "3000"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _describe_tools(tools: Iterable[Any]) -> Mapping[str, str]:
    if isinstance(tools, Mapping):
        return {str(name): str(text or "") for name, text in cast("Mapping[Any, Any]", tools).items()}
    defaults = default_tools()
    described: dict[str, str] = {}
    for tool in tools:
        name = tool if isinstance(tool, str) else str(member(tool, "name"))
        text = None if isinstance(tool, str) else member(tool, "description")
        described[name] = str(text or defaults.get(name, ""))
    return described


def _permitted_tools(agent: object, tools: Mapping[str, str]) -> list[tuple[str, str]]:
    names: Any = member(agent, "mcp_tool_permissions")
    names = member(agent, "tool_names") if names is None else names
    if not isinstance(names, (list, tuple)):
        return list(tools.items())
    return [(name, tools[name]) for name in cast("Sequence[Any]", names) if name in tools]


def _read_member(agent: object, db: object, agent_id: str, name: str) -> Any:
    value = member(agent, name)
    getter = getattr(db, f"get_{name}", None)
    return getter(agent_id) if value is None and getter is not None else value


def _names(bundles: Any) -> list[str]:
    if not isinstance(bundles, (list, tuple)):
        return []
    each = cast("Sequence[Any]", bundles)
    return [bundle if isinstance(bundle, str) else str(member(bundle, "name")) for bundle in each]
