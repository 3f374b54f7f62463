"""What a program is told of a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.model.message import Message


def prompt_of(message: Message, files: Sequence[str] | None = None) -> str:
    """The texts of a message and its data as JSON, a line each.

    With `files`, the paths of those it came with, it also tells of these, and of links where they stand.
    """
    said: list[str] = []
    for part in message.parts:
        if part.text is not None:
            said.append(part.text)
        elif part.kind == "data":
            said.append(encode(part.data).decode())
        elif part.url is not None and files is not None:
            said.append(part.url)
    if files:
        said.append(f"Files that came with this: {', '.join(files)}")
    return "\n".join(said)
