"""What a process manager tells about a session: plain JSON objects with a `type`.

The words `session_started assistant thinking tool_status result session_exited session_stopped error` are those that
process managers of others use, too; `text artifact ask` are for programs that say more. Whoever listens passes over
types it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

Event = Mapping[str, Any]
# Called with the session's id and what happened.
Callback = Callable[[str, Event], object]

# The type of an error that is the message's, not the program's.
REJECTED = "rejected"
ENDS = ("session_exited", "session_stopped", "error")


def started(pid: int | None = None) -> Event:
    """The program runs."""
    return {"type": "session_started", "pid": pid}


def text(chunk: str) -> Event:
    """A piece of the answer, to be streamed as it is."""
    return {"type": "text", "text": chunk}


def assistant(content: str) -> Event:
    """A whole message of the agent."""
    return {"type": "assistant", "message": {"content": content}}


def thinking(about: str | None = None) -> Event:
    """The agent works, and may say on what."""
    return {"type": "thinking", "thinking": True, **({"text": about} if about else {})}


def tool_status(said: str) -> Event:
    """What the agent does at the moment."""
    return {"type": "tool_status", "statusMessage": said}


def artifact(content: Mapping[str, Any]) -> Event:
    """A result beside the answer: `name`, and one of `text`, `data`, `base64` (bytes) and `file` (a path)."""
    return {"type": "artifact", "artifact": dict(content)}


def ask(question: str) -> Event:
    """The program wants to know something, and waits."""
    return {"type": "ask", "question": question}


def result(value: Any, *, remembers: str | None = None) -> Event:
    """The finished answer. `remembers` is how the program calls this conversation, to go on with it later."""
    return {"type": "result", "result": value, **({"remembers": remembers} if remembers else {})}


def exited(code: int | None = 0) -> Event:
    """The program has ended by itself."""
    return {"type": "session_exited", "exitCode": code}


def stopped(reason: str = "") -> Event:
    """The program was ended."""
    return {"type": "session_stopped", "reason": reason}


def error(message: str, kind: str = "process_error") -> Event:
    """It did not work out."""
    return {"type": "error", "error": {"message": message, "type": kind}}


def content_of(event: Event) -> str:
    """The text of an `assistant` event, whose content is a text or blocks: then it is that of the first with one."""
    message: Any = event.get("message")
    content: Any = cast("Mapping[str, Any]", message).get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    blocks = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else ()
    for block in blocks:
        said: Any = cast("Mapping[str, Any]", block).get("text") if isinstance(block, Mapping) else None
        if isinstance(said, str) and said:
            return said
    return ""


def is_rejected(event: Event) -> bool:
    """True for an `error` event that refuses the message."""
    said: Any = event.get("error")
    return isinstance(said, Mapping) and cast("Mapping[str, Any]", said).get("type") == REJECTED


def problem_of(event: Event) -> str:
    """The text of an `error` event."""
    said: Any = event.get("error")
    message: Any = cast("Mapping[str, Any]", said).get("message") if isinstance(said, Mapping) else said
    return message if isinstance(message, str) and message else "the program failed"
