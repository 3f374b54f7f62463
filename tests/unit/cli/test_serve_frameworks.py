"""`dragoman serve --adk` and the like: agents of other frameworks, by flags and in the settings file."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.command import clean_environment
from support.server_process import ServerProcess

from dragoman import Agent, Client, Task
from dragoman.cli.main import group
from dragoman.cli.serve.options import agent_of_framework_table, agents_of_frameworks, pop_framework_options
from dragoman.errors import ConfigError
from dragoman.installation import install_line
from dragoman.sync import Client as SyncClient

from .conftest import refusal_of

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

TABLE = "dragoman.toml [agents.x]"

# It thinks, adds two numbers with its tool, and says the sum.
ADK = """
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

def add(a: int, b: int) -> dict[str, int]:
    '''Add two numbers.'''
    return {"sum": a + b}

class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            parts = [types.Part(text=f"The sum is {last.function_response.response['sum']}.")]
        else:
            call = types.FunctionCall(name="add", args={"a": 2, "b": 3})
            parts = [types.Part(text="Two and three.", thought=True), types.Part(function_call=call)]
        yield LlmResponse(content=types.Content(role="model", parts=parts))

root_agent = LlmAgent(name="adder", description="Adds", model=Scripted(model="scripted"), tools=[add])
number = 5
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

async def speak(messages, info):
    yield "Hello."

teller = Agent(FunctionModel(stream_function=speak), name="teller")
"""
RAW = """
from langgraph.graph import START, MessagesState, StateGraph

