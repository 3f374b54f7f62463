"""The push notification operations: create, get, list and delete webhooks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.journal.durability import unavailable
from dragoman.engine.ports.store import Push, PushState, Write
from dragoman.model.error import InvalidParams, Overloaded, ServerError, TaskGenerationMismatch, TaskNotFound
from dragoman.model.ids import check_id, new_id
from dragoman.model.operation import AuthenticationInfo, TaskPushNotificationConfig

if TYPE_CHECKING:
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.store import Scope, Store, TaskRow
    from dragoman.engine.ports.webhooks import ConfigReader, Outbox
    from dragoman.model.operation import GetPushConfigRequest, ListPushConfigsRequest, SendMessageRequest
    from dragoman.model.task import Task

# Each webhook costs one request per event.
MAX_WEBHOOKS = 10


class WebhookOperations:
    """The push notification operations of one agent. A webhook belongs to a task and is visible to its owner only."""

    def __init__(self, tasks: Tasks, outbox: Outbox, configs: ConfigReader | None = None) -> None:
        self._tasks = tasks
        self._configs = configs
        self._store: Store = tasks.store
        self._outbox = outbox

    # -- with a message ------------------------------------------------------------------------------------------------

    async def admit(self, scope: Scope, request: SendMessageRequest, dialect: str) -> SendMessageRequest:
        """Validate the webhook in a message's configuration before the message is accepted, and assign its id.

        Raises:
            InvalidParams: it is malformed, or its address is not allowed.
            Overloaded: the task has the maximum number of webhooks.
            ServerError: webhooks cannot be accepted now.
        """
        config = request.configuration.task_push_notification_config
        if config is None:
            return request
        await self._outbox.ready()
        self._outbox.check(config)
        existing: list[Push] = []
        task_id = request.message.task_id or request.new_task_id
        if task_id is not None:
            try:
                row, _, _ = await self._tasks.find(scope, task_id)
            except TaskNotFound:  # the task is new, or accepting the message will raise the same error
                pass
            else:
                existing = await self._store.pushes(row.number)
        # Many clients send their webhook with every message: the same URL is the same webhook.
        named = self._with_id(config, existing, dialect, match_url=True)
        configuration = structs.replace(request.configuration, task_push_notification_config=named)
        return structs.replace(request, configuration=configuration)

    def prepare(self, config: TaskPushNotificationConfig, row: TaskRow, dialect: str, cursor: int) -> Push:
        """Build the webhook that is stored with a new task. Raises InvalidParams when its address is not allowed."""
        return self._outbox.prepare(config, task=row.number, dialect=dialect, cursor=cursor)

    def follow(self, row: TaskRow, push: Push, *, may_be_behind: bool = False) -> None:
        """Start delivering the task's events to a stored webhook. It `may_be_behind` those of the row."""
        self._outbox.follow(row, push, may_be_behind=may_be_behind)

    async def add(
        self, row: TaskRow, task: Task | None, request: SendMessageRequest, dialect: str, *, repeat: bool
    ) -> None:
        """Store the webhook that came with a message to an existing task; one of a new task is stored with it.

        `task` is the existing task with the message; None for a new task, and where the message is a `repeat`.

        Raises:
            TaskNotFound: the task was deleted meanwhile.
            ServerError: the store cannot take writes.
        """
        config = request.configuration.task_push_notification_config
        if config is None or (request.message.task_id is None and task is None):
            return  # the message created the task, and the webhook with it
        existing = next((push for push in await self._store.pushes(row.number) if push.id == config.id), None)
        if existing is not None and (repeat or self._outbox.is_unchanged(existing, config, dialect)):
            return
        generation = None if task is None else task.generation
        await self._save(row, config, dialect, row.generation if generation is None else generation, existing)

    # -- the operations ------------------------------------------------------------------------------------------------

    async def create(
        self, scope: Scope, config: TaskPushNotificationConfig, dialect: str
    ) -> TaskPushNotificationConfig:
        """Create a webhook for a task, or replace the one with the same id.

        Raises:
            TaskNotFound: there is no such task, or it belongs to another caller.
            InvalidParams: it is malformed, or its address is not allowed.
            Overloaded: the task has the maximum number of webhooks.
            ServerError: webhooks cannot be accepted now, or the store cannot take writes.
        """
        if not config.task_id:
            raise InvalidParams("taskId is required", field="taskId")
        await self._outbox.ready()
        row, live, _ = await self._tasks.find(scope, config.task_id)
        self._outbox.check(config)
        existing = await self._store.pushes(row.number)
        named = self._with_id(config, existing, dialect, match_url=False)
        cursor = live.folding.generation if live is not None else row.generation
        await self._save(row, named, dialect, cursor, next((each for each in existing if each.id == named.id), None))
        return structs.replace(named, task_id=row.id, tenant=None)

    async def _save(
        self,
        row: TaskRow,
        config: TaskPushNotificationConfig,
        dialect: str,
        cursor: int,
        replaced: Push | None,
    ) -> None:
        """Store a webhook and start its delivery. One that replaces another starts at that one's cursor."""
        if replaced is not None and replaced.state is not PushState.DONE:
            cursor = replaced.cursor
        push = self._outbox.prepare(config, task=row.number, dialect=dialect, cursor=cursor)
        if row.state.final and push.cursor >= row.generation:
            # No event will follow: it is stored for `get` and `list` only.
            push = structs.replace(push, state=PushState.DONE)
        was_followed = self._outbox.unfollow(row.number, push.id)
        try:
            await self._write(row, pushes=(push,))
        except ServerError:
            if replaced is not None and was_followed:  # else another process delivers to it
                self._outbox.follow(row, replaced, may_be_behind=True)
            raise
        self._outbox.follow(row, push, may_be_behind=True)

    async def get(self, scope: Scope, request: GetPushConfigRequest) -> TaskPushNotificationConfig:
        """Return one webhook without its secrets; without an id, the first. Raises TaskNotFound when there is none."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        await self._outbox.ready()
        if self._configs is not None:
            config = await self._configs.get(row.id, request.id or None)
            if config is not None:
                return _redact(config, row.id)
        for push in await self._store.pushes(row.number) if self._configs is None else ():
            if not request.id or push.id == request.id:
                return self._outbox.redacted(push, row.id)
        raise TaskNotFound("the task has no such webhook", taskId=row.id)

    async def list(self, scope: Scope, request: ListPushConfigsRequest) -> tuple[TaskPushNotificationConfig, ...]:
        """Return all webhooks of a task without their secrets. Raises TaskNotFound when there is no such task."""
        row, _, _ = await self._tasks.find(scope, request.task_id)
        await self._outbox.ready()
        if self._configs is not None:
            return tuple(_redact(config, row.id) for config in await self._configs.list(row.id))
        return tuple(self._outbox.redacted(push, row.id) for push in await self._store.pushes(row.number))

    async def delete(self, scope: Scope, request: GetPushConfigRequest) -> None:
        """Delete a webhook. Deleting one that does not exist is no error.

        Raises:
            TaskNotFound: there is no such task, or it belongs to another caller.
            InvalidParams: the id can be that of no webhook.
            ServerError: the store cannot take writes.
        """
        row, _, _ = await self._tasks.find(scope, request.task_id)
        check_id(request.id, "id")
        await self._write(row, deleted_ids=(request.id,))
        self._outbox.unfollow(row.number, request.id)

    async def _write(self, row: TaskRow, *, pushes: tuple[Push, ...] = (), deleted_ids: tuple[str, ...] = ()) -> None:
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def on_done(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(error)

        self._store.write(Write(row, on_done, pushes=pushes, deleted_pushes=deleted_ids))
        error = await done
        if isinstance(error, TaskGenerationMismatch):  # the task was deleted in the meantime
            raise TaskNotFound(taskId=row.id) from error
        if error is not None:
            raise unavailable(error) from error

    def _with_id(
        self, config: TaskPushNotificationConfig, existing: list[Push], dialect: str, *, match_url: bool
    ) -> TaskPushNotificationConfig:
        """Return the config with an id: its own, that of the webhook it replaces, or a new one.

        With `match_url`, it replaces a webhook with the same URL.

        Raises:
            Overloaded: it replaces none, and the task has the maximum number of webhooks.
        """
        if not config.id:
            matches = (
                push
                for push in existing
                if (match_url and push.url == config.url) or self._outbox.replaces(push, dialect)
            )
            match = next(matches, None)
            config = structs.replace(config, id=new_id() if match is None else match.id)
        if len(existing) >= MAX_WEBHOOKS and all(push.id != config.id for push in existing):
            raise Overloaded(f"a task has {MAX_WEBHOOKS} webhooks at most: delete one, or replace it by its id")
        return config


def _redact(config: TaskPushNotificationConfig, task_id: str) -> TaskPushNotificationConfig:
    scheme = None if config.authentication is None else config.authentication.scheme
    authentication = None if scheme is None else AuthenticationInfo(scheme)
    return TaskPushNotificationConfig(config.url, config.id, task_id, None, authentication)
