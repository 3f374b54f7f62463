"""Several questions of one run, asked one after the other or answered at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.agents.pause import Pause, Pending, pause_of
from dragoman.engine.outputs import Answered

PAUSE = Pause(
    (
        Pending("a", "May I?", {"id": "a"}, approval=True),
        Pending("b", "Which?", {"id": "b"}),
        Pending("c", "And this?", {"id": "c"}, approval=True),
    ),
    held={"kept": 1},
)


def _after(pause: Pause, text: str = "", data: Any = None) -> Pause:
    """The pause after an answer, kept as JSON in between as the engine does."""
    ask = pause.ask()
    ref = msgspec.json.decode(msgspec.json.encode(ask.ref))
    found = pause_of(Answered(ask.question, ref, text, data))
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
    assert (done.open, done.answers, done.held) == ((), {"a": "yes", "b": "that one", "c": "no"}, {"kept": 1})


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
