"""Continues waiting tasks without a message of their callers: a login was verified, or a foreign task went on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.clock import sleep
from dragoman.engine.accept.inbox import RETRY_SECONDS, TRIES, AcceptedMessage
from dragoman.engine.handle import is_genuine, read_handle, unusable_handle
from dragoman.engine.journal.tasks import ELSEWHERE
from dragoman.engine.ports.ownership import OwnershipLost
from dragoman.model.error import ServerError
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role

if TYPE_CHECKING:
    from dragoman.engine.call import CallContext
    from dragoman.engine.journal.replay import OpenQuestion
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.locks import KeyedLocks
    from dragoman.engine.ports.store import StoredTask, TaskRow


class Resumption:
    """Continues the waiting tasks of one agent. `go_on` is that of the inbox."""

    def __init__(
        self,
        agent: str,
        tasks: Tasks,
        locks: KeyedLocks,
        go_on: Callable[[StoredTask, CallContext, Message], Awaitable[AcceptedMessage | None]],
    ) -> None:
        self._agent = agent
        self._tasks = tasks
        self._locks = locks
        self._go_on = go_on

    async def resume(self, handle: str, data: Any) -> AcceptedMessage:
        """Continue a task that waits for a login, with `data` as the answer.

        Raises:
            InvalidParams: the handle is not that of a login that a task of this agent waits for.
            ServerError: the store cannot take writes, or another process owns the task.
        """
        agent, task_id = read_handle(handle)
        if agent == self._agent:
            accepted = await self._continue(
                task_id, (Part(data=data),), lambda _, question: is_genuine(handle, question.handle)
            )
            if accepted is not None:
                return accepted
        raise unusable_handle()

    async def wake(self, row: TaskRow) -> AcceptedMessage | None:
        """Continue a task whose foreign task went on, with a message without parts. None when it waits no more so.

        Raises:
            ServerError: the store cannot take writes, or another process owns the task.
        """
        return await self._continue(
            row.id, (), lambda now, question: now.generation == row.generation and not question.handle
        )

    async def _continue(
        self, task_id: str, parts: tuple[Part, ...], may_continue: Callable[[TaskRow, OpenQuestion], bool]
    ) -> AcceptedMessage | None:
        """Continue a task if it waits, for something that `may_continue` accepts; else return None.

        Of several that try at once, in whatever process, one claims the task. The others find that it does not wait.
        """
        async with self._locks.hold(task_id):
            for _ in range(TRIES):
                stored = await self._find_waiting(task_id)
                if stored is None:
                    return None
                history = await self._tasks.run_history(stored.row)
                question = history.open_question
                if question is None or not may_continue(stored.row, question):
                    return None
                message = Message(new_id(), Role.USER, parts, stored.row.context_id, task_id)
                accepted = await self._go_on(stored, history.call(stored.row), message)
                if accepted is not None:
                    return accepted
                # Another process has claimed it, and is about to write that, or to give up.
                await sleep(self._tasks.clock, RETRY_SECONDS)
            raise ServerError(ELSEWHERE)

    async def _find_waiting(self, task_id: str) -> StoredTask | None:
        live = self._tasks.live.get(task_id)
        if live is not None and live.row.state.waiting:  # it has just paused and its run is still being released
            with suppress(OwnershipLost):
                await live.durability.wait_settled()
        stored = await self._tasks.store.task(task_id)
        if stored is None or stored.row.scope.agent != self._agent or not stored.row.state.waiting:
            return None
        return stored
