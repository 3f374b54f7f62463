"""A LangGraph graph that waits for people: its interrupts are questions, and the answers go back to it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict
from unit.agents.langgraph.graphs import chain, served, within

from dragoman import Agent, Part, State
from dragoman.agents.langgraph.run import LangGraphRuns
from dragoman.server.agent.base import Backend
from dragoman.stores.sqlite.store import SqliteStore


def _asking(question: Any, **options: Any) -> Callable[..., Any]:
    async def ask(state: MessagesState) -> dict[str, Any]:
        answer = interrupt(question, **options)
        return {"messages": [AIMessage(f"You said {answer!r}.")]}

    return ask


async def begin(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("Well.")]}


async def test_data_is_an_answer_too(start: Any) -> None:
    engine = await start(served(chain(begin, _asking({"question": "Where?", "choices": ["Porto"]}))))
    task = await engine.send("go")
    assert task.question == "Where?"
    assert task.status.message.parts[1].data["value"] == {"question": "Where?", "choices": ["Porto"]}
    task = await engine.send(None, parts=(Part(data={"city": "Porto"}),), task=task)
    assert task.text == "Well.\n\nYou said {'city': 'Porto'}."


async def test_an_interrupt_in_a_graph_within_the_graph_is_asked_once(start: Any) -> None:
    engine = await start(served(within(chain(begin, _asking("Sure?")))))
    task = await engine.send("go")
    assert (task.question, task.text) == ("Sure?", "Well.")
    assert (await engine.send("yes", task=task)).text == "Well.\n\nYou said 'yes'."


# -- several at once ---------------------------------------------------------------------------------------------------


class Guests(TypedDict):
    party: str
    answers: Annotated[list[str], operator.add]


def _party() -> Any:
    builder = StateGraph(Guests)
    for name in ("anna", "bert"):

        def ask(state: Guests, name: str = name) -> dict[str, Any]:
            return {"answers": [f"{name}: {interrupt(f'Does {name} come?')}"]}

        builder.add_node(name, ask)
        builder.add_edge(START, name)
    return builder.compile(checkpointer=InMemorySaver())


async def test_several_interrupts_are_asked_one_after_the_other(start: Any) -> None:
    engine = await start(served(_party()))
    task = await engine.send(None, parts=(Part(data={"party": "birthday"}),))
    assert task.question == "Does anna come?"
    task = await engine.send("yes", task=task)
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "Does bert come?")
    task = await engine.send("no", task=task)
    assert task.data == {"party": "birthday", "answers": ["anna: yes", "bert: no"]}


async def test_several_interrupts_are_answered_at_once_by_their_ids(start: Any) -> None:
    engine = await start(served(_party()))
    task = await engine.send(None, parts=(Part(data={"party": "birthday"}),))
    shown = [part.data for part in task.status.message.parts[1:]]
    answer = {one["id"]: one["value"].split()[1] for one in shown}
    task = await engine.send(None, parts=(Part(data=answer),), task=task)
    assert task.data == {"party": "birthday", "answers": ["anna: anna", "bert: bert"]}


# -- what the graph wants ----------------------------------------------------------------------------------------------


class Trip(BaseModel):
    days: int


async def test_an_answer_that_does_not_fit_is_asked_for_again(start: Any) -> None:
    engine = await start(served(chain(begin, _asking("How long?", response_schema=Trip))))
    task = await engine.send("go")
    assert task.status.message.parts[1].data["schema"]["required"] == ["days"]
    task = await engine.send(None, parts=(Part(data={"days": "many"}),), task=task)
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "How long? The last answer does not fit.")
    task = await engine.send('{"days": 3}', task=task)
    assert task.text == "Well.\n\nYou said Trip(days=3)."


REQUEST = {
    "action_requests": [{"name": "pay", "args": {"amount": 3}, "description": "Tool execution requires approval"}],
    "review_configs": [{"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]}],
}


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("yes", {"type": "approve"}),
        ("no, too much", {"type": "reject", "message": "no, too much"}),
        ({"decisions": [{"type": "edit"}]}, {"type": "edit"}),
    ],
)
async def test_approvals_that_langchain_asks_for_are_given_in_its_words(start: Any, answer: Any, decision: Any) -> None:
    engine = await start(served(chain(begin, _asking(REQUEST))))
    task = await engine.send("go")
    assert task.question == 'May I call pay({"amount":3})?'
    task = await engine.send("hm", task=task)
    assert task.question == 'May I call pay({"amount":3})? Please answer yes or no.'
    answers = {"text": answer} if isinstance(answer, str) else {"text": None, "parts": (Part(data=answer),)}
    task = await engine.send(answers.pop("text"), task=task, **answers)
    assert task.text == f"Well.\n\nYou said { ({'decisions': [decision]})!r}."


async def test_a_file_alone_is_no_answer(start: Any) -> None:
    engine = await start(served(chain(begin, _asking("Which photo?"))))
    task = await engine.send("go")
    task = await engine.send(None, parts=(Part(raw=b"1", media_type="image/png"),), task=task)
    assert task.question == "Which photo? Please answer with a text or with data."
    assert (await engine.send("this", task=task)).text == "Well.\n\nYou said 'this'."


@pytest.mark.parametrize(
    ("answer", "state", "text"),
    [("yes", State.COMPLETED, "Well.\n\nDone."), ("no", State.REJECTED, "Well.")],
)
async def test_a_breakpoint_asks_whether_to_go_on(start: Any, answer: str, state: State, text: str) -> None:
    async def done(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Done.")]}

    engine = await start(served(chain(begin, done, interrupt_before=["done"])))
    task = await engine.send("go")
    assert task.question == "The graph has stopped at a breakpoint. Shall it go on?"
    task = await engine.send(answer, task=task)
    assert (task.state, task.text) == (state, text)


# -- what is lost, and what is not -------------------------------------------------------------------------------------


async def test_without_a_checkpointer_a_restart_loses_the_question_and_says_so(start: Any, tmp_path: Path) -> None:
    engine = await start(served(chain(begin, _asking("Sure?"))), store=SqliteStore(tmp_path / "t.db"))
    task = await engine.send("go")
    await engine.connection.close()
    engine = await start(served(chain(begin, _asking("Sure?"))), store=SqliteStore(tmp_path / "t.db"))
    task = await engine.send("yes", task=task)
    assert (task.state, task.status.message.text) == (
        State.FAILED,
        "the graph does not wait for this answer any more",
    )


async def test_a_conversation_that_has_gone_on_does_not_take_an_old_answer(start: Any) -> None:
    engine = await start(served(chain(begin, _asking("Sure?"), checkpointer=InMemorySaver())))
    old = await engine.send("go", context="c")
    new = await engine.send("something else", context="c")
    assert (await engine.send("yes", task=old)).state is State.FAILED
    assert (await engine.send("yes", task=new)).text == "Well.\n\nYou said 'yes'."


@pytest.mark.parametrize("end", ["answer", "cancel"])
async def test_without_a_checkpointer_nothing_stays_in_the_process(start: Any, end: str) -> None:
    runs = LangGraphRuns(chain(begin, _asking("Sure?")))
    agent = Agent("graph", Backend(runs.run, canceled=runs.canceled))
    engine = await start(agent)
    task = await engine.send("go")
    assert runs._graph.checkpointer.storage
    await (engine.send("yes", task=task) if end == "answer" else engine.cancel(task))
    await engine.idle()
    assert not runs._graph.checkpointer.storage
