"""The operations of A2A."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from dragoman.engine import paging
from dragoman.engine.accept.inbox import Inbox
from dragoman.engine.accept.locks import KeyedLocks
from dragoman.engine.accept.quota import Quota
from dragoman.engine.call import CallContext
from dragoman.engine.execute.cancel import TaskCanceler
from dragoman.engine.execute.containment import contain_exits
from dragoman.engine.execute.recovery import Recovery
from dragoman.engine.execute.runner import Runner
from dragoman.engine.journal.follow import Batch, Follower, Stream, single
from dragoman.engine.journal.tasks import Tasks
from dragoman.engine.journal.writer import STOPPING
from dragoman.engine.ownership.sole import SoleOwner
from dragoman.engine.paging import truncate_first, truncate_history
from dragoman.engine.ports.store import Cursor, Scope, TaskQuery
from dragoman.engine.settings import EngineSettings
from dragoman.engine.webhooks import WebhookOperations
from dragoman.model.error import (
    ExtensionSupportRequired,
    PushNotificationNotSupported,
    ServerError,
    Unauthorized,
    UnsupportedOperation,
)
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import DEFAULT_PAGE_SIZE, ListTasksResponse
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager

    from dragoman.clock import Clock
    from dragoman.engine.accept.quota import Lease
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ownership.port import Ownership
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.store import Store, StoredTask, TaskRow
    from dragoman.engine.ports.webhooks import Outbox
    from dragoman.model.operation import (
        CancelTaskRequest,
        GetPushConfigRequest,
        GetTaskRequest,
        ListPushConfigsRequest,
        ListTasksRequest,
        SendMessageRequest,
        SubscribeToTaskRequest,
        TaskPushNotificationConfig,
    )


logger = logging.getLogger("dragoman.engine")


class OperationResult(NamedTuple):
    """A result, the tag of the task it came from, and whether the request was a repeat."""

    result: Task | Message
    origin: str
    repeat: bool = False


class Service:
    """Everything callers can ask of one agent."""

    def __init__(
        self,
        agent: Runnable,
        store: Store,
        bus: Bus,
        clock: Clock,
        settings: EngineSettings | None = None,
        outbox: Outbox | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        self._agent = agent
        self._bus = bus
        self._settings = settings
        marks = None if agent.output_metadata is None else agent.output_metadata.task
        ownership = ownership or SoleOwner(store)
        self._tasks = tasks = Tasks(store, bus, clock, settings.task_rows, marks, ownership)
        self._quota = Quota(settings)
        self._runner = runner = Runner(agent, tasks, self._quota, settings)
        self._locks = locks = KeyedLocks()
        self._pushes = None if outbox is None else WebhookOperations(tasks, outbox)
        self._inbox = Inbox(agent, tasks, runner, self._quota, locks, settings, self._pushes)
        self._recovery = Recovery(agent, tasks, runner, settings, ownership)
        self._endings = TaskCanceler(agent, tasks, locks)
        self._follower = Follower(store, bus, self._tasks.live.get, settings.heartbeat)
        self._store = store
        self._closing = False
        self._required = frozenset(extension.uri for extension in agent.extensions if extension.required)

    @property
    def running(self) -> int:
        """How many runs go on now."""
        return len(self._runner)

    async def start(self) -> None:
        """Decide what becomes of the tasks a crash interrupted."""
        contain_exits(asyncio.get_running_loop())
        if self._settings.task_rows is not None:
            await self._settings.task_rows.load()
        await self._inbox.deduplicator.load()
        await self._recovery.recover()
        self._quota.recover(self._tasks.live.values())

    async def close(self) -> None:
        """Take no more messages, let the runs finish for a while, then end the streams, which can be resumed."""
        self._closing = True
        if self.running:
            logger.info(
                "stopping: %d tasks of %s are at work and may finish for %g s; a second Ctrl-C ends it at once",
                self.running,
                self._agent.name,
                self._settings.drain,
            )
        await self._runner.drain(self._settings.drain)
        self._tasks.close()
        self._follower.close()
        self._bus.wake_all()

    # -- messages --------------------------------------------------------------------------------------------------

    async def send(
        self, call: CallContext, request: SendMessageRequest, caller: str = "", lease: Lease | None = None
    ) -> OperationResult:
        """Take a message; by default wait until the task ends or asks. `caller` is whom it counts for.

        `lease` is the memory it takes, which is held until the run is over.

        Raises:
            A2AError: the message cannot be accepted.
        """
        if self._closing:
            raise ServerError(STOPPING)
        scope = self._admit(call, request.tenant)
        accepted = await self._inbox.accept(scope, call, request, caller, lease)
        length = request.configuration.history_length
        live = accepted.live
        if accepted.reply is not None:
            return OperationResult(accepted.reply, accepted.row.origin, accepted.repeat)
        if live is None:
            stored = await self._store.task(accepted.row.id)
            task = await self._tasks.durable_task(None, stored)
            return OperationResult(truncate_history(task, length), accepted.row.origin, accepted.repeat)
        if request.configuration.return_immediately:
            await live.wait_opened()
        else:
            await live.wait_settled()
        if live.reply is not None:
            return OperationResult(live.reply, live.row.origin, accepted.repeat)
        # What has settled is durable; what is still at work may have come further.
        task = await self._tasks.durable_task(live, None) if request.configuration.return_immediately else live.task()
        return OperationResult(
            task if length is None else truncate_history(task, length), live.row.origin, accepted.repeat
        )

    async def stream(
        self, call: CallContext, request: SendMessageRequest, caller: str = "", lease: Lease | None = None
    ) -> Stream:
        """Take a message and follow its task until it ends or asks for input. See `send`.

        Raises:
            A2AError: the message cannot be accepted.
        """
        place = self._must_stream(caller)
        if request.configuration.return_immediately:  # a stream is for those who wait
            waiting = structs.replace(request.configuration, return_immediately=False)
            request = structs.replace(request, configuration=waiting)
        if self._closing:
            raise ServerError(STOPPING)
        accepted = await self._inbox.accept(self._admit(call, request.tenant), call, request, caller, lease)
        live = accepted.live
        if accepted.reply is not None:
            return Stream(single(Record.of(0, accepted.reply)), accepted.row.origin, accepted.repeat)
        if live is not None:
            await live.wait_opened()
            if live.reply is not None:
                return Stream(single(Record.of(0, live.reply)), live.row.origin, accepted.repeat)
        length = request.configuration.history_length
        task = accepted.task
        if accepted.repeat and (
            request.message.task_id is not None or not await self._has_records(accepted.row, live, 0)
        ):
            stored = await self._store.task(accepted.row.id) if live is None else None
            task = await self._tasks.durable_task(live, stored)
        if task is not None:
            batches = self._from_snapshot(accepted.row, truncate_history(task, length), place, pause_ends=True)
            return Stream(batches, accepted.row.origin, accepted.repeat)
        batches = self._follower.follow(accepted.row, 0, ends_on_pause=True, slot=place)
        if length is not None:
            batches = truncate_first(batches, length)
        return Stream(batches, accepted.row.origin, accepted.repeat)

    async def resume(self, task_id: str, data: Any = None) -> Task:
        """Continue a task that waits, on behalf of its owner; for callbacks such as the end of an OAuth dance.

        Raises:
            TaskNotFound: there is no such task.
            UnsupportedOperation: it does not wait.
        """
        if self._closing:
            raise ServerError(STOPPING)
        accepted = await self._inbox.resume(task_id, data)
        return await self._tasks.durable_task(accepted.live, None)

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def get(self, call: CallContext, request: GetTaskRequest) -> OperationResult:
        """Read a task; with `current_generation`, wait a while for a newer one.

        Raises:
            TaskNotFound: there is none, or it is not the caller's.
        """
        scope = self._admit(call, request.tenant)
        row, live, stored = await self._tasks.find(scope, request.id)
        known = request.current_generation
        if known is not None and not row.state.final and row.generation <= known:
            with self._bus.watch(request.id) as watch:
                row, live, stored = await self._tasks.find(scope, request.id)
                if row.generation <= known:
                    await watch.wait_past(known, self._settings.long_poll)
                    row, live, stored = await self._tasks.find(scope, request.id)
        task = await self._tasks.durable_task(live, stored)
        return OperationResult(truncate_history(task, request.history_length), row.origin)

    async def list(self, call: CallContext, request: ListTasksRequest) -> ListTasksResponse:
        """Read a page of the caller's tasks: as many as asked for, or as fit into the page's bytes, but one at least.

        Raises:
            InvalidParams: the page token or the time is wrong.
            Unauthorized: the caller may not list tasks.
        """
        scope = self._admit(call, request.tenant)
        if not call.lists:
            raise Unauthorized("tasks are not listed to strangers here: the server needs auth, or open_list")
        size = request.page_size or DEFAULT_PAGE_SIZE
        state = None if request.status is State.UNSPECIFIED else request.status
        since, budget = paging.parse_since(request.status_timestamp_after), self._settings.page_bytes
        query = TaskQuery(scope, request.context_id or None, state, since, size, budget=budget)
        if request.page_token:
            query = structs.replace(query, after=paging.decode_token(query, request.page_token))
        page = await self._store.page(query)
        tasks: list[Task] = []
        for stored in page.tasks:
            live = self._tasks.live.get(stored.row.id)
            task = await self._tasks.durable_task(None if live is None or live.broken else live, stored)
            task = truncate_history(task, request.history_length)
            task = task if request.include_artifacts else structs.replace(task, artifacts=())
            # The store counts snapshots only: one that is at work may be far larger by now.
            at_rest = stored.snapshot if live is None and stored.snapshot_generation == stored.row.generation else None
            budget -= len(encode(task) if at_rest is None else at_rest)
            if tasks and budget < 0:
                break
            tasks.append(task)
        following = ""
        if page.more or len(tasks) < len(page.tasks):
            last = page.tasks[len(tasks) - 1].row
            following = paging.encode_token(query, Cursor(last.status_ms, last.number))
        return ListTasksResponse(tuple(tasks), following, size, page.total)

    async def cancel(self, call: CallContext, request: CancelTaskRequest) -> OperationResult:
        """Cancel a task; the work is told to stop and can change nothing more.

        Raises:
            TaskNotFound: there is none, or it is not the caller's.
            TaskNotCancelable: it has ended.
        """
        task, origin = await self._endings.cancel(self._admit(call, request.tenant), request.id)
        return OperationResult(task, origin)

    async def fail(self, task_id: str, text: str) -> bool:
        """Fail a task from inside the server, with that text. False when there is none that could be failed."""
        return await self._endings.fail(task_id, text)

    def is_running(self, task_id: str) -> bool:
        """True while a run works on a task, or is about to."""
        live = self._tasks.live.get(task_id)
        return live is not None and not live.over

    async def subscribe(
        self, call: CallContext, request: SubscribeToTaskRequest, after: int | None = None, caller: str = ""
    ) -> Stream:
        """Follow a task until it ends: from a snapshot, or after the record a reader saw last.

        Raises:
            TaskNotFound: there is none, or it is not the caller's.
            UnsupportedOperation: it has ended and nothing is left to send.
        """
        place = self._must_stream(caller)
        scope = self._admit(call, request.tenant)
        row, live, stored = await self._tasks.find(scope, request.id)
        state = live.state if live else row.state
        known = after is not None and 0 <= after <= row.generation
        if after is not None and known and state.final:
            known = after < row.generation and await self._has_records(row, live, after)
        if after is not None and known:
            batches = self._follower.follow(row, after, ends_on_pause=False, slot=place)
            return Stream(batches, row.origin, artifacts=partial(self._artifact_ids, live, stored))
        if state.final:
            raise UnsupportedOperation("the task has ended: there is nothing to subscribe to", taskId=request.id)
        task = await self._tasks.durable_task(live, stored)
        return Stream(self._from_snapshot(row, task, place, pause_ends=False), row.origin)

    # -- webhooks --------------------------------------------------------------------------------------------------

    async def create_push(self, call: CallContext, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Have a task's events brought to a webhook.

        Raises:
            PushNotificationNotSupported: this agent calls nobody.
            TaskNotFound: there is no such task, or it is not the caller's.
            InvalidParams: its address may not be called.
        """
        scope = self._admit(call, config.tenant)
        return await self._must_push().create(scope, config, call.version)

    async def get_push(self, call: CallContext, request: GetPushConfigRequest) -> TaskPushNotificationConfig:
        """Show a webhook, without its secrets. Raises TaskNotFound or PushNotificationNotSupported."""
        scope = self._admit(call, request.tenant)
        return await self._must_push().get(scope, request)

    async def list_pushes(
        self, call: CallContext, request: ListPushConfigsRequest
    ) -> tuple[TaskPushNotificationConfig, ...]:
        """Show all webhooks of a task, without their secrets. Raises TaskNotFound or PushNotificationNotSupported."""
        scope = self._admit(call, request.tenant)
        return await self._must_push().list(scope, request)

    async def delete_push(self, call: CallContext, request: GetPushConfigRequest) -> None:
        """Remove a webhook. Raises TaskNotFound or PushNotificationNotSupported."""
        scope = self._admit(call, request.tenant)
        await self._must_push().delete(scope, request)

    def _must_push(self) -> WebhookOperations:
        if self._pushes is None:
            raise PushNotificationNotSupported
        return self._pushes

    # -- what later capabilities turn on ---------------------------------------------------------------------------

    def extended_card(self, call: CallContext, tenant: str | None) -> None:
        """Answer for the extended card while there is none.

        Raises:
            UnsupportedOperation: always.
        """
        self._admit(call, tenant)
        raise UnsupportedOperation("this agent has no extended card", capability="extendedAgentCard")

    # -- parts -----------------------------------------------------------------------------------------------------

    def _admit(self, call: CallContext, tenant: str | None) -> Scope:
        if self._required and not self._required <= call.extensions:
            missing = self._required - call.extensions
            names = ", ".join(sorted(missing))
            raise ExtensionSupportRequired(f"declare the extension in A2A-Extensions: {names}", extensions=names)
        return Scope(self._agent.name, call.tenant or tenant or "", call.user.id if call.user else "")

    def _must_stream(self, caller: str) -> AbstractContextManager[None]:
        self._quota.check_stream(caller)
        if not self._agent.streams:
            raise UnsupportedOperation("this agent does not stream: its card says streaming is false")
        return self._quota.stream(caller)

    async def _has_records(self, row: TaskRow, live: LiveTask | None, after: int) -> bool:
        """False when the records after that one have been compacted."""
        return live is not None or bool(await self._store.records(row.number, after, 1))

    async def _artifact_ids(self, live: LiveTask | None, stored: StoredTask | None) -> tuple[str, ...]:
        task = await self._tasks.durable_task(live, stored)
        return tuple(artifact.artifact_id for artifact in task.artifacts)

    def _from_snapshot(
        self, row: TaskRow, task: Task, place: AbstractContextManager[None], *, pause_ends: bool
    ) -> AsyncGenerator[Batch, None]:
        generation = task.generation or 0
        begins = Record.of(generation, task)
        return self._follower.follow(row, generation, ends_on_pause=pause_ends, first_record=begins, slot=place)
