"""Sessions: a conversation with a program, and where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.model.message import Message

Status = Literal["loading", "running", "idle", "error", "stopped", "paused"]
# Length of the message text in a session's name.
_TITLE = 50


class ProgramSession(Struct, kw_only=True):
    """The conversation of one caller with a program: its agent, first prompt, folder and status.

    `id` is unique to the conversation, even if callers choose equal context ids. `source` says who started it: sessions
    of A2A tasks come from an agent. `folder` is where the program runs and leaves its files; None if a third-party
    process manager uses folders of its own. `turns` counts the messages sent to the program.
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


def title_of(message: str) -> str:
    """Return the name of the session of an A2A task."""
    return f"A2A Task: {message[:_TITLE]}"


def new_session(id: str, *, agent_id: str, project_id: str | None, message: str, **facts: Any) -> ProgramSession:
    """Return the session of an A2A task whose program has not started yet."""
    return ProgramSession(
        id=id, agent_id=agent_id, project_id=project_id, name=title_of(message), initial_prompt=message, **facts
    )


def prompt_of(message: Message, files: Sequence[str] | None = None) -> str:
    """Return a message as the prompt of a program: its text parts, and its data parts as JSON, one per line.

    With `files`, the paths of its saved files, the prompt also has the URLs of its links and ends with a list of the
    files.
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
