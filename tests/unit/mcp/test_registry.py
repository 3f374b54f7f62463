"""What is known of agents, tasks and webhooks, in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client

from dragoman import Agent
from dragoman.mcp import registry as registries
from dragoman.mcp.registry import Registry
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.mcp.tools.tool import ToolError
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.testing import Clock, served


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    return Registry(clock)


def task(task_id: str, state: State = State.WORKING) -> Task:
    return Task(task_id, "c", TaskStatus(state))


# -- agents ------------------------------------------------------------------------------------------------------------


def test_an_agent_that_is_seen_again_keeps_its_id_and_the_time_it_was_first_seen(
    registry: Registry, clock: Clock
) -> None:
    first = registry.register_agent("http://127.0.0.1:1", "one", {})
    clock.move(60)
    again = registry.register_agent("http://127.0.0.1:1", "another name", {"name": "another name"})
    assert first.agent_id.startswith("agent_")
    assert (again.agent_id, again.created_at) == (first.agent_id, first.created_at)
    assert again.last_seen_at > first.last_seen_at
    assert (again.status, again.auth_mode, again.created_at[-1]) == ("connected", None, "Z")
    assert list(registry.agents.values()) == [again]


def test_an_agent_is_found_by_id_address_and_a_name_that_only_it_has(registry: Registry) -> None:
    one = registry.register_agent("http://127.0.0.1:1", "one", {})
    twins = [registry.register_agent(f"http://127.0.0.1:{port}", "twin", {}) for port in (2, 3)]
    assert (
        registry.find_agent(one.agent_id)
        is registry.find_agent("one")
        is registry.find_agent("http://127.0.0.1:1")
        is one
    )
    assert registry.find_agent("twin") is None
    assert registry.find_agent("http://127.0.0.1:3") is twins[1]


def test_agents_are_not_registered_without_end(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_AGENTS", 2)
    first, _ = (registry.register_agent(f"http://127.0.0.1:{port}", "one", {}) for port in (1, 2))
    with pytest.raises(ToolError, match="2 agents are registered"):
        registry.register_agent("http://127.0.0.1:3", "one", {})
    assert registry.register_agent("http://127.0.0.1:1", "one", {}).agent_id == first.agent_id


@pytest.mark.requirement("S4-23")
async def test_a_new_process_without_a_file_knows_nothing() -> None:
    async def listed(client: Client) -> list[Any]:
        result = await client.call_tool("list_remote_agents", {})
        found = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert result.structured_content["agents"] == found
        return found

    with served(Agent("known", description="Known")) as url:
        async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
            assert await listed(client) == []
            await client.call_tool("resolve_agent_card", {"base_url": url})
            assert [each["base_url"] for each in await listed(client)] == [url]
        async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
            assert await listed(client) == []


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_a_local_id_stays_a_name_of_the_task_when_the_remote_s_is_known(registry: Registry) -> None:
    record = registry.start_task("agent_1")
    local = registry.public_id(record)
    assert registry.task(local) is record
    registry.update_task(record, task("remote"))
    assert registry.task(local) is registry.task("remote") is record
    assert registry.public_id(record) == "remote"


def test_a_second_message_to_a_task_is_the_same_task(registry: Registry) -> None:
    first = registry.update_task(registry.start_task("agent_1"), task("remote"))
    second = registry.start_task("agent_1")
    assert registry.update_task(second, task("remote", State.COMPLETED)) is first
    assert registry.task(second.id) is first
    assert registry.tasks() == [first]
    assert first.task is not None
    assert first.task.state is State.COMPLETED


def test_tasks_are_listed_by_their_last_change_of_state(registry: Registry) -> None:
    records = [registry.update_task(registry.start_task("agent_1"), task(str(number))) for number in range(3)]
    registry.update_task(records[0], task("0", State.COMPLETED))
    assert [registry.public_id(each) for each in registry.tasks()] == ["0", "2", "1"]


def test_an_unknown_task_is_a_problem(registry: Registry) -> None:
    with pytest.raises(ToolError, match=r"^Task not found: nothing$"):
        registry.require_task("nothing")


def test_the_oldest_tasks_that_have_ended_are_forgotten(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_TASKS", 3)
    states = [State.WORKING, State.COMPLETED, State.FAILED, State.WORKING, State.WORKING]
    for number, state in enumerate(states):
        registry.update_task(registry.start_task("agent_1"), task(str(number), state))
    assert [registry.public_id(each) for each in registry.tasks()] == ["4", "3", "0"]
    assert registry.task("1") is None


# -- webhooks ----------------------------------------------------------------------------------------------------------


def test_a_webhook_is_known_by_its_agent_and_address(registry: Registry, clock: Clock) -> None:
    first = registry.put_webhook("agent_1", "http://localhost/in", ["status_update"])
    clock.move(1)
    again = registry.put_webhook("agent_1", "http://localhost/in", ["artifact_update"])
    other = registry.put_webhook("agent_2", "http://localhost/in", ["status_update"])
    assert (again.config_id, again.created_at) == (first.config_id, first.created_at)
    assert again.config_id != other.config_id
    assert registry.webhooks_of("agent_1") == [again]
    again.active = False
    assert registry.webhooks_of("agent_1") == []
