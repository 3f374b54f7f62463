"""An ADK agent as an A2A agent: what it says arrives once, in pieces, and whole."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from google.adk.apps.app import App
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from unit.agents.adk.scripted import Says, call, llm, parts, says, served, streamed, thought

from dragoman import Agent, Client
from dragoman.agents.adk.run import AdkRuns
from dragoman.model.error import ConfigError
from dragoman.model.state import State

# ADK 2 says so of the agents that run others. They are what 1.x has, and what people use.
pytestmark = pytest.mark.filterwarnings("ignore:(Sequential|Parallel)Agent is deprecated:DeprecationWarning")


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


# -- output ------------------------------------------------------------------------------------------------------------


async def test_an_agent_that_says_nothing_completes_without_an_artifact() -> None:
    events, task = await streamed(served(Says(name="quiet", events=[])))
    assert task.state is State.COMPLETED
    assert not task.artifacts
    assert not [each for each in events if each.kind == "artifact"]


# -- tools and thoughts ------------------------------------------------------------------------------------------------

CODE = types.Part(executable_code=types.ExecutableCode(code="1+1", language=types.Language.PYTHON))
RAN = types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="2"))


async def test_tool_calls_thoughts_and_code_are_nobody_elses_business() -> None:
    turns = [parts(thought("hm"), call("add", a=2, b=3))], [parts(thought("aha"), CODE, RAN, "five")]
    events, task = await streamed(served(llm(*turns, tools=[add])))
    assert task.text == "five"
    assert len(task.artifacts) == 1
    assert not [each for each in events if each.kind == "status" and each.raw.status.message]


async def test_tool_calls_can_be_shown_beside_the_answer_and_whole_numbers_stay_whole() -> None:
    turns = [parts(call("add", a=2, b=3))], [parts(CODE, RAN, "five")]
    _, task = await streamed(served(llm(*turns, tools=[add]), show_tools=True))
    shown = [artifact for artifact in task.artifacts if artifact.name == "tool"]
    kinds = [artifact.parts[0].metadata["adk_type"] for artifact in shown]
    assert kinds == ["function_call", "function_response", "executable_code", "code_execution_result"]
    assert shown[0].parts[0].data["args"] == {"a": 2, "b": 3}
    assert type(shown[0].parts[0].data["args"]["a"]) is int
    assert shown[0].metadata == {"adk_author": "helper"}
    assert [artifact.text for artifact in task.artifacts if artifact.name != "tool"] == ["five"]


async def test_a_file_that_is_named_like_an_answer_is_not_taken_for_it() -> None:
    async def save(tool_context: ToolContext) -> str:
        """Save."""
        await tool_context.save_artifact("my-result", types.Part(text="FILE"))
        return "saved"

    def careful(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        del callback_context
        whole = not llm_response.partial and llm_response.content is not None
        return parts("changed") if whole and llm_response.content.parts[0].text == "after" else None

    def slow() -> None:
        """Wait."""

    turns = [parts(call("save"))], [parts(call("slow"))], says("af", "ter")
    agent = llm(*turns, tools=[save, LongRunningFunctionTool(slow)], after_model_callback=careful)
    async with Client(served(agent)) as client:
        task = await client.send("5", task=await client.send("hi"))
    assert [artifact.text for artifact in task.artifacts] == ["FILE", "changed"]


@pytest.mark.parametrize("show", [False, True])
async def test_tasks_and_thoughts_have_the_marks_by_which_adk_knows_them(show: bool) -> None:
    turn = [parts(thought("let me "), piece=True), parts(thought("let me think"), "five")]
    events, task = await streamed(Agent.from_adk(llm(turn), show_thoughts=show))
    mark = {"https://google.github.io/adk-docs/a2a/a2a-extension/": {"adk_agent_executor_v2": True}}
    assert (task.text, task.metadata) == ("five", mark)
    statuses = [each.raw for each in events if each.kind == "status"]
    assert all(status.metadata == mark for status in statuses)
    notes = [status.status.message for status in statuses if status.status.message]
    assert [(note.text, note.parts[0].metadata) for note in notes] == [("let me think", {"adk_thought": True})] * show


async def test_saved_artifacts_are_delivered() -> None:
    async def draw(tool_context: ToolContext) -> str:
        """Draw."""
        part = types.Part(inline_data=types.Blob(data=b"png", mime_type="image/png"))
        await tool_context.save_artifact("a.png", part)
        await tool_context.save_artifact("note.txt", types.Part(text="a note"))
        return "drawn"

    _, task = await streamed(served(llm([parts(call("draw"))], says("Here."), tools=[draw])))
    found = {artifact.artifact_id: artifact for artifact in task.artifacts}
    assert found["a.png@0"].name == "a.png"
    part = found["a.png@0"].parts[0]
    assert (part.raw, part.media_type, part.filename) == (b"png", "image/png", "a.png")
    assert found["note.txt@0"].text == "a note"
    assert found["helper-result"].text == "Here."


# -- what is served ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-50", "S2-91")
async def test_a_runner_with_its_own_services_and_name_is_used_as_it_is() -> None:
    sessions = InMemorySessionService()
    runner = Runner(
        app_name="desk",
        agent=llm(says("hello")),
        session_service=sessions,
        artifact_service=InMemoryArtifactService(),
        memory_service=InMemoryMemoryService(),
    )
    runs = AdkRuns(runner, app_name="desk")
    assert runs.runner is runner
    async with Client(served(runner)) as client:
        task = await client.send("hi")
    known = await sessions.list_sessions(app_name="desk", user_id=f"A2A_USER_{task.context_id}")
    assert [session.id for session in known.sessions] == [task.context_id]


async def test_an_app_is_served_and_keeps_its_name() -> None:
    runs = AdkRuns(App(name="desk", root_agent=llm(says("hello"))))
    assert (runs.name, runs.runner.app_name) == ("helper", "desk")


async def test_a_runner_without_artifacts_runs() -> None:
    runner = Runner(app_name="desk", agent=llm(says("hello")), session_service=InMemorySessionService())
    _, task = await streamed(served(runner))
    assert task.text == "hello"


@pytest.mark.parametrize(
    ("make", "says_why"),
    [
        (lambda: AdkRuns(object()), "and not object"),
        (lambda: AdkRuns(InMemoryRunner(agent=llm(), app_name="a"), app_name="b"), "already called `a`"),
        (lambda: AdkRuns(llm(), escalate="shout"), "complete"),  # type: ignore[arg-type]
    ],
)
def test_an_object_that_cannot_be_served_is_refused_with_the_reason(make: Any, says_why: str) -> None:
    with pytest.raises(ConfigError, match=says_why):
        make()


async def test_only_a_runner_that_was_made_here_is_closed() -> None:
    closed: list[str] = []

    class Noting(InMemoryRunner):
        async def close(self) -> None:
            closed.append("given")
            await super().close()

    await AdkRuns(Noting(agent=llm(), app_name="a")).close()
    await AdkRuns(llm()).close()
    assert not closed


@pytest.mark.requirement("S2-92")
@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        ("dragoman, dragoman.server.agent.agent", ("google",)),
        ("dragoman.agents.adk.run", ("dragoman.server", "dragoman.transports", "uvicorn")),
    ],
)
async def test_the_agent_kit_and_the_protocol_are_apart(imported: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {imported}; print([name for name in sys.modules if name.startswith({unwanted!r})])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert (out.decode().strip(), err.decode()) == ("[]", "")
