"""Several questions of one run, asked one after the other or answered at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Agent, Context, State
from dragoman.agents.pause import Pause, Pending, load_state, pause_of, save_state
from dragoman.engine.journal.replay import AnsweredQuestion
from dragoman.stores.sqlite.store import SqliteStore

PAUSE = Pause(
    (
        Pending("a", "May I?", {"id": "a"}, approval=True),
        Pending("b", "Which?", {"id": "b"}),
        Pending("c", "And this?", {"id": "c"}, approval=True),
    ),
    state={"kept": 1},
)


def _after(pause: Pause, text: str = "", data: Any = None) -> Pause:
    """The pause after an answer, kept as JSON in between as the engine does."""
    ask = pause.ask()
    ref = msgspec.json.decode(msgspec.json.encode(ask.ref))
    found = pause_of(AnsweredQuestion(ask.question, ref, text, data))
    assert found is not None
    return found


def test_questions_come_one_after_the_other_and_what_is_open_is_shown() -> None:
    ask = PAUSE.ask()
    assert (ask.question, ask.details) == ("May I?", ({"id": "a"}, {"id": "b"}, {"id": "c"}))
    second = _after(PAUSE, "yes")
    assert (second.ask().question, second.ask().details) == ("Which?", ({"id": "b"}, {"id": "c"}))
    third = _after(second, "that one")
    assert third.ask().question == "And this?"
    done = _after(third, "no")
    assert (done.open, done.answers, done.state) == ((), {"a": "yes", "b": "that one", "c": "no"}, {"kept": 1})


def test_data_answers_several_questions_by_their_ids() -> None:
    done = _after(PAUSE, data={"a": True, "b": {"x": 1}, "c": {"approved": False}})
    assert (done.open, done.answers) == ((), {"a": True, "b": {"x": 1}, "c": {"approved": False}})
    some = _after(PAUSE, data={"b": 2})
    assert [one.id for one in some.open] == ["a", "c"]


def test_data_with_other_names_is_the_answer_to_the_next_question() -> None:
    assert _after(_after(PAUSE, "yes"), data={"city": "Porto"}).answers["b"] == {"city": "Porto"}


@pytest.mark.parametrize(("text", "data"), [("perhaps", None), ("", {"a": "perhaps", "b": 1})])
def test_an_approval_that_is_neither_yes_nor_no_is_asked_for_again(text: str, data: Any) -> None:
    again = _after(PAUSE, text, data)
    assert again.ask().question == "May I? Please answer yes or no."
    assert "a" not in again.answers
    assert _after(again, "yes").ask().question in ("Which?", "And this?")


def test_a_first_run_has_no_pause() -> None:
    assert pause_of(None) is None


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_answer_with_nothing_in_it_is_asked_for_again(text: str) -> None:
    second = _after(PAUSE, "yes")
    again = _after(second, text)
    assert again.ask().question == "Which? Please answer with a text or with data."
    assert again.answers == {"a": "yes"}
    assert _after(again, "this").ask().question == "And this?"


def test_earlier_answers_are_kept() -> None:
    second = _after(PAUSE, data={"a": True})
    done = _after(second, data={"a": False, "b": 1, "c": True})
    assert (done.open, done.answers) == ((), {"a": True, "b": 1, "c": True})
    # And what says nothing new is no answer to what is open.
    assert _after(second, data={"a": False}).ask().question == "Which?"


def test_data_is_the_answer_and_a_text_beside_it_the_reason_of_a_no() -> None:
    done = _after(PAUSE, "too much", data={"a": False, "b": False, "c": {"approved": False, "message": "late"}})
    assert done.answers == {
        "a": {"approved": False, "message": "too much"},
        "b": False,
        "c": {"approved": False, "message": "late"},
    }
    assert _after(PAUSE, "go on", data=True).answers == {"a": True}


async def test_the_state_of_a_pause_is_written_once_and_found_again(start: Any, tmp_path: Path) -> None:
    large = "x" * 100_000

    async def run(ctx: Context) -> AsyncIterator[Any]:
        pause = pause_of(ctx.resume)
        if pause is None:
            pause = Pause(PAUSE.pending[:1], await save_state(ctx, [large]))
        if pause.open:
            yield pause.ask()
        else:
            yield f"{(await load_state(ctx, pause.state)) == [large]} {len(msgspec.json.encode(ctx.answers)) < 5000}"

    engine = await start(Agent("test", run=run), store=SqliteStore(tmp_path / "tasks.db"))
    task = await engine.send("go")
    for _ in range(5):
        task = await engine.send("hm", task=task)
    await engine.connection.close()
    engine = await start(Agent("test", run=run), store=SqliteStore(tmp_path / "tasks.db"))
    assert (await engine.send("yes", task=task)).text == "True True"


async def test_a_lost_state_of_a_pause_fails_the_task_in_plain_words(start: Any) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        yield await load_state(ctx, "nothing")

    task = await (await start(Agent("test", run=run))).send("go")
    assert (task.state, task.error) == (State.FAILED, "the agent does not wait for this answer any more")
