"""A session: the work place of one conversation with a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.model.message import Message

Status = Literal["loading", "running", "idle", "error", "stopped", "paused"]
# How much of a message its session is called by.
_TITLE = 50


class ProgramSession(Struct, kw_only=True):
    """One conversation with a program: who works, on what, and how it stands.

    `id` belongs to the conversation alone, also among callers who name theirs alike. `source` says who began it:
    sessions of A2A tasks come from an agent. `folder` is where the program runs and leaves its files; None where a
    process manager of somebody else's has places of its own. `turns` counts the messages it was given.
    """

    id: str
    agent_id: str
    project_id: str | None
    name: str
    initial_prompt: str
    source: Literal["agent", "user"] = "agent"
    status: Status = "loading"
    folder: Path | None = None
    pid: int | None = None
    cost: float = 0.0
    turns: int = 0
    created_ms: int = 0
    updated_ms: int = 0


def title_of(message: str) -> str:
    """What a session of an A2A task is called."""
    return f"A2A Task: {message[:_TITLE]}"


def new_session(id: str, *, agent_id: str, project_id: str | None, message: str, **facts: Any) -> ProgramSession:
    """The session of an A2A task, before its program has begun."""
    return ProgramSession(
        id=id, agent_id=agent_id, project_id=project_id, name=title_of(message), initial_prompt=message, **facts
    )


def prompt_of(message: Message, files: Sequence[str] | None = None) -> str:
    """The texts of a message and its data as JSON, a line each.

    With `files`, the paths of those it came with, it also tells of these, and of links where they stand.
    """
    lines: list[str] = []
    for part in message.parts:
        if part.text is not None:
            lines.append(part.text)
        elif part.kind == "data":
            lines.append(encode(part.data).decode())
        elif part.url is not None and files is not None:
            lines.append(part.url)
    if files:
        lines.append(f"Files that came with this: {', '.join(files)}")
    return "\n".join(lines)
