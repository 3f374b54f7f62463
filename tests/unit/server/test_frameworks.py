"""Agents of other frameworks as plain targets: what is known, what is made of it, and what is told otherwise."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Client
from dragoman.installation import install_line
from dragoman.model.error import ConfigError
from dragoman.server.agent.agent import Agent
from dragoman.server.agent.frameworks import BY_NAME, agent_of, framework_of
from dragoman.server.agent.target import as_servable, load_target

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

ADK = """
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        texts = [part.text for content in llm_request.contents for part in content.parts if content.role == "user"]
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"You said {texts[-1]}.")]))

model = Scripted(model="scripted")
sessions = InMemorySessionService()
root_agent = LlmAgent(name="teller", description="Repeats", model=model)
"""
ADK_RUNNERS = """
from adk_app import LlmAgent, model
from google.adk.apps.app import App
from google.adk.runners import InMemoryRunner

app = App(name="troupe", root_agent=LlmAgent(name="first", model=model))
runner = InMemoryRunner(LlmAgent(name="second", model=model), app_name="stage")

class Mine(LlmAgent):
    pass

mine = Mine(name="third", model=model)
"""
LANGGRAPH = """
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

def answer(state: MessagesState):
    return {"messages": [AIMessage(f"You said {state['messages'][-1].text}.")]}

builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
saver = InMemorySaver()
graph = builder.compile(name="teller", checkpointer=saver)
"""
LANGGRAPH_OTHERS = """
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph

@entrypoint()
async def point(text: str) -> str:
    return f"You said {text}."

raw = StateGraph(MessagesState)
raw.add_node("nothing", lambda state: state)
raw.add_edge(START, "nothing")
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

async def speak(messages, info):
    (text,) = messages[-1].parts[-1].content
    yield f"You said {text}."

model = FunctionModel(stream_function=speak)
teller = Agent(model, name="teller", description="Repeats")
"""
OPENAI = """
from agents import Agent, RunConfig, function_tool
from agents.realtime import RealtimeAgent
from agents.testing import ScriptedModel, assistant_message

@function_tool
def nothing() -> str:
    return ""

model = ScriptedModel([[assistant_message("You said hi.")]])
teller = Agent(name="teller", handoff_description="Repeats", model=model, tools=[nothing])
config = RunConfig()
spoken = RealtimeAgent(name="spoken")
"""
EXECUTOR = """
class Executor:
    async def execute(self, context, event_queue):
        message = {"messageId": "m", "role": "agent", "parts": [{"text": f"You said {context.get_user_input()}."}]}
        await event_queue.enqueue_event(message)

    async def cancel(self, context, event_queue):
        raise NotImplementedError

class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("nobody is asked outside of a request")

class Database:
    def execute(self, query, values=()):
        return []

executor = Executor()
request = Proxy()
database = Database()
"""
FILES = {
    "adk_app.py": ADK,
    "adk_runners.py": ADK_RUNNERS,
    "lg_app.py": LANGGRAPH,
    "lg_others.py": LANGGRAPH_OTHERS,
    "pai_app.py": PYDANTIC_AI,
    "oai_app.py": OPENAI,
    "executor_app.py": EXECUTOR,
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file for every framework. What is imported from it is forgotten, the frameworks are not."""
    path = list(sys.path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def served(target: str, folder: Path) -> Agent:
    agent = as_servable(load_target(target, cwd=folder))
    assert isinstance(agent, Agent)
    return agent


def problem(target: str, folder: Path, framework: str | None = None) -> str:
    found = load_target(target, cwd=folder)
    with pytest.raises(ConfigError) as caught:
        as_servable(found) if framework is None else agent_of(found, BY_NAME[framework])
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- what can be served ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-2", "S2-50")
@pytest.mark.parametrize(
    ("target", "name", "description"),
    [
        ("adk_app.py:root_agent", "teller", "Repeats"),
        ("adk_app.py", "teller", "Repeats"),
        ("adk_app", "teller", "Repeats"),
        ("adk_runners.py:app", "first", None),
        ("adk_runners.py:runner", "second", None),
        ("adk_runners:mine", "third", None),
        ("lg_app.py:graph", "teller", ""),
        ("lg_app.py", "teller", ""),
        ("lg_others.py:point", "graph", ""),
        ("pai_app.py:teller", "teller", "Repeats"),
        ("pai_app.py", "teller", "Repeats"),
        ("oai_app.py:teller", "teller", "Repeats"),
        ("oai_app.py", "teller", "Repeats"),
        ("executor_app.py:executor", "executor", ""),
        ("executor_app.py", "executor", ""),
    ],
)
async def test_an_agent_of_a_framework_is_served_as_it_is(
    folder: Path, target: str, name: str, description: str | None
) -> None:
    agent = served(target, folder)
    assert agent.name == name
    assert description is None or agent.description == description
    async with Client(agent) as client:
        assert (await client.send("hi")).text == "You said hi."
    await agent.close()


def test_of_two_agents_the_user_says_which(folder: Path) -> None:
    (folder / "two.py").write_text(ADK.replace("root_agent", "one") + "two = LlmAgent(name='other', model=model)\n")
    with pytest.raises(ConfigError) as caught:
        load_target("two.py", cwd=folder)
    assert str(caught.value).startswith("`two.py` has several things to serve (`one`, `two`): choose one")


def test_an_agent_of_ours_goes_before_those_it_is_made_of(folder: Path) -> None:
    (folder / "own.py").write_text(f"{LANGGRAPH}\nimport dragoman\nown = dragoman.Agent.from_langgraph(graph)\n")
    assert load_target("own.py", cwd=folder).name == "teller"
    assert isinstance(load_target("own.py", cwd=folder), Agent)


# -- what cannot -------------------------------------------------------------------------------------------------------


def test_a_graph_that_is_not_compiled_is_refused_with_how_to_compile_it(folder: Path) -> None:
    says = "this graph is not compiled: serve the result of `.compile()`, as in `graph = g.compile()`"
    assert problem("lg_others.py:raw", folder) == says
    assert problem("lg_others.py:raw", folder, "langgraph") == says
    assert problem("lg_app.py:builder", folder, "langgraph") == says, "the builder of another graph is none"


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("adk_app.py:LlmAgent", "LlmAgent"),
        ("adk_runners.py:Mine", "Mine"),
        ("lg_app.py:StateGraph", "StateGraph"),
        ("pai_app.py:Agent", "Agent"),
        ("oai_app.py:Agent", "Agent"),
        ("executor_app.py:Executor", "Executor"),
    ],
)
def test_a_class_is_no_agent(folder: Path, target: str, kind: str) -> None:
    assert problem(target, folder).startswith(f"the class `{kind}` cannot be served: an Agent, a Server, a function or")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("adk_app.py:model", "Scripted"),
        ("adk_app.py:sessions", "InMemorySessionService"),
        ("lg_app.py:saver", "InMemorySaver"),
        ("pai_app.py:model", "FunctionModel"),
        ("oai_app.py:nothing", "FunctionTool"),
        ("oai_app.py:config", "RunConfig"),
        ("oai_app.py:spoken", "RealtimeAgent"),
        ("executor_app.py:database", "Database"),
        ("executor_app.py:request", "Proxy"),
    ],
)
def test_what_stands_beside_agents_is_none(folder: Path, target: str, kind: str) -> None:
    assert problem(target, folder).startswith(f"an object of type `{kind}` cannot be served: an Agent, a Server")


