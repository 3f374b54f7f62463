"""A remote agent as a tool of a model, and as a node of a workflow."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import Workflow
from unit.agents.adk import remote_talk as talks
from unit.agents.adk.scripted import call

from dragoman import Agent, Context, Failed, File
from dragoman.adk import RemoteAgent
from dragoman.outputs import Ask
from dragoman.testing import served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Talk, answer, top = talks.Talk, talks.answer, talks.top
text_of, texts_of, asks_who = talks.text_of, talks.texts_of, talks.asks_who

Run = Callable[[Context], AsyncGenerator[Any, None]]


def caller(tool: Any, *steps: Any) -> tuple[Any, Any]:
    """A talk with a model that makes these calls, and the model."""
    agent = top(*steps, tools=[tool])
    return Talk(agent), agent.model


def results(events: list[Any]) -> list[Any]:
    return [response.response for event in events for response in event.get_function_responses()]


def counting(contexts: list[str]) -> Run:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        contexts.append(ctx.context_id)
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        yield f"{ctx.text}: {ctx.state['count']}"

    return run


# -- a tool ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [RemoteAgent.as_tool, AgentTool])
async def test_calls_of_a_tool_are_one_conversation_also_from_turn_to_turn(remote: Any, wrap: Any) -> None:
    contexts: list[str] = []
    tool = wrap(remote(counting(contexts)))
    ask = [call("far", request="again")]
    talk, _ = caller(tool, ask, ask, "ok", ask, "ok")
    events = await talk.say("go") + await talk.say("and on")
    assert results(events) == [{"result": f"again: {number}"} for number in (1, 2, 3)]
    assert len(set(contexts)) == 1


async def test_calls_made_at_once_are_one_conversation_too(remote: Any) -> None:
    contexts: list[str] = []
    tool = remote(counting(contexts)).as_tool()
    talk, _ = caller(tool, [call("far", request="a"), call("far", request="b")], "ok")
    assert {each["result"] for each in results(await talk.say("go"))} in ({"a: 1", "b: 2"}, {"b: 1", "a: 2"})
    assert len(set(contexts)) == 1


async def test_sessions_do_not_share_a_conversation(remote: Any) -> None:
    contexts: list[str] = []
    tool = remote(counting(contexts)).as_tool()
    for _ in range(2):
        talk, _ = caller(tool, [call("far", request="hi")], "ok")
        assert results(await talk.say("go")) == [{"result": "hi: 1"}]
    assert len(set(contexts)) == 2


async def test_results_that_are_not_text_reach_the_model(remote: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        if ctx.text == "mixed":
            yield "Here. "
        yield {"rows": [1, 2]}
        if ctx.text != "data":
            yield File(b"%PDF", name="report.pdf")

    tool = remote(run).as_tool()
    talk, _ = caller(tool, *([call("far", request=kind)] for kind in ("data", "file", "mixed")), "ok")
    data, file, mixed = results(await talk.say("go"))
    assert data == {"result": {"rows": [1, 2]}}
    assert file == {"result": {"rows": [1, 2]}, "files": ["report.pdf"]}
    assert mixed == {"result": "Here. ", "data": [{"rows": [1, 2]}], "files": ["report.pdf"]}
    session = await talk.session()
    saved = await talk.runner.artifact_service.load_artifact(
        app_name=session.app_name, user_id=session.user_id, session_id=session.id, filename="report.pdf"
    )
    assert saved.inline_data.data == b"%PDF"


async def test_a_question_reaches_the_model_and_its_next_call_answers_it(remote: Any) -> None:
    requests = ("hi", "Ann", "hi again")
    talk, _ = caller(remote(asks_who).as_tool(), *([call("far", request=each)] for each in requests), "ok")
    first, second, third = results(await talk.say("go"))
    assert first["question"] == third["question"] == "Who?"
    assert second == {"result": "Hello Ann"}


async def test_a_call_about_something_else_is_not_swallowed_by_a_question_that_was_answered_elsewhere(
    remote: Any,
) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        if ctx.text == "weather?":
            yield "Sunny."
        elif ctx.resume is None:
            yield Ask("Which city?")
        else:
            yield f"To {ctx.resume.text}!"

    agent = remote(run)
    ask = [call("far", request="book")]
    talk, _ = caller(agent.as_tool(), ask, "ok", [call("far", request="weather?")], "ok")
    await talk.say("go")
    waiting = (await talk.session()).state["dragoman:far"]["task_id"]
    await agent._clients.client().send("Oslo", task=waiting)
    assert results(await talk.say("and?")) == [{"result": "Sunny.", "earlier": "To Oslo!"}]


async def test_a_copy_of_a_tool_asks_too(remote: Any) -> None:
    contexts: list[str] = []
    tool = remote(counting(contexts)).as_tool()
    talk, _ = caller(tool, [call("far", request="hi")], "ok")
    await talk.say("go")
    made = copy.deepcopy(tool)
    talk, _ = caller(made, [call("far", request="hi")], "ok")
    assert results(await talk.say("go")) == [{"result": "hi: 1"}]
    await made._clients.close()


async def test_a_failure_reaches_the_model_as_an_error(remote: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        raise Failed("No such city")
        yield

    talk, _ = caller(remote(run).as_tool(), [call("far", request="book")], "ok")
    assert results(await talk.say("go")) == [{"error": "No such city"}]


async def test_a_model_reads_what_the_card_says_of_the_agent() -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "hi"

    with served(Agent("behind", description="Knows birds", run=run)) as url:
        agent = RemoteAgent(name="far", url=url)
        talk, model = caller(agent.as_tool(), "ok")
        await talk.say("go")
        (declared,) = model.requests[0].config.tools[0].function_declarations
        assert (declared.name, declared.description) == ("far", "Knows birds")
        assert list(declared.parameters.properties) == declared.parameters.required == ["request"]
        named = agent.as_tool("ask_birds", "My words")
        assert (named.name, named.description) == ("ask_birds", "My words")
        await agent.close()


# -- a node of a workflow ----------------------------------------------------------------------------------------------


def workflow(*nodes: Any) -> Workflow:
    return Workflow(name="flow", edges=[("START", *nodes)])


@pytest.mark.parametrize("streaming", [False, True])
async def test_the_output_of_a_node_is_the_whole_answer_and_its_input_the_message(remote: Any, streaming: bool) -> None:
    got: list[Any] = []

    async def thorough(ctx: Context) -> AsyncGenerator[Any, None]:
        await ctx.progress("Looking it up…")
        await ctx.artifact("A note. ", name="note")
        yield f"The answer to {ctx.text} "
        yield "is 42."

    async def second(ctx: Context) -> AsyncGenerator[Any, None]:
        yield f"{ctx.data['answer']}!"

    def between(node_input: Any) -> dict[str, Any]:
        got.append(node_input)
        return {"answer": node_input}

    def last(node_input: Any) -> None:
        got.append(node_input)

    flow = workflow(remote(thorough), between, remote(second, "second"), last)
    await Talk(flow, streaming=streaming).say("life")
    assert got == ["A note. The answer to life is 42.", "A note. The answer to life is 42.!"]


async def test_the_output_of_a_node_may_be_data_or_a_file(remote: Any) -> None:
    got: list[Any] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        if ctx.data is None:
            yield {"rows": 2}
        else:
            yield File(b"%PDF", name="report.pdf")

    def look(node_input: Any) -> Any:
        got.append(node_input)
        return node_input

    def end(node_input: Any) -> None:
        got.append(node_input.parts[0].inline_data.data)

    await Talk(workflow(remote(run), look, remote(run, "second"), end)).say("go")
    assert got == [{"rows": 2}, b"%PDF"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_workflow_waits_for_an_answer_and_goes_on_with_what_becomes_of_it(remote: Any, streaming: bool) -> None:
    got: list[Any] = []

    def end(node_input: Any) -> None:
        got.append(node_input)

    talk = Talk(workflow(remote(asks_who), end), streaming=streaming)
    question = next(event for event in await talk.say("hi") if event.long_running_tool_ids)
    assert got == []
    await talk.say(answer(question, "Ann"))
    assert got == ["Hello Ann"]


async def test_the_text_of_a_callback_is_the_output_of_the_node(remote: Any) -> None:
    got: list[Any] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "never"

    def end(node_input: Any) -> None:
        got.append(node_input)

    agent = remote(run)
    agent.before_agent_callback = lambda callback_context: talks.types.Content(
        role="model", parts=[talks.types.Part(text="not now")]
    )
    await Talk(workflow(agent, end)).say("go")
    assert got == ["not now"]