raw = StateGraph(MessagesState)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten_imports: None) -> Path:
    """The folder a user stands in. What is imported from it is forgotten, the frameworks are not."""
    for name, text in (("adder.py", ADK), ("teller.py", PYDANTIC_AI), ("raw.py", RAW)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def agents_of(folder: Path, **flags: Any) -> list[Agent]:
    """What the flags serve."""
    none = {"adk": (), "langgraph": (), "pydantic_ai": (), "openai": (), "show_tools": False, "show_thoughts": False}
    given = {**none, **flags, "port": 0}
    taken = pop_framework_options(given)
    assert given == {"port": 0}, "the other flags are left"
    return agents_of_frameworks(taken, folder)


async def outcome_of(agent: Agent) -> tuple[Task, set[str]]:
    """The task in the end, and the progress that was reported before."""
    progress: set[str] = set()
    async with Client(agent) as client:
        stream = client.stream("how much is it?")
        async for event in stream:
            if event.task is not None and event.task.status.message is not None:
                progress.add(event.task.status.message.text)
        assert stream.task is not None
        return stream.task, progress


# -- flags -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-2", "S2-50")
async def test_tool_calls_and_thoughts_are_hidden_unless_a_flag_shows_them(folder: Path) -> None:
    (hiding,) = agents_of(folder, adk=("adder.py:root_agent",))
    assert (hiding.name, hiding.description) == ("adder", "Adds")
    task, progress = await outcome_of(hiding)
    assert (task.text, [artifact.name for artifact in task.artifacts]) == ("The sum is 5.", ["adder-result"])
    assert progress == set()
    (showing,) = agents_of(folder, adk=("adder.py:root_agent",), show_tools=True, show_thoughts=True)
    task, progress = await outcome_of(showing)
    assert [artifact.name for artifact in task.artifacts].count("tool") == 2
    assert progress == {"Two and three."}


def test_agents_of_several_frameworks_are_named_in_one_command(folder: Path) -> None:
    agents = agents_of(folder, adk=("adder.py",), pydantic_ai=("teller:teller",), show_tools=True)
    assert [agent.name for agent in agents] == ["adder", "teller"]


@pytest.mark.parametrize("flag", ["--show-tools", "--show-thoughts"])
def test_show_flags_need_an_adk_agent(folder: Path, flag: str) -> None:
    says = f"{flag} is about agents of Google's ADK: name one with --adk"
    assert refusal_of(flag) == says
    assert refusal_of("adder.py:root_agent", flag) == says, "also beside something else to serve"


@pytest.mark.parametrize(
    ("flag", "target", "says"),
    [
        ("--adk", "nowhere.py:agent", "there is no file `nowhere.py` in {folder}"),
        ("--adk", "adder.py:root_agnt", "`adder.py` has no `root_agnt`; did you mean `root_agent`?"),
        ("--adk", "adder.py:number", "an object of type `int` is not an agent of Google's ADK"),
        (
            "--adk",
            "adder.py:LlmAgent",
            "the class `LlmAgent` is not an agent of Google's ADK: name an object that is made of it",
        ),
        (
            "--pydantic-ai",
            "adder.py:root_agent",
            "an object of type `LlmAgent` is not an agent of Pydantic AI, it is an agent of Google's ADK",
        ),
        ("--pydantic-ai", "teller.py:speak", "an object of type `function` is not an agent of Pydantic AI"),
        (
            "--langgraph",
            "raw.py:raw",
            "this graph is not compiled: serve the result of `.compile()`, as in `graph = g.compile()`",
        ),
        ("--langgraph", "", "target ``: write `module:name` or `file.py`"),
        (
            "--openai",
            "teller.py",
            "an object of type `Agent` is not an agent of the OpenAI Agents SDK, it is an agent of Pydantic AI",
        ),
    ],
)
def test_a_flag_with_a_wrong_target_is_an_error(folder: Path, flag: str, target: str, says: str) -> None:
    assert refusal_of(flag, target) == f"{flag} {target}: {says.format(folder=folder)}"


def test_two_agents_of_one_name_are_an_error(folder: Path) -> None:
    assert refusal_of("adder.py", "--adk", "adder.py").startswith("two agents are called 'adder'")


@pytest.mark.parametrize(
    ("flag", "module", "extra"),
    [
        ("--adk", "google.adk", "adk"),
        ("--langgraph", "langgraph.pregel", "langgraph"),
        ("--pydantic-ai", "pydantic_ai", "pydantic-ai"),
        ("--openai", "agents", "openai"),
    ],
)
def test_a_framework_that_is_not_installed_is_an_error_with_the_line_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, flag: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (folder / "mine.py").write_text(f"import {module}\nagent = None\n")
    assert (
        refusal_of(flag, "mine.py:agent") == f"{flag} mine.py:agent: needs the extra `{extra}`: {install_line(extra)}"
    )
    key = flag[2:].replace("-", "_")
    (folder / "dragoman.toml").write_text(f'[agents.x]\n{key} = "mine.py:agent"\n')
    assert refusal_of() == f"{TABLE} {key}: needs the extra `{extra}`: {install_line(extra)}"


def test_the_help_names_the_frameworks() -> None:
    help_text = " ".join(CliRunner().invoke(group, ["serve", "--help-all"]).output.split())
    for flag in ("--adk", "--langgraph", "--pydantic-ai", "--openai"):
        assert f"{flag} MODULE:NAME" in help_text
    for framework in ("Google ADK", "LangGraph", "Pydantic AI", "OpenAI Agents SDK"):
        assert framework in help_text


# -- tables ------------------------------------------------------------------------------------------------------------


async def test_a_table_says_what_the_agent_is_called_and_what_it_shows(folder: Path) -> None:
    lines = """
        adk = "adder.py:root_agent"
        show_tools = true
        show_thoughts = false
        description = "Sums"
        version = "2.0"
    """
    agent = agent_of_framework_table(TABLE, "sums", tomllib.loads(lines), folder)
    assert (agent.name, agent.description, agent.version) == ("sums", "Sums", "2.0")
    task, progress = await outcome_of(agent)
    assert [artifact.name for artifact in task.artifacts].count("tool") == 2
    assert progress == set()


def test_a_table_keeps_the_agent_s_own_defaults(folder: Path) -> None:
    agent = agent_of_framework_table(TABLE, "x", {"adk": "adder.py"}, folder)
    assert (agent.name, agent.description, agent.version) == ("x", "Adds", "0.1.0")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("adk = 5", ": adk is a text"),
        ("langgraph = []", ": langgraph is a text"),
        ('adk = "adder.py"\nshow_tools = 1', ": show_tools is true or false"),
        ('adk = "adder.py"\nshow_thoughts = "yes"', ": show_thoughts is true or false"),
        ('adk = "adder.py"\nversion = 2', ": version is a text"),
        (
            'adk = "adder.py"\nshow_tool = true',
            ": there is no setting `show_tool` beside `adk`; did you mean `show_tools`?",
        ),
        (
            'adk = "adder.py"\ncwd = "."',
            ": there is no setting `cwd` beside `adk`; there are default_project_id, description, persona, "
            "show_thoughts, show_tools, skill_bundles, version",
        ),
        (
            'pydantic_ai = "teller.py"\nshow_tools = true',
            ": there is no setting `show_tools` beside `pydantic_ai`; there are default_project_id, description, "
            "persona, skill_bundles, version",
        ),
        ('adk = "adder.py"\nlanggraph = "raw.py"', ": there is no setting `langgraph` beside `adk`; there are "),
        ('adk = ""', " adk: target ``: write `module:name` or `file.py`"),
        ('adk = "adder.py:number"', " adk: an object of type `int` is not an agent of Google's ADK"),
    ],
)
def test_an_error_in_a_table_names_the_table(folder: Path, lines: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        agent_of_framework_table(TABLE, "x", tomllib.loads(lines), folder)
    assert str(caught.value).startswith(TABLE + says)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('pydantic-ai = "teller.py"', "there is no setting `pydantic-ai`; did you mean `pydantic_ai`?"),
        ('target = "adder.py"\nadk = "adder.py"', "there is no setting `adk` beside `target`; there are "),
        ('command = "cat"\nadk = "adder.py"', "there is no setting `adk` beside `command`; there are "),
        (
            'program = "cat"',
            "there is no setting `program`; there are `target`, `a2a` and `mcp`, for programs `command` and `profile`, "
            "and for frameworks `adk`, `langgraph`, `pydantic_ai`, `openai`",
        ),
    ],
)
def test_a_table_with_settings_of_another_kind_is_an_error(folder: Path, lines: str, says: str) -> None:
    (folder / "dragoman.toml").write_text(f"[agents.x]\n{lines}\n")
    assert refusal_of().startswith(f"{TABLE}: {says}")


# -- as a user types it ------------------------------------------------------------------------------------------------


@pytest.fixture
def serving(folder: Path) -> Iterator[Callable[..., str]]:
    """Start `dragoman serve` in a process of its own; gives its address."""
    with ExitStack() as started:

        def serve(*args: str) -> str:
            environment = clean_environment(OTEL_SDK_DISABLED="true")
            return started.enter_context(ServerProcess.serve(folder, *args, environment=environment)).url

        yield serve


def test_agents_of_the_settings_file_are_served_together(folder: Path, serving: Callable[..., str]) -> None:
    etc = folder / "etc"
    etc.mkdir()
    (etc / "own.py").write_text(PYDANTIC_AI)
    (etc / "dragoman.toml").write_text(
        '[agents.first]\npydantic_ai = "own.py:teller"\npersona = { archetype = "host" }\n'
        '[agents.second]\npydantic_ai = "own.py"\n'
    )
    url = serving("--config", "etc/dragoman.toml")
    for place, name in ((url, "first"), (f"{url}/agents/second", "second")):
        with SyncClient(place) as client:
            assert (client.card().name, client.send("hi").text) == (name, "Hello.")
