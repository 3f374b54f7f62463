"""The operations on webhooks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports import Push, Write
from dragoman.model.error import InvalidParams, Overloaded, TaskNotFound
from dragoman.model.ids import new_id

if TYPE_CHECKING:
    from dragoman.engine.ports import Outbox, Scope, Store, TaskRow
    from dragoman.engine.tasks import Tasks
    from dragoman.model.push import TaskPushNotificationConfig
    from dragoman.model.request import GetPushConfigRequest, ListPushConfigsRequest

# Nobody needs more, and each is a request for every event.
MOST = 10


class Pushes:
    """Creates, shows and removes webhooks. Each belongs to a task, and is seen by the task's owner alone."""

    def __init__(self, tasks: Tasks, outbox: Outbox) -> None:
        self._tasks = tasks
        self._store: Store = tasks.store
        self._outbox = outbox

    def prepare(self, config: TaskPushNotificationConfig, row: TaskRow, dialect: str, cursor: int) -> Push:
        """A webhook that comes with a message. Raises InvalidParams when it cannot be called."""
        named = config if config.id else structs.replace(config, id=new_id())
        return self._outbox.prepare(named, task=row.number, dialect=dialect, cursor=cursor)

    def follow(self, row: TaskRow, push: Push) -> None:
        """Bring it what it is owed."""
        self._outbox.follow(row, push)

    async def create(
        self, scope: Scope, config: TaskPushNotificationConfig, dialect: str
    ) -> TaskPushNotificationConfig:
        """Have a task's events brought to a webhook; one with the same id is replaced.

        Raises:
            TaskNotFound: there is no such task.
            InvalidParams: its address may not be called.
            Overloaded: the task has enough of them.
        """
        if not config.task_id:
            raise InvalidParams("taskId is required", field="taskId")
        row, live, _ = await self._tasks.find(scope, config.task_id)
        known = await self._store.pushes(row.number)
        named = config if config.id else structs.replace(config, id=new_id())
        if len(known) >= MOST and named.id not in {push.id for push in known}:
            raise Overloaded(f"a task has {MOST} webhooks at most")
        cursor = live.folding.generation if live is not None else row.generation
        push = self._outbox.prepare(named, task=row.number, dialect=dialect, cursor=cursor)
        await self._keep(scope, row, push)
        return structs.replace(named, task_id=row.id, tenant=None)

    async def add(self, row: TaskRow, config: TaskPushNotificationConfig, dialect: str, cursor: int) -> None:
        """Add a webhook that came with a message for a task that is there already. Raises InvalidParams."""
        await self._keep(row.scope, row, self.prepare(config, row, dialect, cursor))

    async def _keep(self, scope: Scope, row: TaskRow, push: Push) -> None:
        await self._write(row, pushes=(push,))
        # The task may have come further meanwhile, unheard.
        now, _, _ = await self._tasks.find(scope, row.id)
        self._outbox.follow(now, push)

    async def get(self, scope: Scope, request: GetPushConfigRequest) -> TaskPushNotificationConfig:
        """Show one; without an id, the first. Raises TaskNotFound when there is none."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        for push in await self._store.pushes(row.number):
            if not request.id or push.id == request.id:
                return self._outbox.shown(push, row.id)
        raise TaskNotFound("the task has no such webhook", taskId=row.id)

    async def list(self, scope: Scope, request: ListPushConfigsRequest) -> tuple[TaskPushNotificationConfig, ...]:
        """Show all. Raises TaskNotFound when there is no such task."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        return tuple(self._outbox.shown(push, row.id) for push in await self._store.pushes(row.number))

    async def delete(self, scope: Scope, request: GetPushConfigRequest) -> None:
        """Remove one; one that is gone already is no error. Raises TaskNotFound when there is no such task."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        self._outbox.leave(row.number, request.id)
        await self._write(row, unpushed=(request.id,))

    async def _write(self, row: TaskRow, *, pushes: tuple[Push, ...] = (), unpushed: tuple[str, ...] = ()) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def report(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._store.write(Write(row, report, pushes=pushes, unpushed=unpushed))
        await done
