"""What a2a-sdk gives its caller, in the words that its versions have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ENDED = {"completed", "failed", "canceled", "rejected"}


@dataclass(frozen=True)
class File:
    """A file in a message."""

    content: bytes
    media_type: str
    name: str = ""


Content = str | dict[str, Any] | File
"""What a message says: a text, data or a file."""


@dataclass(frozen=True)
class Hook:
    """A webhook of a task. A token is written and never read back."""

    id: str
    url: str
    token: str = ""


@dataclass(frozen=True)
class Answer:
    """A bare message."""

    role: str
    text: str


@dataclass(frozen=True)
class TaskSeen:
    """A task as the SDK shows it. `text` is all that a human would read: the artifacts, else the status."""

    id: str
    context_id: str
    state: str
    text: str
    status_text: str
    has_artifacts: bool
    data: list[Any]
    messages: int
    files: list[File]
    whole: str

    @property
    def ids(self) -> tuple[str, str]:
        return self.id, self.context_id


@dataclass(frozen=True)
class StreamSeen:
    """The events of a stream together: `text` is what a caller assembles of the artifacts."""

    kinds: list[str]
    ids: set[tuple[str, str]]
    state: str
    text: str
    is_closed: bool = True
    answers: list[Answer] = field(default_factory=list)


Sent = TaskSeen | Answer
"""What a message is answered with."""
