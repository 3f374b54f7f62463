"""The context of a `def` skill: the methods of `Context` without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from dragoman.engine.journal.durability import STOPPING
from dragoman.model.error import ServerError

if TYPE_CHECKING:
    import logging

    from dragoman.engine.execute.context import Context
    from dragoman.engine.execute.outputs import LoginUrl
    from dragoman.model.message import Message
    from dragoman.model.part import Part
    from dragoman.model.user import User

T = TypeVar("T")


class SyncContext:
    """Gives a `def` skill its task, its message and its caller.

    The skill runs in a thread; every method runs on the engine's event loop and blocks until it is done. Once the task
    is canceled, `progress` and `artifact` do nothing.
    """

    def __init__(self, ctx: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx = ctx
        self._loop = loop
        self.task_id: str = ctx.task_id
        self.context_id: str = ctx.context_id
        self.session_id: str = ctx.session_id
        self.skill: str = ctx.skill
        self.user: User | None = ctx.user
        self.tenant: str = ctx.tenant
        self.message: Message = ctx.message
        self.text: str = ctx.text
        self.data: Any = ctx.data
        self.files: list[Part] = ctx.files
        self.history: tuple[Message, ...] = ctx.history
        self.metadata: dict[str, Any] = ctx.metadata
        self.state: dict[str, Any] = ctx.state
        self.log: logging.LoggerAdapter[logging.Logger] = ctx.log

    @property
    def latest(self) -> Message:
        """The newest message of the caller: the last answer or follow-up, else the message that created the task."""
        return self._ctx.latest

    @property
    def cancelled(self) -> bool:
        """True once the task has been canceled: the skill should stop, its result is dropped."""
        return self._ctx.cancelled

    @overload
    def ask(self, question: str) -> str: ...
    @overload
    def ask(self, question: str, type: type[T], choices: Sequence[T] | None = None) -> T: ...
    @overload
    def ask(self, question: str, *, choices: Sequence[T]) -> T: ...
    def ask(self, question: str, type: Any = str, choices: Sequence[Any] | None = None) -> Any:
        """Pause in input-required until the caller answers; ask again when the answer does not fit."""
        return self._run(self._ctx.ask(question, type, choices))

    def ask_auth(self, text: str, url: LoginUrl = None) -> Any:
        """Pause in auth-required until `app.resume` continues the task; return the data that it brings.

        `url` is the link of the login, or a function that makes it of the handle that `app.resume` takes.
        """
        return self._run(self._ctx.ask_auth(text, url))

    def once(self, key: str, fn: Callable[..., Any], *args: Any, retry: bool = False) -> Any:
        """Run `fn` at most once per task and return its JSON result; with `retry`, again after a crash during it.

        Raises:
            Failed: it was started in an earlier process and may or may not have completed.
            TypeError: the result has no JSON form.
            ServerError: the run does not go on here, or its note cannot be stored: `fn` was not called.
        """
        self._ctx.check_runs_here(key)
        return self._run(self._ctx.once(key, fn, *args, retry=retry))

    def progress(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Report progress to the caller."""
        if self.cancelled:  # the loop that would run it may be closed already
            return
        self._run(self._ctx.progress(text, done, total))

    def artifact(
        self, *values: Any, name: str | None = None, id: str | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Send an artifact beside the answer. Raises TypeError when a value has no JSON form."""
        if self.cancelled:
            return
        self._run(self._ctx.artifact(*values, name=name, id=id, metadata=metadata))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():  # the server has stopped, and this thread has not
            work.close()
            raise ServerError(STOPPING, taskId=self.task_id)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
