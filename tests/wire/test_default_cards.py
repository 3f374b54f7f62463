"""The cards of agents whose authors said nothing about them: our own checks find no fault with any kind of agent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from mcp.server import MCPServer

from dragoman import Agent, Context, Server
from dragoman.cli.main import group
from dragoman.model.card import SKILL_SCHEMAS
from dragoman.testing import served

CARD, SCHEMAS = "/.well-known/agent-card.json", "/.well-known/skill-schemas.json"


def add(a: int, b: int = 0) -> int:
    return a + b


async def run(ctx: Context) -> AsyncIterator[str]:
    yield ctx.text


def functions() -> Agent:
    agent = Agent("sums")
    agent.skill(add)
    return agent


def tools() -> Agent:
    server = MCPServer("toolbox", log_level="ERROR")
    server.add_tool(add)
    return Agent.from_mcp(server)


class Executor:
    async def execute(self, context: Any, event_queue: Any) -> None: ...
    async def cancel(self, context: Any, event_queue: Any) -> None: ...


def adk() -> Agent:
    pytest.importorskip("google.adk")
    from google.adk.agents import LlmAgent

    return Agent.from_adk(LlmAgent(name="helper", model="none"))


def langgraph() -> Agent:
    pytest.importorskip("langgraph")
    from langgraph.graph import START, MessagesState, StateGraph

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": []}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return Agent.from_langgraph(graph.compile())


def pydantic_ai() -> Agent:
    framework: Any = pytest.importorskip("pydantic_ai")
    model: Any = pytest.importorskip("pydantic_ai.models.test")
    return Agent.from_pydantic_ai(framework.Agent(model.TestModel()))


def openai() -> Agent:
    framework: Any = pytest.importorskip("agents")
    return Agent.from_openai(framework.Agent(name="helper"))


KINDS: dict[str, Callable[[], Agent]] = {
    "functions": functions,
    "run": lambda: Agent("talks", run=run),
    "MCP tools": tools,
    "a program": lambda: Agent.from_command("cat"),
    "an executor": lambda: Agent.from_executor(Executor()),
    "ADK": adk,
    "LangGraph": langgraph,
    "Pydantic AI": pydantic_ai,
    "OpenAI Agents": openai,
}


def checked(*command: str) -> list[str]:
    """The lines of a command that are not `ok`."""
    environ = {name: None for name in os.environ if name.startswith("DRAGOMAN_")}
    result = CliRunner().invoke(group, [*command], env=environ)
    assert result.exit_code == 0, result.output
    return [line for line in result.stdout.splitlines() if line.startswith(("error", "warn", "FAIL"))]


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_checks_find_nothing_to_say_about_a_default_card(kind: str) -> None:
    with served(KINDS[kind]()) as url:
        assert checked("card", url, "--validate") == []
        assert checked("doctor", url) == []


@contextmanager
def foreign(wire: Any, skills: list[dict[str, Any]]) -> Generator[str]:
    """An agent whose card lists these skills, as agents of other makers do."""
    with served(Agent("remote", run=run, card={"skills": skills})) as url:
        yield url


@pytest.mark.parametrize(
    "skills", [[], [{"id": "s", "name": "s", "description": "does it", "tags": []}]], ids=["none", "untagged"]
)
def test_our_own_checks_find_nothing_to_say_about_a_front_of_a_sparse_card(
    wire: Any, skills: list[dict[str, Any]]
) -> None:
    with foreign(wire, skills) as behind, served(Agent.from_a2a(behind)) as url:
        assert checked("card", url, "--validate") == []
        (skill,) = wire.at(url).request("GET", CARD).json["skills"]
    assert skill["tags"] == ["remote"]


def test_a_skill_without_tags_gets_the_name_of_its_agent(wire: Any) -> None:
    agent = functions()
    agent.skill(tags=["own"], id="other")(add)
    with served(agent) as url:
        skills = wire.at(url).request("GET", CARD).json["skills"]
    assert [skill["tags"] for skill in skills] == [["sums"], ["own"]]


def test_an_agent_that_is_one_run_publishes_one_skill(wire: Any) -> None:
    with served(Agent("Small Talk", description="Talks about the weather.", run=run)) as url:
        at = wire.at(url)
        (skill,) = at.request("GET", CARD).json["skills"]
        answer = at.rpc(
            "SendMessage",
            {
                "message": {
                    "messageId": "m1",
                    "role": "ROLE_USER",
                    "parts": [{"text": "rain"}],
                    "metadata": {"skillId": skill["id"]},
                }
            },
        )
    assert skill == {
        "id": "small-talk",
        "name": "Small Talk",
        "description": "Talks about the weather.",
        "tags": ["Small Talk"],
        "inputModes": ["text/plain", "application/json"],
        "outputModes": ["text/plain", "application/json"],
    }
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "rain"}]


def test_functions_beside_a_run_are_listed_after_it(wire: Any) -> None:
    agent = Agent("talks", run=run)
    agent.skill(add)
    with served(agent) as url:
        at = wire.at(url)
        assert [skill["id"] for skill in at.request("GET", CARD).json["skills"]] == ["talks", "add"]
        assert list(at.request("GET", SCHEMAS).json) == ["add"]


# -- schemas -----------------------------------------------------------------------------------------------------------


@dataclass
class Sum:
    total: int


def tally(numbers: Annotated[list[int], "What to add"], start: int = 0) -> Sum:
    """Add many numbers."""
    return Sum(sum(numbers, start))


def link(card: Any) -> Any:
    """What the card says under the extension for schemas."""
    found = [each for each in card["capabilities"].get("extensions", ()) if each["uri"] == SKILL_SCHEMAS]
    return found[0] if found else None


def test_functions_publish_their_schemas_as_tools_do(wire: Any) -> None:
    agent = functions()
    agent.skill(tally)
    with served(agent) as ours, served(tools()) as theirs:
        at, other = wire.at(ours), wire.at(theirs)
        extension, like = link(at.request("GET", CARD).json), link(other.request("GET", CARD).json)
        answer = at.request("GET", SCHEMAS)
    assert extension == {**like, "params": {"url": ours + SCHEMAS}}
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert answer.json["add"] == {
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
            "required": ["a"],
        }
    }
    assert answer.json["tally"]["inputSchema"]["properties"]["numbers"] == {
        "type": "array",
        "items": {"type": "integer"},
        "description": "What to add",
    }
    output = answer.json["tally"]["outputSchema"]
    assert (output["type"], output["$ref"]) == ("object", "#/$defs/Sum")
    assert output["$defs"]["Sum"]["properties"] == {"total": {"type": "integer"}}


def test_every_agent_has_a_place_for_schemas_and_names_it_only_where_there_are_any(wire: Any) -> None:
    with served(Server(Agent("talks", run=run), functions())) as url:
        at = wire.at(url)
        seen = {
            name: (at.request("GET", f"{path}{SCHEMAS}").json, link(at.request("GET", f"{path}{CARD}").json))
            for name, path in {"talks": "/agents/talks", "sums": "/agents/sums"}.items()
        }
    assert seen["talks"] == ({}, None)
    assert list(seen["sums"][0]) == ["add"]
    assert seen["sums"][1]["params"] == {"url": f"{url}/agents/sums{SCHEMAS}"}


def test_the_schemas_of_a_closed_skill_are_for_those_who_may_use_it(wire: Any) -> None:
    agent = Agent("vault")
    agent.skill(permission="gold")(add)
    with served(agent) as url:
        at = wire.at(url)
        assert at.request("GET", SCHEMAS).json == {}
        assert link(at.request("GET", CARD).json) is None
