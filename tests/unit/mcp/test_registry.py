"""What is known of agents, tasks and webhooks, in memory."""

from __future__ import annotations

import pytest

from dragoman.mcp import registry as registries
from dragoman.mcp.registry import Registry
from dragoman.mcp.tools.tool import ToolError
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.testing import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    return Registry(clock)


def task(task_id: str, state: State = State.WORKING) -> Task:
    return Task(task_id, "c", TaskStatus(state))


# -- agents ------------------------------------------------------------------------------------------------------------


def test_agents_are_not_registered_without_end(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_AGENTS", 2)
    first, _ = (registry.register_agent(f"http://127.0.0.1:{port}", "one", {}) for port in (1, 2))
    with pytest.raises(ToolError, match="2 agents are registered"):
        registry.register_agent("http://127.0.0.1:3", "one", {})
    assert registry.register_agent("http://127.0.0.1:1", "one", {}).agent_id == first.agent_id


# -- tasks -------------------------------------------------------------------------------------------------------------


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


def test_the_oldest_tasks_that_have_ended_are_forgotten(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_TASKS", 3)
    states = [State.WORKING, State.COMPLETED, State.FAILED, State.WORKING, State.WORKING]
    for number, state in enumerate(states):
        registry.update_task(registry.start_task("agent_1"), task(str(number), state))
    assert [registry.public_id(each) for each in registry.tasks()] == ["4", "3", "0"]
    assert registry.task("1") is None
