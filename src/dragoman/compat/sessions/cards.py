"""The cards of this instance and of its agents, built from what is known of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, cast
from urllib.parse import quote

from dragoman.compat.sessions.deps import member
from dragoman.server.agent_cards import About, agent_card, agent_protocols, protocol, tool_skill
from dragoman.server.persona import enriched

Json = dict[str, Any]

NAME = "Dragoman"
DESCRIPTION = "Runs command-line agents in sessions, and talks to agents elsewhere, by the A2A protocol"
FALLBACK = "Dragoman agent"


def build_agent_card(base_url: str | None = None, *, tools: Iterable[Any] | None = None) -> Json:
    """The card of this instance, with every tool as a skill.

    Without `base_url` it is where `BIND_HOST` and `PORT` say, by default 127.0.0.1 and 3000. `tools` are names, or
    things with a `name` and a `description`; by default those of Dragoman's own MCP server, where that is installed.
    """
    base = _base(base_url)
    about = About(NAME, DESCRIPTION, base, version("dragoman"))
    shown = default_tools() if tools is None else _described(tools)
    protocols = [
        protocol("A2A", "Agent2Agent: tasks that are sent and polled", f"{base}/a2a/tasks/send"),
        protocol("MCP", "Model Context Protocol: the tools below"),
        protocol("HTTP", "Plain JSON, for agents by their ids", f"{base}/api"),
    ]
    return agent_card(about, [tool_skill(name, text) for name, text in shown.items()], protocols)


def build_agent_card_for_agent(
    agent: object, base_url: str | None = None, db: object = None, *, tools: Iterable[Any] | None = None
) -> Json:
    """The card of one agent: an object or a map with `id` and `name`, in either spelling of what it has.

    `mcp_tool_permissions` (or `tool_names`) are the tools it may use; where nothing is said, it is all. `tools` are
    those there are, as for `build_agent_card`; others are left out. `persona` and `skill_bundles` add to the
    description; what the agent does not say of them, `db.get_persona(agent_id)` and `db.get_skill_bundles(agent_id)`
    do, where there are such methods.
    """
    name = str(member(agent, "name") or "agent")
    agent_id = str(member(agent, "id") or name)
    url = f"{_base(base_url)}/api/agents/{quote(agent_id, safe='')}"
    description = str(member(agent, "description") or FALLBACK)
    persona, bundles = _kept(agent, db, agent_id, "persona"), _kept(agent, db, agent_id, "skill_bundles")
    archetype = persona if isinstance(persona, str) else member(persona, "archetype")
    description = enriched(description, {"archetype": archetype}, _names(bundles))
    about = About(name, description, url, version("dragoman"))
    skills = [tool_skill(*tool) for tool in _permitted(agent, default_tools() if tools is None else _described(tools))]
    return agent_card(about, skills, agent_protocols(url))


@lru_cache(maxsize=1)
def default_tools() -> Mapping[str, str]:
    """The tools of Dragoman's own MCP server, each with its description; none where `dragoman[mcp]` is not there."""
    try:
        from dragoman.mcp.tools.table import SIMPLE_TOOLS, TOOLS
    except ImportError:
        return {}
    return {tool.name: tool.listed().description or "" for tool in (*TOOLS, *SIMPLE_TOOLS)}


# -- parts ---------------------------------------------------------------------------------------------------------


def _base(base_url: str | None) -> str:
    if base_url is not None:
        return base_url.rstrip("/")
    host = os.environ.get("BIND_HOST") or "127.0.0.1"
    port = os.environ.get("PORT") or "3000"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _described(tools: Iterable[Any]) -> Mapping[str, str]:
    if isinstance(tools, Mapping):
        return {str(name): str(text or "") for name, text in cast("Mapping[Any, Any]", tools).items()}
    known = default_tools()
    found: dict[str, str] = {}
    for tool in tools:
        name = tool if isinstance(tool, str) else str(member(tool, "name"))
        text = None if isinstance(tool, str) else member(tool, "description")
        found[name] = str(text or known.get(name, ""))
    return found


def _permitted(agent: object, known: Mapping[str, str]) -> list[tuple[str, str]]:
    names: Any = member(agent, "mcp_tool_permissions")
    names = member(agent, "tool_names") if names is None else names
    if not isinstance(names, (list, tuple)):
        return list(known.items())
    return [(name, known[name]) for name in cast("Sequence[Any]", names) if name in known]


def _kept(agent: object, db: object, agent_id: str, name: str) -> Any:
    said = member(agent, name)
    ask = getattr(db, f"get_{name}", None)
    return ask(agent_id) if said is None and ask is not None else said


def _names(bundles: Any) -> list[str]:
    if not isinstance(bundles, (list, tuple)):
        return []
    each = cast("Sequence[Any]", bundles)
    return [bundle if isinstance(bundle, str) else str(member(bundle, "name")) for bundle in each]
