"""What a program is told of a message."""

from __future__ import annotations

import pytest

from dragoman import Part
from dragoman.agents.process.session import prompt_of
from dragoman.model.message import Message
from dragoman.model.state import Role

FILE = Part(raw=b"x", filename="a.txt")
LINK = Part(url="https://example.com/a.pdf")


@pytest.mark.parametrize(
    ("parts", "prompt"),
    [
        ([Part(text="  Hello\nyou\n")], "  Hello\nyou\n"),
        (
            [Part(text="Add"), Part(data={"a": [1, None], "b": "é"}), Part(text="please"), Part(data=None)],
            'Add\n{"a":[1,null],"b":"é"}\nplease\nnull',
        ),
        ([FILE], ""),
    ],
    ids=["text", "texts and data", "a file"],
)
def test_texts_and_data_are_in_the_prompt_unchanged_a_line_each(parts: list[Part], prompt: str) -> None:
    assert prompt_of(Message("m-1", Role.USER, tuple(parts))) == prompt


@pytest.mark.parametrize(
    ("files", "prompt"),
    [
        (None, "Read"),
        ([], "Read\nhttps://example.com/a.pdf"),
        (["a.txt", "b.txt"], "Read\nhttps://example.com/a.pdf\nFiles that came with this: a.txt, b.txt"),
    ],
    ids=["it accepts none", "only a link", "files and a link"],
)
def test_links_and_files_are_in_prompts_of_programs_that_accept_them(files: list[str] | None, prompt: str) -> None:
    assert prompt_of(Message("m-1", Role.USER, (Part(text="Read"), FILE, LINK)), files) == prompt
