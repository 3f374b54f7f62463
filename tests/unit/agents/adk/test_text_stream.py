"""What an ADK agent says in a run: once, in order, in paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.adk.text_stream import AdkTextStream, Speaker
from dragoman.engine.execute.outputs import Replace
from dragoman.model.part import Part

FILE = Part(raw=b"x")


def outputs_of_step(speech: AdkTextStream, who: str | Speaker, step: str | Sequence[Any] | None) -> list[Any]:
    """The outputs of a step: a piece is a text, a whole a list, and an empty list ends a turn; None takes it back."""
    # Who is only a letter speaks beside the others.
    voice = who if isinstance(who, Speaker) else Speaker(who, f"both.{who}")
    if step is None:
        return list(speech.retract(voice))
    if isinstance(step, str):
        return list(speech.add_chunk(voice, step))
    return list(speech.add_message(voice, step, ends=not step))


def outputs_of(speech: AdkTextStream, *steps: tuple[str | Speaker, str | Sequence[Any] | None]) -> list[Any]:
    """The outputs of all steps, and of the end."""
    outputs = [output for who, step in steps for output in outputs_of_step(speech, who, step)]
    return [*outputs, *speech.finish()]


def shown(outputs: Sequence[Any], before: str = "") -> str:
    """The text that a caller has in the end."""
    for output in outputs:
        if isinstance(output, Replace):
            before = output.value
        elif isinstance(output, str):
            before += output
    return before


def test_a_whole_text_after_its_pieces_is_not_repeated() -> None:
    assert outputs_of(AdkTextStream(), ("a", "x"), ("a", "y"), ("a", ["xy"])) == ["x", "y"]
    # It may have more than they have.
    assert shown(outputs_of(AdkTextStream(), ("a", "x"), ("a", ["xyz"]))) == "xyz"


def test_a_whole_text_that_differs_replaces_only_its_own_pieces() -> None:
    outputs = outputs_of(AdkTextStream(), ("a", ["one"]), ("a", "tw"), ("a", ["zwei"]))
    assert outputs[-1] == Replace("one\n\nzwei")


def test_after_a_replacement_the_text_goes_on() -> None:
    assert (
        shown(outputs_of(AdkTextStream(), ("a", "tw"), ("a", ["zwei"]), ("a", "drei"), ("a", ["drei"])))
        == "zwei\n\ndrei"
    )


def test_text_before_a_pause_is_kept() -> None:
    assert outputs_of(AdkTextStream("one"), ("a", "two"), ("a", ["two"])) == ["\n\ntwo"]
    assert outputs_of(AdkTextStream("one"), ("a", "tw"), ("a", ["zwei"]))[-1] == Replace("one\n\nzwei")


def test_no_empty_line_is_added_to_one_that_is_there() -> None:
    assert outputs_of(AdkTextStream(), ("a", ["one\n"]), ("a", ["two"])) == ["one\n", "two"]
    assert outputs_of(AdkTextStream("one"), ("a", "\n\n"), ("a", "two"), ("a", ["\n\ntwo"])) == ["\n\n", "two"]


def test_a_second_speaker_follows_when_the_first_has_finished() -> None:
    steps = [("a", "a1"), ("b", "b1"), ("b", ["b1b2", FILE]), ("a", "a2"), ("a", ["a1a2"])]
    assert outputs_of(AdkTextStream(), *steps) == ["a1", "a2", "\n\nb1b2", FILE]


def test_a_waiting_speaker_follows_at_the_end_when_the_first_never_finishes() -> None:
    assert outputs_of(AdkTextStream(), ("a", "a1"), ("b", ["b"])) == ["a1", "\n\nb"]


def test_a_turn_that_ends_without_a_whole_text_keeps_its_pieces() -> None:
    assert outputs_of(AdkTextStream(), ("a", "one"), ("a", []), ("a", "two"), ("a", ["two"])) == ["one", "\n\ntwo"]


def test_files_between_pieces_and_the_whole_end_nothing() -> None:
    assert outputs_of(AdkTextStream(), ("a", "on"), ("a", [FILE]), ("a", "e"), ("a", ["one"])) == ["on", FILE, "e"]


def test_a_waiting_speaker_is_streamed_in_chunks_once_the_first_has_finished() -> None:
    speech = AdkTextStream()
    assert [
        outputs_of_step(speech, who, step) for who, step in (("a", "a1"), ("b", "b1"), ("a", ["a1"]), ("b", "b2"))
    ] == [
        ["a1"],
        [],
        ["\n\nb1"],
        ["b2"],
    ]
    assert outputs_of(speech, ("b", ["b1b2"])) == []


def test_chunks_of_a_waiting_speaker_are_not_lost() -> None:
    steps = [("a", "a1"), ("b", "b1"), ("b", [FILE]), ("b", "b2"), ("c", "c1"), ("c", [])]
    assert shown(outputs_of(AdkTextStream(), *steps)) == "a1\n\nb1b2\n\nc1"


def test_the_next_speaker_of_a_branch_ends_the_turn_before() -> None:
    speech = AdkTextStream()
    steps = [(Speaker("a"), "a1"), (Speaker("b"), "b1"), (Speaker("c"), ["c1"]), (Speaker("a"), "a2")]
    assert [outputs_of_step(speech, *step) for step in steps] == [
        ["a1"],
        ["\n\nb1"],
        ["\n\nc1"],
        ["\n\na2"],
    ]


def test_branches_end_the_turn_before_them_and_what_follows_ends_theirs() -> None:
    first, one, two, last = Speaker("first"), Speaker("one", "both.one"), Speaker("two", "both.two"), Speaker("last")
    speech = AdkTextStream()
    steps = [(first, "1"), (one, "a"), (two, "b"), (last, "z")]
    assert [outputs_of_step(speech, *step) for step in steps] == [["1"], ["\n\na"], [], ["\n\nb", "\n\nz"]]


def test_waiting_text_keeps_the_order_of_its_branch() -> None:
    x, y = Speaker("x", "both.loop"), Speaker("y", "both.loop")
    steps = [("a", "a1"), (x, "x1"), (y, ["y1"]), (x, ["x2"]), ("a", ["a1"])]
    assert shown(outputs_of(AdkTextStream(), *steps)) == "a1\n\nx1\n\ny1\n\nx2"


def test_a_retracted_text_is_gone() -> None:
    assert outputs_of(AdkTextStream(), ("a", ["one"]), ("a", "two"), ("a", None))[-1] == Replace("one")
    assert (
        shown(outputs_of(AdkTextStream(), ("a", "a1"), ("b", "b1"), ("b", None), ("a", ["a1"]), ("b", ["b2"])))
        == "a1\n\nb2"
    )
    assert outputs_of(AdkTextStream(), ("a", None)) == []


voices = st.lists(st.lists(st.text("xyz ", min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=4)


@given(voices, st.randoms())
def test_the_text_of_each_of_several_mixed_speakers_is_whole_and_there_once(turns: list[list[str]], order: Any) -> None:
    steps = {str(n): [*turn, ["".join(turn)]] for n, turn in enumerate(turns)}
    speech, mixed = AdkTextStream(), []
    while any(steps.values()):
        who = order.choice([name for name, rest in steps.items() if rest])
        mixed.append((who, steps[who].pop(0)))
    assert sorted(shown(outputs_of(speech, *mixed)).split("\n\n")) == sorted("".join(turn) for turn in turns)
