"""What an ADK agent says in a run: once, in order, in paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.adk.speech import Speech
from dragoman.engine.outputs import Replace
from dragoman.model.part import Part

FILE = Part(raw=b"x")


def said(speech: Speech, *steps: tuple[str, str | Sequence[Any]]) -> list[Any]:
    """The outputs of steps: a piece is a text, a whole a list."""
    outputs: list[Any] = []
    for who, step in steps:
        outputs += speech.piece(who, step) if isinstance(step, str) else speech.whole(who, step)
    return [*outputs, *speech.end()]


def shown(outputs: Sequence[Any], before: str = "") -> str:
    """The text that a caller has in the end."""
    for output in outputs:
        if isinstance(output, Replace):
            before = output.value
        elif isinstance(output, str):
            before += output
    return before


def test_a_whole_text_after_its_pieces_is_not_repeated() -> None:
    assert said(Speech(), ("a", "x"), ("a", "y"), ("a", ["xy"])) == ["x", "y"]


def test_a_whole_text_that_differs_replaces_only_its_own_pieces() -> None:
    outputs = said(Speech(), ("a", ["one"]), ("a", "tw"), ("a", ["zwei"]))
    assert outputs[-1] == Replace("one\n\nzwei")


def test_after_a_replacement_the_text_goes_on() -> None:
    assert shown(said(Speech(), ("a", "tw"), ("a", ["zwei"]), ("a", "drei"), ("a", ["drei"]))) == "zwei\n\ndrei"


def test_what_was_said_before_a_pause_stays() -> None:
    assert said(Speech("one"), ("a", "two"), ("a", ["two"])) == ["\n\ntwo"]
    assert said(Speech("one"), ("a", "tw"), ("a", ["zwei"]))[-1] == Replace("one\n\nzwei")


def test_no_empty_line_is_added_to_one_that_is_there() -> None:
    assert said(Speech(), ("a", ["one\n"]), ("a", ["two"])) == ["one\n", "two"]


def test_another_voice_is_told_when_the_first_has_finished() -> None:
    steps = [("a", "a1"), ("b", "b1"), ("b", ["b1b2", FILE]), ("a", "a2"), ("a", ["a1a2"])]
    assert said(Speech(), *steps) == ["a1", "a2", "\n\nb1b2", FILE]


def test_another_voice_is_told_at_the_end_when_the_first_never_finishes() -> None:
    assert said(Speech(), ("a", "a1"), ("b", ["b"])) == ["a1", "\n\nb"]


def test_a_turn_that_ends_without_a_whole_text_keeps_its_pieces() -> None:
    assert said(Speech(), ("a", "one"), ("a", []), ("a", "two"), ("a", ["two"])) == ["one", "\n\ntwo"]


voices = st.lists(st.lists(st.text("xyz ", min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=4)


@given(voices, st.randoms())
def test_however_voices_mix_each_is_heard_whole_and_once(turns: list[list[str]], order: Any) -> None:
    steps = {str(n): [*turn, ["".join(turn)]] for n, turn in enumerate(turns)}
    speech, mixed = Speech(), []
    while any(steps.values()):
        who = order.choice([name for name, rest in steps.items() if rest])
        mixed.append((who, steps[who].pop(0)))
    assert sorted(shown(said(speech, *mixed)).split("\n\n")) == sorted("".join(turn) for turn in turns)
