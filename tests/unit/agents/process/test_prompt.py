"""What a program is told of a message."""

from __future__ import annotations

from dragoman import Part
from dragoman.agents.process.session import prompt_of
from dragoman.model.message import Message
from dragoman.model.state import Role

FILE = Part(raw=b"x", filename="a.txt")
LINK = Part(url="https://example.com/a.pdf")


def message(*parts: Part) -> Message:
    return Message("m-1", Role.USER, parts)


def test_a_text_is_told_as_it_is() -> None:
    assert prompt_of(message(Part(text="  Hello\nyou\n"))) == "  Hello\nyou\n"


def test_texts_and_data_are_a_line_each_in_their_order() -> None:
    request = message(Part(text="Add"), Part(data={"a": [1, None], "b": "é"}), Part(text="please"), Part(data=None))
    assert prompt_of(request) == 'Add\n{"a":[1,null],"b":"é"}\nplease\nnull'


def test_a_message_without_text_is_an_empty_prompt() -> None:
    assert prompt_of(message(FILE)) == ""


def test_files_are_told_only_to_programs_that_are_told_of_them() -> None:
    request = message(Part(text="Read"), FILE, LINK)
    assert prompt_of(request) == "Read"
    assert prompt_of(request, ["a.txt", "b.txt"]) == (
        "Read\nhttps://example.com/a.pdf\nFiles that came with this: a.txt, b.txt"
    )


def test_a_link_is_told_also_when_no_file_came_with_it() -> None:
    assert prompt_of(message(Part(text="Read"), LINK), []) == "Read\nhttps://example.com/a.pdf"
