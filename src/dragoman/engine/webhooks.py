"""The operations on webhooks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.journal.writer import unavailable
from dragoman.engine.ports.store import Push, PushState, Write
from dragoman.model.error import InvalidParams, Overloaded, ServerError, TaskGenerationMismatch, TaskNotFound
from dragoman.model.ids import new_id

if TYPE_CHECKING:
    from dragoman.engine.accept.inbox import AcceptedMessage
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.store import Scope, Store, TaskRow
    from dragoman.engine.ports.webhooks import Outbox
    from dragoman.model.operation import (
        GetPushConfigRequest,
        ListPushConfigsRequest,
        SendMessageRequest,
        TaskPushNotificationConfig,
    )

# Nobody needs more, and each is a request for every event.
MAX_WEBHOOKS = 10


class WebhookOperations:
    """Creates, shows and removes webhooks. Each belongs to a task, and is seen by the task's owner alone."""

    def __init__(self, tasks: Tasks, outbox: Outbox) -> None:
        self._tasks = tasks
        self._store: Store = tasks.store
        self._outbox = outbox

    # -- with a message ------------------------------------------------------------------------------------------------

    async def admit(self, scope: Scope, request: SendMessageRequest, dialect: str) -> SendMessageRequest:
        """Look at the webhook that comes with a message before the message is taken, and give it an id.

        Raises:
            InvalidParams: it is not one, or its address may not be called.
            Overloaded: the task has enough of them.
        """
        config = request.configuration.task_push_notification_config
        if config is None:
            return request
        await self._outbox.ready()
        self._outbox.check(config)
        known: list[Push] = []
        task_id = request.message.task_id or request.new_task_id
        if task_id is not None:
            try:
                row, _, _ = await self._tasks.find(scope, task_id)
            except TaskNotFound:  # it begins with this message, or whoever takes the message says so
                pass
            else:
                known = await self._store.pushes(row.number)
        # Many callers send their webhook with every message: the same address is the same webhook.
        named = self._named(config, known, dialect, same_url=True)
        configuration = structs.replace(request.configuration, task_push_notification_config=named)
        return structs.replace(request, configuration=configuration)

    def prepare(self, config: TaskPushNotificationConfig, row: TaskRow, dialect: str, cursor: int) -> Push:
        """A webhook that comes with a task. Raises InvalidParams when it cannot be called."""
        return self._outbox.prepare(config, task=row.number, dialect=dialect, cursor=cursor)

    def follow(self, row: TaskRow, push: Push) -> None:
        """Bring it what it is owed."""
        self._outbox.follow(row, push)

    async def add(self, accepted: AcceptedMessage, request: SendMessageRequest, dialect: str) -> None:
        """Add the webhook that came with a message for a task that was there already. Raises ServerError."""
        config = request.configuration.task_push_notification_config
        if config is None or (request.message.task_id is None and accepted.task is None):
            return  # a new task has got it with its first record
        row = accepted.row
        known = next((push for push in await self._store.pushes(row.number) if push.id == config.id), None)
        if known is not None and (accepted.repeat or self._outbox.is_unchanged(known, config, dialect)):
            return
        told = None if accepted.task is None else accepted.task.generation
        await self._keep(row.scope, row, config, dialect, row.generation if told is None else told, known)

    # -- the operations ------------------------------------------------------------------------------------------------

    async def create(
        self, scope: Scope, config: TaskPushNotificationConfig, dialect: str
    ) -> TaskPushNotificationConfig:
        """Have a task's events brought to a webhook; one with the same id is replaced.

        Raises:
            TaskNotFound: there is no such task.
            InvalidParams: it is not one, or its address may not be called.
            Overloaded: the task has enough of them.
            ServerError: the store does not take it.
        """
        if not config.task_id:
            raise InvalidParams("taskId is required", field="taskId")
        await self._outbox.ready()
        row, live, _ = await self._tasks.find(scope, config.task_id)
        self._outbox.check(config)
        known = await self._store.pushes(row.number)
        named = self._named(config, known, dialect, same_url=False)
        cursor = live.folding.generation if live is not None else row.generation
        await self._keep(
            scope, row, named, dialect, cursor, next((each for each in known if each.id == named.id), None)
        )
        return structs.replace(named, task_id=row.id, tenant=None)

    async def _keep(
        self,
        scope: Scope,
        row: TaskRow,
        config: TaskPushNotificationConfig,
        dialect: str,
        cursor: int,
        before: Push | None,
    ) -> None:
        """Store a webhook. One that takes the place of another is owed what that one has not got."""
        if before is not None and before.state is not PushState.DONE:
            cursor = before.cursor
        push = self._outbox.prepare(config, task=row.number, dialect=dialect, cursor=cursor)
        if row.state.final and push.cursor >= row.generation:
            # Nothing will come any more: it is kept to be shown.
            push = structs.replace(push, state=PushState.DONE)
        self._outbox.unfollow(row.number, push.id)
        try:
            await self._write(row, pushes=(push,))
        except ServerError:
            if before is not None:
                self._outbox.follow(row, before)
            raise
        # The task may have come further meanwhile, unheard.
        now, _, _ = await self._tasks.find(scope, row.id)
        self._outbox.follow(now, push)

    async def get(self, scope: Scope, request: GetPushConfigRequest) -> TaskPushNotificationConfig:
        """Show one; without an id, the first. Raises TaskNotFound when there is none."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        await self._outbox.ready()
        for push in await self._store.pushes(row.number):
            if not request.id or push.id == request.id:
                return self._outbox.redacted(push, row.id)
        raise TaskNotFound("the task has no such webhook", taskId=row.id)

    async def list(self, scope: Scope, request: ListPushConfigsRequest) -> tuple[TaskPushNotificationConfig, ...]:
        """Show all. Raises TaskNotFound when there is no such task."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        await self._outbox.ready()
        return tuple(self._outbox.redacted(push, row.id) for push in await self._store.pushes(row.number))

    async def delete(self, scope: Scope, request: GetPushConfigRequest) -> None:
        """Remove one; one that is gone already is no error.

        Raises:
            TaskNotFound: there is no such task.
            ServerError: the store does not take it.
        """
        row, _, _ = await self._tasks.find(scope, request.task_id)
        await self._write(row, unpushed=(request.id,))
        self._outbox.unfollow(row.number, request.id)

    async def _write(self, row: TaskRow, *, pushes: tuple[Push, ...] = (), unpushed: tuple[str, ...] = ()) -> None:
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def report(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(error)

        self._store.write(Write(row, report, pushes=pushes, deleted_pushes=unpushed))
        error = await done
        if isinstance(error, TaskGenerationMismatch):  # it was deleted this moment
            raise TaskNotFound(taskId=row.id) from error
        if error is not None:
            raise unavailable(error) from error

    def _named(
        self, config: TaskPushNotificationConfig, known: list[Push], dialect: str, *, same_url: bool
    ) -> TaskPushNotificationConfig:
        """The webhook with an id. Raises Overloaded when the task has enough of others."""
        if not config.id:
            same = (
                push for push in known if (same_url and push.url == config.url) or self._outbox.replaces(push, dialect)
            )
            taken = next(same, None)
            config = structs.replace(config, id=new_id() if taken is None else taken.id)
        if len(known) >= MAX_WEBHOOKS and all(push.id != config.id for push in known):
            raise Overloaded(f"a task has {MAX_WEBHOOKS} webhooks at most: delete one, or replace it by its id")
        return config
