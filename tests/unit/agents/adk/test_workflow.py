"""Workflows of ADK 2: what they come to is the answer, and their questions pause the task."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from unit.agents.adk.scripted import llm, says, served

from dragoman import Client
from dragoman.agents.adk.offers import offers_of
from dragoman.model.state import State

workflow = pytest.importorskip("google.adk.workflow", reason="ADK 1 has no workflows")
Workflow = workflow.Workflow


def count(node_input: str) -> dict[str, int]:
    """Count the letters."""
    return {"letters": len(node_input)}


def shout(node_input: str) -> str:
    """Say it louder."""
    return node_input.upper()


async def sent(agent: Any, *texts: str) -> Any:
    async with Client(served(agent)) as client:
        task = None
        for text in texts:
            task = await client.send(text, task=task)
        return task


async def test_the_result_of_a_workflow_is_the_answer_and_those_of_its_steps_are_not() -> None:
    task = await sent(Workflow(name="flow", edges=[("START", shout, count)]), "abc")
    assert task.state is State.COMPLETED
    assert task.data == {"letters": 3}
    assert type(task.data["letters"]) is int
    assert task.text == ""


@pytest.mark.parametrize(
    ("steps", "text"),
    [([shout], "ABC"), ([shout, llm(says("It is ", "loud."))], "It is loud.")],
    ids=["of a function", "of an agent"],
)
async def test_a_text_at_the_end_of_a_workflow_is_its_text_once(steps: list[Any], text: str) -> None:
    task = await sent(Workflow(name="flow", edges=[("START", *steps)]), "abc")
    assert (task.text, len(task.artifacts)) == (text, 1)


async def test_a_question_of_a_workflow_pauses_the_task_until_the_answer_fits() -> None:
    from google.adk.events import RequestInput

    async def ask(node_input: str) -> AsyncGenerator[Any, None]:
        """Ask."""
        yield RequestInput(message="How many?", response_schema=int)

    def twice(node_input: int) -> dict[str, int]:
        return {"twice": node_input * 2}

    flow = Workflow(name="flow", edges=[("START", ask, twice)])
    async with Client(served(flow)) as client:
        task = await client.send("go")
        assert (task.state, task.question.startswith("How many?")) == (State.INPUT_REQUIRED, True)
        task = await client.send("a lot", task=task)
        assert (task.state, "a whole number" in task.question) == (State.INPUT_REQUIRED, True)
        task = await client.send("21", task=task)
    assert (task.state, task.data) == (State.COMPLETED, {"twice": 42})


async def test_a_step_that_works_when_it_is_tried_again_has_not_failed() -> None:
    tries: list[int] = []

    def shaky(node_input: str) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("secret-db-password=hunter2")
        return "at last"

    retry = workflow.RetryConfig(max_attempts=2, initial_delay=0, jitter=0)
    step = workflow.FunctionNode(func=shaky, name="shaky", retry_config=retry)
    task = await sent(Workflow(name="flow", edges=[("START", step)]), "go")
    assert (task.state, task.text, len(tries)) == (State.COMPLETED, "at last", 2)


def bad(node_input: str) -> str:
    """Break."""
    raise ValueError("secret-db-password=hunter2")


@workflow.node(rerun_on_resume=True)
async def careful(ctx: Any, node_input: str) -> AsyncGenerator[Any, None]:
    try:
        await ctx.run_node(bad, node_input)
    except Exception:  # noqa: BLE001
        if node_input == "go on":
            yield "got over it"


@pytest.mark.parametrize(
    ("step", "text", "state"),
    [(bad, "go", State.FAILED), (careful, "go", State.FAILED), (careful, "go on", State.COMPLETED)],
    ids=["raised", "caught", "got over"],
)
async def test_the_text_of_an_exception_in_a_step_is_hidden(step: Any, text: str, state: State) -> None:
    task = await sent(Workflow(name="flow", edges=[("START", step)]), text)
    assert task.state is state
    assert "hunter2" not in repr(task)


def test_the_steps_of_a_workflow_are_skills() -> None:
    skills = offers_of(Workflow(name="flow", edges=[("START", shout, count)]))
    assert [(skill.id, skill.description) for skill in skills] == [
        ("flow", "Runs Flow"),
        ("shout", "Say it louder."),
        ("count", "Count the letters."),
    ]
