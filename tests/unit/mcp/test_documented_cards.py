"""The tools about cards, as they are documented, key by key."""

from __future__ import annotations

from typing import Any

import pytest
from unit.mcp import foreign_agent

from dragoman import Agent
from dragoman.mcp.server import INSTRUCTIONS
from dragoman.testing import served

TOOLS = [
    "resolve_agent_card",
    "validate_agent_card",
    "list_remote_agents",
    "send_message",
    "send_streaming_message",
    "get_task",
    "list_tasks",
    "cancel_task",
    "subscribe_to_task",
    "configure_push_notifications",
    "get_extended_agent_card",
]
RECORD = {"agent_id", "name", "base_url", "status", "card", "auth_mode", "last_seen_at", "created_at", "source"}
CARD = {"name", "description", "url", "version", "protocolVersion", "capabilities", "skills"}
CAPABILITIES = {"streaming", "pushNotifications", "stateTransitionHistory"}
NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"

agent = Agent("Echo", description="Says it again", version="2.0.0")


@agent.skill(tags=["speech"])
def echo(text: str) -> str:
    """Say it again."""
    return text


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-1")
async def test_there_are_the_eleven_tools_each_with_hints_and_schemas(hosted: Any) -> None:
    async with hosted() as host:
        tools = (await host.client.list_tools()).tools
        assert [tool.name for tool in tools] == TOOLS
        for tool in tools:
            assert tool.title
            assert tool.description
            assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
            assert tool.annotations.open_world_hint
        assert [tool.name for tool in tools if tool.annotations.destructive_hint] == ["cancel_task"]
        assert host.client.instructions == INSTRUCTIONS


NEEDED = {
    "resolve_agent_card": ["base_url"],
    "validate_agent_card": ["base_url"],
    "send_message": ["agent_id", "text"],
    "send_streaming_message": ["agent_id", "text"],
    "get_task": ["task_id"],
    "cancel_task": ["task_id"],
    "subscribe_to_task": ["task_id"],
    "get_extended_agent_card": ["agent_id"],
}


@pytest.mark.requirement("S4-2", "S4-14", "S4-21", "S4-24", "S4-35", "S4-39", "S4-41", "S4-45", "S4-47", "S4-54")
async def test_what_a_tool_needs_must_be_there_and_be_of_its_type(hosted: Any) -> None:
    async with hosted() as host:
        tools = {tool.name: tool for tool in (await host.client.list_tools()).tools}
        for name, needed in NEEDED.items():
            assert tools[name].input_schema["required"] == needed
            whole = dict.fromkeys(needed, "x")
            for each in needed:
                others = {key: value for key, value in whole.items() if key != each}
                for wrong in ({}, {each: 5}, {each: None}, *([{each: " "}] if each == needed[0] else [])):
                    message = await host.error(name, **others, **wrong)
                    assert message.startswith("Invalid params: ")
                    assert each in message
        assert tools["list_remote_agents"].input_schema["properties"] == {}
        assert "required" not in tools["list_tasks"].input_schema
        for limit in ("3", 0, -1, 1.5):
            assert (await host.error("list_tasks", limit=limit)).startswith("Invalid params: ")
        assert (await host.error("get_task", task_id="x", surprise=1)).startswith("Invalid params: ")


# The tables of the documentation: name, type, whether it is required.
DOCUMENTED = {
    "resolve_agent_card": [("base_url", "string", True)],
    "validate_agent_card": [("base_url", "string", True)],
    "list_remote_agents": [],
    "send_message": [("agent_id", "string", True), ("text", "string", True)],
    "send_streaming_message": [("agent_id", "string", True), ("text", "string", True)],
    "get_task": [("task_id", "string", True)],
    "list_tasks": [("limit", "integer", False)],
    "cancel_task": [("task_id", "string", True)],
    "subscribe_to_task": [("task_id", "string", True)],
    "configure_push_notifications": [
        ("agent_id", "string", True),
        ("webhook_url", "string", True),
        ("events", "array", False),
    ],
    "get_extended_agent_card": [("agent_id", "string", True)],
}


@pytest.mark.requirement(
    "S4-2", "S4-14", "S4-21", "S4-24", "S4-35", "S4-39", "S4-41", "S4-45", "S4-47", "S4-49", "S4-54"
)
async def test_parameters_have_the_documented_types_and_nothing_else_is_required(hosted: Any) -> None:
    async with hosted() as host:
        tools = {tool.name: tool.input_schema for tool in (await host.client.list_tools()).tools}
        assert list(tools) == list(DOCUMENTED)
        for name, documented in DOCUMENTED.items():
            found = tools[name]["properties"]
            assert [(each, found[each]["type"]) for each, _, _ in documented] == [each[:2] for each in documented]
            assert tools[name].get("required", []) == [each for each, _, required in documented if required]
        assert tools["list_remote_agents"]["properties"] == {}
        assert tools["configure_push_notifications"]["properties"]["events"]["items"]["type"] == "string"
        # Without arguments, and with an empty object, but not with others.
        bare = await host.client.call_tool("list_remote_agents")
        assert (bare.is_error, bare.content[0].text) == (False, "[]")
        assert (await host.ok("list_remote_agents"))["agents"] == []
        assert (await host.error("list_remote_agents", surprise=1)).startswith("Invalid params: ")


