"""The card of an ADK agent."""

from __future__ import annotations

import pytest
from google.adk.agents import BaseAgent, SequentialAgent
from google.adk.code_executors.built_in_code_executor import BuiltInCodeExecutor
from google.adk.planners.plan_re_act_planner import PlanReActPlanner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from unit.agents.adk.scripted import llm, served

from dragoman import Agent, Client
from dragoman.agents.adk.offers import offers_of
from dragoman.agents.adk.run import AdkRuns

pytestmark = pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")
SECRET = "never tell anybody about project Falcon"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Slow(BaseToolset):
    """Tools that are behind a server."""

    async def get_tools(self, readonly_context: object = None) -> list[object]:
        raise AssertionError("asked")

    async def close(self) -> None: ...


def test_an_agent_and_each_of_its_tools_are_skills() -> None:
    helper = llm(name="clerk", description="Does sums")
    agent = llm(
        name="desk",
        description="Helps people",
        instruction=SECRET,
        tools=[add, FunctionTool(print), AgentTool(helper), Slow()],
        planner=PlanReActPlanner(),
        code_executor=BuiltInCodeExecutor(),
    )
    skills = offers_of(agent)
    assert [(skill.id, skill.name, skill.default) for skill in skills] == [
        ("desk", "Desk", True),
        ("desk-add", "add", False),
        ("desk-print", "print", False),
        ("desk-clerk", "clerk", False),
        ("desk-planner", "planning", False),
        ("desk-code-executor", "code-execution", False),
    ]
    assert [skill.description for skill in skills][:2] == ["Helps people", "Add two numbers."]
    assert skills[1].tags == ("llm", "tools")
    assert "Falcon" not in repr(skills)


def test_sub_agents_are_skills_under_their_names() -> None:
    inner = llm(name="adder", tools=[add], description="Adds")
    team = SequentialAgent(name="team", sub_agents=[inner, BaseAgent(name="own", description="d" * 5000)])
    skills = {skill.id: skill for skill in offers_of(team)}
    assert list(skills) == ["team", "adder", "adder-add", "own"]
    assert skills["team"].tags == ("workflow",)
    assert (skills["adder-add"].name, skills["adder-add"].tags) == (
        "adder: add",
        ("sub_agent:adder", "llm", "tools"),
    )
    assert skills["own"].tags == ("sub_agent:own", "custom")
    assert len(skills["own"].description) == 1024


async def test_the_card_says_it() -> None:
    runs = AdkRuns(llm(name="desk", description="Helps people", instruction=SECRET, tools=[add]))
    assert (runs.name, runs.description) == ("desk", "Helps people")
    agent = Agent.from_adk(runs.runner)
    async with Client(agent) as client:
        card = await client.card()
    assert (card.name, card.description) == ("desk", "Helps people")
    assert [skill.id for skill in card.skills] == ["desk", "desk-add"]
    assert card.capabilities.streaming
    assert "Falcon" not in repr(card)


def test_an_agent_without_a_description_has_a_skill_that_has_one() -> None:
    assert served(llm()).name == "helper"
    assert [skill.description for skill in offers_of(llm(instruction=SECRET))] == ["Runs Helper"]
