"""The wire types of 0.1: untagged, parts with `type`, artifacts with an index instead of an id."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.dialects.v03.types import Part03, Push03
from dragoman.model.operation import Count


class Message01(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A message; 0.1 has no `messageId`, but a client may send one."""

    role: str | int = ""
    parts: tuple[Part03, ...]
    metadata: dict[str, Any] | None = None
    message_id: str | None = None


class Artifact01(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """An artifact; `append` and `lastChunk` are set in events only."""

    name: str | None = None
    description: str | None = None
    parts: tuple[Part03, ...]
    index: int = 0
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


class Status01(Struct, frozen=True, omit_defaults=True):
    """The status of a task."""

    state: str | int
    message: Message01 | None = None
    timestamp: str | None = None


class Task01(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A task; `history` and `artifacts` are always written, even when empty."""

    id: str
    session_id: str | None = None
    status: Status01
    history: tuple[Message01, ...]
    artifacts: tuple[Artifact01, ...]
    metadata: dict[str, Any] | None = None


class Event01(Struct, frozen=True, omit_defaults=True):
    """A status update or an artifact update, by the member that is set."""

    id: str
    status: Status01 | None = None
    artifact: Artifact01 | None = None
    final: bool | None = None
    metadata: dict[str, Any] | None = None


class SendParams01(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The parameters of `tasks/send` and `tasks/sendSubscribe`; a message may be plain text."""

    message: Message01 | str
    id: str | int | None = None
    session_id: str | int | None = None
    accepted_output_modes: tuple[str, ...] = ()
    push_notification: Push03 | None = None
    history_length: Count | None = None
    metadata: dict[str, Any] | None = None


class TaskPush01(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A webhook and its task: the parameters of `tasks/pushNotification/set`, and the result."""

    id: str | int
    push_notification_config: Push03
