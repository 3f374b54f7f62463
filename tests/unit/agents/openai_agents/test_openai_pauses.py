"""An agent of the OpenAI Agents SDK that needs approval: its questions, the answers, and what is kept in between."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import agents as sdk
import pytest

from dragoman import Agent, Part, State
from dragoman.agents.openai_agents import OpenAiRuns
from dragoman.stores.sqlite.store import SqliteStore


def _served(agent: sdk.Agent[Any], **options: Any) -> Agent:
    return Agent("teller", run=partial(OpenAiRuns(agent, **options).run))


async def test_tools_that_need_approval_pause_the_task(start: Any, bank: Any, traced: list[Any]) -> None:
    done: list[int] = []
    engine = await start(_served(bank(done)))
    task = await engine.send("pay", context="c")
    assert (task.state, task.question) == (State.INPUT_REQUIRED, 'May I call pay({"amount":3})?')
    assert task.text == "One moment."
    assert [part.data for part in task.status.message.parts[1:]] == [
        {"id": "c1", "tool": "pay", "arguments": {"amount": 3}},
        {"id": "c2", "tool": "pay", "arguments": {"amount": 5}},
    ]
    task = await engine.send("yes, but less", task=task)
    assert task.question == 'May I call pay({"amount":3})? Please answer yes or no.'
    task = await engine.send("yes", task=task)
    assert (task.question, done) == ('May I call pay({"amount":5})?', [])
    task = await engine.send("no, that is too much", task=task)
    assert (task.state, done) == (State.COMPLETED, [3])
    assert task.text == 'One moment.\n\nResults: ["paid 3", "no, that is too much"]'
    assert len(task.artifacts) == 1
    # What was approved is part of what the conversation remembers.
    after = await engine.send("what was it?", context="c")
    assert after.text == 'Results: ["paid 3", "no, that is too much"]'
    assert traced == []


async def test_one_data_part_answers_all_calls(start: Any, bank: Any) -> None:
    done: list[int] = []
    engine = await start(_served(bank(done)))
    task = await engine.send("pay")
    task = await engine.send(None, parts=(Part(data={"c1": False, "c2": {"approved": True}}),), task=task)
    assert (task.state, done) == (State.COMPLETED, [5])


# -- what is kept ------------------------------------------------------------------------------------------------------


async def _kept(engine: Any, task: Any) -> str:
    """Everything that is stored beside the events of a task."""
    notes = await engine.store.notes((await engine.store.task(task.id)).row.number)
    return b"\n".join(note.body for note in notes).decode()


async def test_a_question_that_is_asked_again_is_not_kept_again_with_all_it_needs(start: Any, bank: Any) -> None:
    engine = await start(_served(bank([])))
    task = await engine.send("pay " + "x" * 50_000)
    before = len(await _kept(engine, task))
    for _ in range(5):
        task = await engine.send("hm", task=task)
    assert len(await _kept(engine, task)) - before < 10_000
    task = await engine.send(None, parts=(Part(data={"c1": True, "c2": True}),), task=task)
    assert task.state is State.COMPLETED


@dataclasses.dataclass
class Vault:
    key: str


CONTEXTS = {"a dict": {"key": "hunter2"}, "a dict of objects": {"key": "hunter2", "door": object()}}


@pytest.mark.parametrize("context", [*CONTEXTS.values(), Vault("hunter2")], ids=[*CONTEXTS, "an object"])
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "as a tool of another"])
async def test_the_context_is_not_stored_and_the_run_that_goes_on_has_it(
    start: Any, made: Any, scripted: Any, context: Any, nested: bool, tmp_path: Path
) -> None:
    @sdk.function_tool(needs_approval=True)
    async def unlock(run: sdk.RunContextWrapper[Any]) -> str:
        key = run.context["key"] if isinstance(run.context, dict) else run.context.key
        return f"{len(key)} letters"

    async def speak(items: list[Any]) -> AsyncIterator[Any]:
        results = scripted.results(items)
        yield results[0] if results else ("unlock", {}, "c1")

    async def outer(items: list[Any]) -> AsyncIterator[Any]:
        results = scripted.results(items)
        yield results[0] if results else ("helper", {"input": "unlock"}, "c2")

    def agent() -> Agent:
        helper = made(speak, tools=[unlock])
        return _served(made(outer, tools=[helper.as_tool("helper", "Helps.")]) if nested else helper, context=context)

    engine = await start(agent(), store=SqliteStore(tmp_path / "tasks.db"))
    task = await engine.send("go")
    assert task.question == "May I call unlock({})?"
    kept = await _kept(engine, task)
    assert "context_meta" in kept
    assert "hunter2" not in kept
    await engine.connection.close()
    engine = await start(agent(), store=SqliteStore(tmp_path / "tasks.db"))
    assert (await engine.send("yes", task=task)).text == "7 letters"