@pytest.mark.parametrize(
    ("framework", "target", "says"),
    [
        ("adk", "lg_app.py:graph", "an object of type `CompiledStateGraph` is not {adk}, it is a LangGraph graph"),
        ("adk", "adk_app.py:model", "an object of type `Scripted` is not {adk}"),
        ("adk", "adk_app.py:LlmAgent", "the class `LlmAgent` is not {adk}: name an object that is made of it"),
        ("langgraph", "pai_app.py:teller", "an object of type `Agent` is not {langgraph}, it is {pydantic_ai}"),
        ("langgraph", "lg_app.py:answer", "an object of type `function` is not {langgraph}"),
        ("pydantic_ai", "oai_app.py:teller", "an object of type `Agent` is not {pydantic_ai}, it is {openai}"),
        ("openai", "adk_app.py:root_agent", "an object of type `LlmAgent` is not {openai}, it is {adk}"),
        ("openai", "executor_app.py:executor", "an object of type `Executor` is not {openai}, it is an AgentExecutor"),
    ],
)
def test_an_agent_of_another_framework_than_the_named_one_is_refused(
    folder: Path, framework: str, target: str, says: str
) -> None:
    kinds = {name: each.kind for name, each in BY_NAME.items()}
    assert problem(target, folder, framework) == says.format(**kinds)


# -- a package that is called agents -----------------------------------------------------------------------------------


@pytest.fixture
def no_sdk() -> Iterator[None]:
    """As if nobody had imported the OpenAI Agents SDK here."""

    def taken() -> dict[str, Any]:
        names = [name for name in sys.modules if name.partition(".")[0] == "agents"]
        return {name: sys.modules.pop(name) for name in names}

    before = taken()
    yield
    taken()
    sys.modules.update(before)


@pytest.mark.usefixtures("no_sdk")
def test_a_package_of_the_users_that_is_called_agents_is_not_the_sdk(folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "__init__.py").write_text("class Agent: ...\nclass Runner: ...\n")
    (folder / "agents" / "mine.py").write_text("from agents import Agent\nhelper = Agent()\n")
    assert problem("agents.mine:helper", folder).startswith("an object of type `Agent` cannot be served")
    says = "an object of type `Agent` is not an agent of the OpenAI Agents SDK"
    assert problem("agents.mine:helper", folder, "openai") == says


@pytest.mark.usefixtures("no_sdk")
async def test_it_may_have_agents_of_another_framework_in_it(folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "__init__.py").write_text("")
    (folder / "agents" / "mine.py").write_text(PYDANTIC_AI)
    async with Client(served("agents.mine", folder)) as client:
        assert (await client.send("hi")).text == "You said hi."


# -- what is not installed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "module", "extra"),
    [
        ("adk_app.py:root_agent", "google.adk", "adk"),
        ("lg_app.py:graph", "langgraph", "langgraph"),
        ("pai_app.py:teller", "pydantic_ai", "pydantic-ai"),
        ("oai_app.py:teller", "agents", "openai"),
    ],
)
def test_a_framework_that_is_not_installed_is_refused_with_the_line_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, module: str, extra: str
) -> None:
    found = load_target(target, cwd=folder)
    framework = framework_of(found)
    assert framework is not None
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as caught:
        getattr(Agent, framework.constructor)(found)
    assert str(caught.value) == f"needs the extra `{extra}`: {install_line(extra)}"


def test_every_extra_that_is_named_is_one_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert {each.extra for each in BY_NAME.values()} <= set(project["project"]["optional-dependencies"])


@pytest.mark.parametrize("make", ["from_adk", "from_langgraph", "from_pydantic_ai", "from_openai", "from_executor"])
@pytest.mark.parametrize("thing", [5, object, "text"], ids=["number", "class", "text"])
def test_every_constructor_refuses_what_is_no_agent(make: str, thing: object) -> None:
    with pytest.raises(ConfigError):
        getattr(Agent, make)(thing)
