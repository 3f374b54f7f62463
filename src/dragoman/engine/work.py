"""Whose run the current code belongs to.

It is kept in a context variable, so that everything a run starts knows it too: tasks, threads, what frameworks make.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.quota import caller_of
from dragoman.model.user import User

if TYPE_CHECKING:
    from dragoman.engine.ports import Scope


class Work(NamedTuple):
    """The agent that runs, and the caller it runs for: a key as in `quota`, empty for this process itself."""

    agent: str
    caller: str


_caller: contextvars.ContextVar[str | None] = contextvars.ContextVar("dragoman-caller", default=None)
_work: contextvars.ContextVar[Work | None] = contextvars.ContextVar("dragoman-work", default=None)


def note_caller(caller: str) -> None:
    """Remember whom the current request counts for."""
    _caller.set(caller)


def context_for(scope: Scope) -> contextvars.Context:
    """The context of a new run: the current one, and for whom it runs. After a restart that is the task's owner."""
    caller = _caller.get()
    if caller is None:
        caller = caller_of(User(scope.owner)) if scope.owner else ""
    context = contextvars.copy_context()
    context.run(_work.set, Work(scope.agent, caller))
    return context


# Whose run this is; None outside of any.
current_work: Callable[[], Work | None] = _work.get
