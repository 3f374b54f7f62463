"""The context of a call (who calls, for which tenant, and in which protocol version), and its result."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from dragoman.model.message import Message
from dragoman.model.task import Task
from dragoman.model.user import User

Closing = Literal["whole", "last"]
"""How a streamed text ends: with an update that repeats it whole, or with its last chunk."""
ClosingChoice = Literal["auto", "whole", "last"]
"""The same, or for each task as the caller who creates it reads it."""


class CallContext(Struct, frozen=True):
    """What the engine knows about a request besides its parameters.

    `origin` is a tag stored with a task that this call creates: the protocol version, perhaps with a suffix after a
    slash. Transports use it to answer later requests in the dialect in which the task began. `asks` is False when the
    caller cannot be asked for missing arguments, `lists` is False when it may not list tasks. A caller with `text_only`
    gets data as JSON text, and `closing` is how it reads the end of a streamed text; both are stored with a task that
    this call creates. `task_metadata` and `progress_metadata` are metadata of that task and of its progress, by which
    the caller knows how to read them. `trace` is the W3C trace context of the request, which is stored with the task
    that it creates: what is done for the task later belongs to that trace. `arrived` is when the message of a caller
    who streams came, by `perf_counter`, while metrics are on.
    """

    user: User | None = None
    tenant: str = ""
    extensions: frozenset[str] = frozenset()
    origin: str = ""
    asks: bool = True
    lists: bool = True
    text_only: bool = False
    closing: Closing = "last"
    task_metadata: dict[str, Any] | None = None
    progress_metadata: dict[str, Any] | None = None
    trace: dict[str, str] | UnsetType = UNSET
    arrived: float = 0.0

    @property
    def owner(self) -> str:
        """The owner whose tasks this call may see; all anonymous callers share one."""
        return self.user.id if self.user else ""

    @property
    def version(self) -> str:
        """The protocol version of the call: `origin` up to the first slash."""
        return self.origin.partition("/")[0]


class OperationResult(NamedTuple):
    """The result of an operation, the origin of its task, and whether the message was a repeat."""

    result: Task | Message
    origin: str
    repeat: bool = False
