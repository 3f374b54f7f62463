"""The documents' types describe what the functions take and return."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest

from dragoman.compat.sessions import (
    A2AAgentCard,
    A2AAgentSkill,
    A2AProtocolExtension,
    A2ATask,
    A2ATaskDeps,
    A2ATaskSendRequest,
    A2ATaskState,
    TaskDeps,
    build_agent_card,
    build_agent_card_for_agent,
    get_agent_bundles,
    handle_task_get,
    handle_task_send,
)


@pytest.mark.requirement("S3-4", "S3-5", "S3-6", "S3-7")
async def test_a_task_has_the_type_of_the_document(bench: Any) -> None:
    request: A2ATaskSendRequest = {"method": "tasks/send", "params": {"message": "Hello", "timeoutMs": 5000}}
    sent = await handle_task_send(bench.deps, request)
    task = msgspec.convert(sent, A2ATask, strict=True)
    assert set(sent) == A2ATask.__required_keys__
    assert task["messages"] == [{"role": "user", "parts": [{"type": "text", "text": "Hello"}]}]
    assert msgspec.convert(await handle_task_get(task["id"]), A2ATask)["state"] == "working"
    assert typing.get_args(A2ATaskState) == ("submitted", "working", "completed", "failed")
    assert A2ATaskDeps is TaskDeps


@pytest.mark.requirement("S3-67")
def test_a_card_has_the_type_of_the_document_to_the_last_member() -> None:
    agent = {"id": "7", "name": "ada", "description": "Reads", "mcpToolPermissions": ["read_file"]}
    tools = {"read_file": "Reads a file", "save_memory": "Remembers"}
    for built in (build_agent_card(tools=tools), build_agent_card_for_agent(agent, tools=tools)):
        card = msgspec.convert(built, A2AAgentCard, strict=True)
        assert set(built) == A2AAgentCard.__required_keys__
        assert card == built
        skills: list[A2AAgentSkill] = card["skills"]
        assert skills[0]["name"] == "Read File"
        assert all(set(skill) == A2AAgentSkill.__required_keys__ for skill in skills)


@pytest.mark.requirement("S3-67")
def test_the_protocols_of_a_card_have_the_type_of_the_document() -> None:
    protocols = msgspec.convert(build_agent_card()["supportedProtocols"], list[A2AProtocolExtension])
    assert [each["protocol"] for each in protocols] == ["A2A", "MCP", "HTTP"]


@pytest.mark.requirement("S3-59")
def test_the_bundles_of_an_agent_are_its_own_or_those_of_the_database() -> None:
    class Database:
        def get_skill_bundles(self, agent_id: str) -> list[dict[str, str]]:
            return [{"name": f"bundle of {agent_id}"}]

    assert get_agent_bundles({"id": "7", "skillBundles": ["a", {"name": "b"}]}, Database()) == ["a", "b"]
    assert get_agent_bundles({"id": "7"}, Database()) == ["bundle of 7"]
    assert get_agent_bundles({"id": "7"}) == []
    card = build_agent_card_for_agent({"id": "7", "name": "ada", "description": "Reads"}, db=Database())
    assert card["description"] == "Reads | Skills: bundle of 7"
