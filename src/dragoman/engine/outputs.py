"""What an agent may yield beside plain values."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Reply(Struct, frozen=True):
    """Answer with a bare Message and no task. Only as the first and only output.

    A skill says that it may: with `replies=True` or in its return type. One that does not, and one that took longer
    than a second, completes its task with it.
    """

    value: Any


class Conclude(Reply, frozen=True):
    """Complete the task with this as the message of its status. Only as the only output; for bridges."""


class Replace(Struct, frozen=True):
    """The finished answer: it supersedes the chunks streamed so far."""

    value: Any


class Ask(Struct, frozen=True):
    """Pause the task until the caller answers; the run ends here.

    `ref` is JSON the agent wants back: the next run finds it in `ctx.resume.ref`. With `auth` the task waits in
    auth-required instead of input-required. `details` are further values to show beside the question.
    """

    question: str
    ref: Any = None
    auth: bool = False
    details: tuple[Any, ...] = ()


class Answered(Struct, frozen=True):
    """A question of an earlier run and what the caller said to it."""

    question: str
    ref: Any
    text: str
    data: Any