# -- resolving ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-8", "S4-11", "S4-22")
async def test_a_card_of_another_version_is_shown_with_the_same_keys(hosted: Any, foreign: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            record = await host.ok("resolve_agent_card", base_url=f"{url}/")
            card = record["card"]
            assert set(card) == CARD
            assert set(card["capabilities"]) == CAPABILITIES
            assert (card["name"], card["version"], card["capabilities"]["streaming"]) == ("Echo", "2.0.0", True)
            assert card["url"].startswith(url)
            assert [(each["name"], each["tags"]) for each in card["skills"]] == [("echo", ["speech"])]

            again = await host.ok("resolve_agent_card", base_url=url)
            assert (again["agent_id"], again["created_at"]) == (record["agent_id"], record["created_at"])
            other = await host.ok("resolve_agent_card", base_url=foreign.url)
            assert other["agent_id"] != record["agent_id"]
            assert (await host.ok("list_remote_agents"))["agents"] == [
                {key: each[key] for key in ("agent_id", "name", "base_url", "status")} for each in (again, other)
            ]


@pytest.mark.requirement("S4-4")
@pytest.mark.parametrize(
    "newer",
    [None, b"<html>", b"{}", b'{"name": ""}', b'{"name": 5}', b"[]", b"{", b"", (403, {}), (405, {}), (500, {})],
)
async def test_the_older_path_is_tried_when_the_newer_has_no_card(hosted: Any, foreign: Any, newer: Any) -> None:
    foreign.offers(foreign.url, OLD)
    if newer is not None:
        foreign.cards[NEW] = newer
    foreign.answers["message/send"] = {"id": "1", "status": {"state": "completed"}}
    async with hosted() as host:
        record = await host.ok("resolve_agent_card", base_url=foreign.url)
        assert foreign.asked[0] == NEW
        assert foreign.asked[-1] == OLD
        assert record["name"] == "By hand"
        # And what is found there is what messages go by.
        assert (await host.ok("send_message", agent_id=record["agent_id"], text="hi"))["id"] == "1"


@pytest.mark.requirement("S4-12")
async def test_without_a_card_the_error_says_where_none_was_found(hosted: Any, foreign: Any) -> None:
    async with hosted() as host:
        for cards in ({}, {NEW: b"{}", OLD: b"{}"}, {NEW: b"<html>"}, {OLD: b"not JSON"}):
            foreign.cards = cards
            for base_url in (foreign.url, f"{foreign.url}/"):
                foreign.asked.clear()
                message = await host.error("resolve_agent_card", base_url=base_url)
                assert message == f"No agent card found at {base_url}"
                assert {NEW, OLD} <= set(foreign.asked)
        assert (await host.ok("list_remote_agents"))["agents"] == []
        # Who wants to know why asks for that.
        foreign.cards = {NEW: b'{"name": "x"}', OLD: b'{"name": "x"}'}
        message = await host.error("validate_agent_card", base_url=foreign.url)
        assert message.startswith(f"No agent card found at {foreign.url}: the agent card is wrong: ")


@pytest.mark.requirement("S4-13")
async def test_an_agent_that_does_not_run_refuses_the_connection(hosted: Any) -> None:
    with served(foreign_agent.ForeignAgent()) as url:
        pass
    async with hosted() as host:
        message = await host.error("resolve_agent_card", base_url=url)
        assert message == "Failed to resolve agent card: connection refused"
        assert await host.error("validate_agent_card", base_url=url) == "Validation failed: connection refused"


# -- validating --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-17", "S4-18", "S4-19", "S4-20")
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"protocolVersion": "9.9"}, {"protocol_version": "9.9", "version_valid": False, "validation": "failed"}),
        ({"protocolVersion": "0.3.0"}, {"version_valid": True, "validation": "passed"}),
        ({"skills": []}, {"has_skills": False, "skill_count": 0, "validation": "warnings"}),
        ({"capabilities": {}}, {"streaming": False, "push_notifications": False, "validation": "passed"}),
        (
            {"capabilities": {"streaming": True, "pushNotifications": True}},
            {"streaming": True, "push_notifications": True, "validation": "passed"},
        ),
        # The card as the tools' documentation has it says nothing of media types.
        ({"defaultInputModes": None, "defaultOutputModes": None}, {"validation": "passed"}),
    ],
)
async def test_what_validation_finds_follows_the_card(hosted: Any, foreign: Any, changes: Any, found: Any) -> None:
    foreign.offers(foreign.url, **changes)
    async with hosted() as host:
        shown = await host.ok("validate_agent_card", base_url=foreign.url)
        assert {key: shown[key] for key in found} == found


async def test_a_card_of_ours_passes(hosted: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            shown = await host.ok("validate_agent_card", base_url=url)
            assert (shown["validation"], shown["version_valid"], shown["skill_count"]) == ("passed", True, 1)


# -- what is known -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-54", "S4-55")
async def test_the_extended_card_is_the_whole_record(hosted: Any, foreign: Any) -> None:
    async with hosted() as host:
        record = await host.ok("resolve_agent_card", base_url=foreign.url)
        assert await host.ok("get_extended_agent_card", agent_id=record["agent_id"]) == record
        more = {**foreign.cards[NEW], "name": "By hand, for friends", "supportsAuthenticatedExtendedCard": True}
        foreign.answers["agent/getAuthenticatedExtendedCard"] = more
        shown = await host.ok("get_extended_agent_card", agent_id=record["agent_id"])
        assert set(shown) == RECORD
        assert shown["card"] == {**record["card"], "name": "By hand, for friends"}
        assert await host.error("get_extended_agent_card", agent_id="agent_0") == "Agent not found: agent_0"
