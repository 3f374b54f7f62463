"""Plain text of a program, as it comes and as it is told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.process.outputs import DEFAULT_QUESTION, TextOutput


def texts_of(output: TextOutput, *pieces: bytes) -> list[str]:
    """The texts of what was written so far."""
    return [event["text"] for piece in pieces for event in output.feed(piece)]


def whole(*pieces: bytes, interactive: bool = False) -> list[str]:
    """The texts of everything, up to the end."""
    output = TextOutput(interactive=interactive)
    return [*texts_of(output, *pieces), *(event["text"] for event in output.close())]


def question(output: TextOutput, murmur: str = "") -> str:
    [event] = output.pause(murmur)
    assert event["type"] == "ask"
    return event["question"]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in pairwise([0, *sorted(place % (len(data) + 1) for place in places), len(data)])]


@given(st.text(), st.lists(st.integers(0, 1000)), st.booleans())
def test_a_text_cut_anywhere_is_passed_on_whole_without_its_last_line_ends(
    text: str, places: list[int], interactive: bool
) -> None:
    assert "".join(whole(*cut(text.encode(), places), interactive=interactive)) == text.rstrip("\n")


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"\r\n", "é".encode(), b"\xff", b"\xe2\x82"])), st.lists(st.integers(0, 99))
)
def test_bytes_that_are_no_text_are_marked_wherever_they_are_cut(words: list[bytes], places: list[int]) -> None:
    data = b"".join(words)
    assert "".join(whole(*cut(data, places))) == data.decode(errors="replace").rstrip("\n")


def test_text_is_passed_on_as_it_comes() -> None:
    output = TextOutput()
    assert texts_of(output, b"one ") == ["one "]
    assert texts_of(output, b"two\nthree") == ["two\nthree"]


def test_a_character_in_two_chunks_is_passed_on_once_it_is_whole() -> None:
    euro = "€".encode()
    output = TextOutput()
    assert texts_of(output, b"5 " + euro[:1]) == ["5 "]
    assert texts_of(output, euro[1:2]) == []
    assert texts_of(output, euro[2:]) == ["€"]


def test_half_a_character_at_the_end_becomes_a_replacement_character() -> None:
    assert whole(b"5 ", "€".encode()[:2]) == ["5 ", "\ufffd"]


def test_line_ends_are_kept_back_until_something_follows() -> None:
    output = TextOutput()
    assert texts_of(output, b"one\n\n") == ["one"]
    assert texts_of(output, b"\n") == []
    assert texts_of(output, b"two\n") == ["\n\n\ntwo"]
    assert list(output.close()) == []


def test_only_line_ends_are_no_answer() -> None:
    assert whole(b"\n", b"\n\n") == []
    assert whole() == []


def test_line_ends_of_another_system_are_left_as_they_are() -> None:
    assert whole(b"one\r\ntwo\r\n") == ["one\r\ntwo\r"]


@pytest.mark.parametrize("interactive", [False, True])
def test_a_huge_line_is_text_as_any_other(interactive: bool) -> None:
    piece = b"x" * 65_536
    assert "".join(whole(*[piece] * 40, interactive=interactive)) == "x" * 65_536 * 40


# -- interactive programs ----------------------------------------------------------------------------------------------


def test_of_an_interactive_program_the_line_that_is_not_finished_is_kept_back() -> None:
    output = TextOutput(interactive=True)
    assert texts_of(output, b"Welcome\nYour na") == ["Welcome"]
    assert texts_of(output, b"me? ") == []
    assert question(output) == "Your name?"
    assert texts_of(output, b"Hello Bob\n") == ["\nHello Bob"]


def test_after_a_question_before_everything_else_the_text_begins_with_a_word() -> None:
    output = TextOutput(interactive=True)
    texts_of(output, b"Your name? ")
    question(output)
    texts_of(output, b"Your age? ")
    question(output)
    assert texts_of(output, b"Hello\n", b"Bob\n") == ["Hello", "\nBob"]


def test_a_line_in_several_chunks_is_passed_on_when_it_ends() -> None:
    output = TextOutput(interactive=True)
    assert texts_of(output, b"He", b"llo", b"\nnext") == ["Hello"]
    assert [event["text"] for event in output.close()] == ["\nnext"]


def test_a_question_is_not_repeated_as_text() -> None:
    output = TextOutput(interactive=True)
    texts_of(output, b"Your name? ")
    question(output)
    assert list(output.close()) == []


@pytest.mark.parametrize(
    ("pieces", "murmur", "expected"),
    [
        ([b"Which one\n", b"a or b? "], "on stderr", "a or b?"),
        ([b"2\n"], ">>> ", ">>>"),
        ([b"Hello\r\nWhat is your name?\r\n\n"], "", "What is your name?"),
        ([], "", DEFAULT_QUESTION),
        ([b"   "], " \n", DEFAULT_QUESTION),
    ],
    ids=["the unfinished line", "else the prompt on stderr", "else the last line", "nothing", "only blanks"],
)
def test_where_the_question_of_a_program_stands(pieces: list[bytes], murmur: str, expected: str) -> None:
    output = TextOutput(interactive=True)
    texts_of(output, *pieces)
    assert question(output, murmur) == expected


def test_a_line_is_a_question_only_once() -> None:
    output = TextOutput(interactive=True)
    texts_of(output, b"Name?\n")
    assert [question(output), question(output)] == ["Name?", DEFAULT_QUESTION]


def test_a_character_in_two_pieces_around_a_question_is_not_lost() -> None:
    euro = "€".encode()
    output = TextOutput(interactive=True)
    assert texts_of(output, b"a?\n" + euro[:2]) == ["a?"]
    assert question(output) == "a?"
    assert texts_of(output, euro[2:] + b"\n") == ["\n€"]
