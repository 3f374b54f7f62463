"""The cards of an instance and of its agents."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from dragoman.compat.sessions import build_agent_card, build_agent_card_for_agent
from dragoman.compat.sessions.cards import default_tools
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer

AGENT = {"id": "a1", "name": "Ada", "description": "Counts"}


@pytest.mark.requirement("S3-3", "S3-17")
def test_the_card_of_an_instance_has_what_a_card_needs() -> None:
    card = build_agent_card("https://agents.example.com/")
    assert card["url"] == "https://agents.example.com"
    assert card["version"] == version("dragoman")
    assert card["name"]
    assert card["description"]
    assert card["provider"] == {"organization": "Dragoman", "url": "https://agents.example.com"}
    assert card["documentationUrl"]
    assert card["capabilities"] == {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False}
    assert card["authentication"] == {"schemes": ["Bearer"]}
    assert card["defaultInputModes"] == card["defaultOutputModes"] == ["text/plain", "application/json"]
    endpoints = {each["protocol"]: each.get("endpoint") for each in card["supportedProtocols"]}
    assert endpoints == {
        "A2A": "https://agents.example.com/a2a/tasks/send",
        "MCP": None,
        "HTTP": "https://agents.example.com/api",
    }


@pytest.mark.requirement("S3-36")
def test_every_tool_of_the_own_mcp_server_is_a_skill_in_the_same_words() -> None:
    listed = {tool.name: tool.to_mcp() for tool in McpServer(McpOptions())._tools.values()}
    skills = {skill["id"]: skill for skill in build_agent_card()["skills"]}
    assert listed.keys() <= skills.keys()
    assert len(skills) > 10
    for name, tool in listed.items():
        assert skills[name]["description"] == tool.description
        assert skills[name]["tags"]
        assert skills[name]["inputModes"] == ["application/json"]
        assert skills[name]["outputModes"] == ["application/json", "text/plain"]


@pytest.mark.requirement("S3-17", "S3-37", "S3-38")
def test_tools_that_are_given_are_named_for_people_and_sorted_by_what_they_do() -> None:
    tools = ["corvid_github_star_repo", "corvid_github_list_prs", {"name": "corvid_save_memory"}, "corvid_xyzzy"]
    skills = build_agent_card(tools=tools)["skills"]
    assert [skill["name"] for skill in skills] == ["GitHub Star Repo", "GitHub List PRs", "Save Memory", "Xyzzy"]
    assert "memory" in skills[2]["tags"]
    assert skills[3]["tags"] == ["general"]
    assert skills[3]["description"] == "Tool: corvid_xyzzy"


@pytest.mark.requirement("S3-64", "S3-65")
def test_the_address_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORT", raising=False)
    monkeypatch.delenv("BIND_HOST", raising=False)
    assert build_agent_card()["url"] == "http://127.0.0.1:3000"
    monkeypatch.setenv("PORT", "4567")
    assert build_agent_card()["url"] == "http://127.0.0.1:4567"
    monkeypatch.setenv("BIND_HOST", "0.0.0.0")
    assert build_agent_card()["url"] == "http://0.0.0.0:4567"
    assert build_agent_card_for_agent(AGENT)["url"] == "http://0.0.0.0:4567/api/agents/a1"
    monkeypatch.setenv("BIND_HOST", "::1")
    assert build_agent_card()["url"] == "http://[::1]:4567"


@pytest.mark.requirement("S3-18")
def test_the_card_of_an_agent_is_about_the_agent() -> None:
    card = build_agent_card_for_agent(AGENT, "http://localhost:3000")
    assert (card["name"], card["description"]) == ("Ada", "Counts")
    assert card["url"] == "http://localhost:3000/api/agents/a1"
    endpoints = {each["protocol"]: each["endpoint"] for each in card["supportedProtocols"]}
    assert endpoints["HTTP"] == "http://localhost:3000/api/agents/a1/invoke"
    assert card.keys() == build_agent_card().keys()
    assert build_agent_card_for_agent({"id": "x", "name": "X"})["description"] == "Dragoman agent"


@pytest.mark.requirement("S3-40", "S3-41")
def test_an_agent_shows_the_tools_it_may_use_in_their_order_and_otherwise_all() -> None:
    permitted = {**AGENT, "mcpToolPermissions": ["send_message", "no_such_tool", "cancel_task"]}
    assert _skills(build_agent_card_for_agent(permitted)) == ["send_message", "cancel_task"]
    assert _skills(build_agent_card_for_agent({**AGENT, "mcp_tool_permissions": []})) == []
    assert _skills(build_agent_card_for_agent({**AGENT, "mcpToolPermissions": None})) == list(default_tools())
    own = build_agent_card_for_agent({**AGENT, "tool_names": ("b", "c")}, tools={"a": "A", "b": "B"})
    assert _skills(own) == ["b"]


class Database:
    def get_persona(self, agent_id: str) -> dict[str, str]:
        return {"archetype": f"scholar of {agent_id}"}

    def get_skill_bundles(self, agent_id: str) -> list[Any]:
        return [{"name": "research"}, "writing"]


@pytest.mark.requirement("S3-58")
@pytest.mark.parametrize(
    ("persona", "description"),
    [
        ({"archetype": "scholar"}, "Counts | Archetype: scholar"),
        ({"archetype": "custom"}, "Counts"),
        ({}, "Counts"),
        (None, "Counts"),
    ],
)
def test_the_description_names_the_archetype_of_a_persona(persona: Any, description: str) -> None:
    assert build_agent_card_for_agent({**AGENT, "persona": persona})["description"] == description


@pytest.mark.requirement("S3-58", "S3-59")
def test_the_description_lists_skill_bundles_and_the_database_fills_what_the_agent_lacks() -> None:
    bundles = {**AGENT, "skillBundles": ["a", "b"]}
    assert build_agent_card_for_agent(bundles)["description"] == "Counts | Skills: a, b"
    description = "Counts | Archetype: scholar of a1 | Skills: research, writing"
    assert build_agent_card_for_agent(AGENT, db=Database())["description"] == description


def _skills(card: dict[str, Any]) -> list[str]:
    return [skill["id"] for skill in card["skills"]]
