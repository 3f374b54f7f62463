"""The A2A operations of one agent, independent of protocol version and transport."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.engine import paging
from dragoman.engine.accept.dedupe import DedupeWindow
from dragoman.engine.accept.inbox import Inbox
from dragoman.engine.accept.resumption import Resumption
from dragoman.engine.accept.watch import ForeignWatch
from dragoman.engine.call import CallContext, OperationResult
from dragoman.engine.draining import Draining
from dragoman.engine.execute.cancel import TaskCanceler
from dragoman.engine.execute.containment import contain_exits
from dragoman.engine.execute.keeper import ClaimKeeper
from dragoman.engine.execute.reaper import BrokenTaskReaper
from dragoman.engine.execute.recovery import Recovery
from dragoman.engine.execute.runner import Runner
from dragoman.engine.journal.follow import Follower, Stream, single
from dragoman.engine.journal.phase import Phase
from dragoman.engine.journal.tasks import ELSEWHERE, Tasks
from dragoman.engine.locks import KeyedLocks
from dragoman.engine.paging import has_message, truncate_first, truncate_history, with_empty_artifacts
from dragoman.engine.ports.ownership import MessageRepeated, OwnershipLost
from dragoman.engine.ports.sole import SoleOwner
from dragoman.engine.ports.store import Cursor, Scope, TaskQuery
from dragoman.engine.quota import Quota
from dragoman.engine.settings import EngineSettings
from dragoman.engine.shielded import shielded
from dragoman.engine.webhooks import WebhookOperations
from dragoman.model.error import (
    ExtensionSupportRequired,
    PushNotificationNotSupported,
    ServerError,
    Unauthorized,
    UnsupportedOperation,
)
from dragoman.model.ids import check_id
from dragoman.model.json import encode
from dragoman.model.operation import DEFAULT_PAGE_SIZE, ListTasksResponse
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from dragoman.clock import Clock
    from dragoman.engine.accept.inbox import AcceptedMessage
    from dragoman.engine.journal.follow import OnEnd
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.ownership import Ownership
    from dragoman.engine.ports.store import Store, StoredTask, TaskRow
    from dragoman.engine.ports.webhooks import Outbox
    from dragoman.engine.quota import Lease
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


class Service:
    """The A2A operations of one agent: messages, tasks, streams and webhooks.

    Every operation of a caller raises ExtensionSupportRequired when the agent requires an extension that the call does
    not declare, and InvalidParams for a tenant that is no id.
    """

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
        status_metadata = None if agent.output_metadata is None else agent.output_metadata.task
        self._write_through = None if settings.wrap_store is None else settings.wrap_store(store, outbox)
        store = store if self._write_through is None else self._write_through
        ownership = ownership or SoleOwner(store)
        self._tasks = tasks = Tasks(
            store,
            bus,
            clock,
            settings.task_rows,
            status_metadata,
            ownership,
            serial=not agent.parallel,
            pins=agent.pinned,
            on_refused=self._on_refused,
        )
        self._quota = Quota(settings)
        self.runner = runner = Runner(agent, tasks, self._quota, settings, self._on_paused, self._on_broken)
        self._locks = locks = KeyedLocks()
        self._webhooks = None if outbox is None else WebhookOperations(tasks, outbox, settings.configs)
        self._recovery = Recovery(agent, tasks, runner, settings, ownership)
        self._reaper = BrokenTaskReaper(tasks, self._recovery, locks, self._on_opened)
        self._keeper: ClaimKeeper | None = None
        window = DedupeWindow(clock, settings.dedupe)
        self._inbox = Inbox(agent, tasks, runner, self._quota, locks, settings, window, self._webhooks)
        if ownership.shared:
            self._keeper = ClaimKeeper(agent, tasks, runner, self._recovery, locks)
        self._resumption = Resumption(agent.name, tasks, locks, self._inbox.go_on)
        self._watch = ForeignWatch(agent, tasks, self._resumption)
        self.canceler = TaskCanceler(agent, tasks, locks, self.runner.run_log)
        self._follower = Follower(store, bus, self._tasks.live.get, settings.heartbeat)
        self._store = store
        self._draining = Draining(agent.name, runner, self._keeper, ownership, clock)
        self._required_extensions = frozenset(extension.uri for extension in agent.extensions if extension.required)

    def _on_refused(self, live: LiveTask) -> None:
        if live.phase is Phase.REFUSED and self._tasks.live.get(live.row.id) is not live:
            self._on_broken(live)  # its run was canceled before its last writes were committed

    def _on_broken(self, live: LiveTask) -> None:
        if not isinstance(live.durability.cause, MessageRepeated):  # that was no task
            self._reaper.add(live)

    async def _on_opened(self, row: TaskRow) -> None:
        if self._webhooks is not None:
            for push in await self._store.pushes(row.number):
                self._webhooks.follow(row, push, may_be_behind=True)

    def _on_paused(self, row: TaskRow) -> None:
        self._watch.add(row)

    @property
    def agent_name(self) -> str:
        """The name of the agent."""
        return self._agent.name

    @property
    def running(self) -> int:
        """The number of runs that are executing now."""
        return len(self.runner)

    @property
    def open_streams(self) -> int:
        """The number of streams that are open now."""
        return self._follower.open_count

    def sample(self) -> None:
        """Set the metrics of what is under way: runs and streams."""
        METRICS.tasks_in_progress.set(len(self.runner), (self._agent.name,))
        METRICS.streams.set(self.open_streams, (self._agent.name,))

    async def start(self) -> None:
        """Restart or fail the tasks that a crash interrupted."""
        contain_exits(asyncio.get_running_loop())
        if self._settings.task_rows is not None:
            await self._settings.task_rows.load()
        self._watch.start()
        if self._keeper is not None:
            self._keeper.start()
            return
        await self._recovery.recover()

    async def drain(self) -> None:
        """With other processes on the store, let runs finish as `Draining` says, and be a front until it is closed."""
        if self._keeper is not None:
            await self._draining.drain(self._settings.drain)

    async def close(self) -> None:
        """Let runs finish, if they have not been drained, then end the streams. Clients can resume them."""
        self._watch.close()
        if not self._draining.is_done:
            await self._draining.drain(self._settings.drain)
        self._draining.close()
        if self._write_through is not None:
            await self._write_through.flush()
        if self._keeper is not None:
            await self._keeper.close()
        self._reaper.close()
        self._follower.close()
        self._bus.wake_all()

    # -- messages --------------------------------------------------------------------------------------------------

    async def send(
        self, call: CallContext, request: SendMessageRequest, caller: str = "", lease: Lease | None = None
    ) -> OperationResult:
        """Accept a message; by default wait until the task ends or pauses.

        `caller` is the key that quotas count it for. `lease` is the memory of the request, held until its run ends.

        Raises:
            ServerError: the server is stopping, or the store cannot take writes.
            A2AError: the message cannot be accepted, as in `Inbox.accept`; or the agent raised it for a new task that
                the caller has not got yet.
        """
        if self._draining.has_begun:
            self._draining.check_accepts()
        scope = self._admit(call, request.tenant)
        accepted = await self._inbox.accept(scope, call, request, caller, lease)
        length = request.configuration.history_length
        live = accepted.live
        if accepted.reply is not None:
            return OperationResult(accepted.reply, accepted.row.origin, accepted.repeat)
        if live is not None:
            try:
                return await self._result_of(live, accepted, request)
            except OwnershipLost:  # the task goes on in another process
                pass
        # Here, every task that is at work has a run, unless it is about to fail: nothing is to be waited for.
        if not (request.configuration.return_immediately or self._tasks.ownership.is_home):
            with self._draining.count_caller():
                stored = await self._tasks.wait_settled(
                    accepted.row, self._settings.long_poll, lambda: self._draining.is_closed
                )
        else:
            stored = await self._store.task(accepted.row.id)
        task = await self._tasks.durable_task(None, stored)
        return OperationResult(truncate_history(task, length), accepted.row.origin, accepted.repeat)

    async def _result_of(
        self, live: LiveTask, accepted: AcceptedMessage, request: SendMessageRequest
    ) -> OperationResult:
        """Wait for the task of an accepted message as its caller wants."""
        configuration = request.configuration
        if not configuration.return_immediately:
            await live.durability.wait_settled()
            if live.outcome.error is not None and accepted.task is None and not accepted.repeat:
                raise live.outcome.error  # this caller has no task yet
        elif accepted.task is None:
            await live.wait_durable(1)
        if live.outcome.reply is not None:
            return OperationResult(live.outcome.reply, live.row.origin, accepted.repeat)
        # A settled task is durable, and so is one that a message was added to. A new one may have events that are not.
        task = live.task()
        if configuration.return_immediately:
            task = accepted.task or await self._tasks.durable_task(live, None)
        is_old = accepted.task is not None or accepted.repeat
        if is_old and not has_message(task, request.message.message_id):
            # It was posted to the task, and its run has not read it yet.
            task = await self._tasks.durable_task(None, await self._store.task(live.row.id))
        length = configuration.history_length
        return OperationResult(
            task if length is None else truncate_history(task, length), live.row.origin, accepted.repeat
        )

    async def stream(
        self,
        call: CallContext,
        request: SendMessageRequest,
        caller: str = "",
        lease: Lease | None = None,
        on_end: OnEnd | None = None,
    ) -> Stream:
        """Accept a message, as `send` does, and stream its task until it ends or is input-required.

        `on_end` is called when a stream that was returned is over, unless nobody has read of it.

        Raises:
            UnsupportedOperation: the agent does not stream.
            Overloaded: the caller or the server has the maximum number of streams.
            A2AError: the message cannot be accepted, as in `send`.
        """
        slot = self._admit_stream(caller)
        if request.configuration.return_immediately:  # meaningless for a stream: ignore it
            configuration = structs.replace(request.configuration, return_immediately=False)
            request = structs.replace(request, configuration=configuration)
        if self._draining.has_begun:
            self._draining.check_accepts()
        accepted = await self._inbox.accept(self._admit(call, request.tenant), call, request, caller, lease)
        live = accepted.live
        if accepted.reply is not None:
            return Stream(single(Record.of(0, accepted.reply), on_end), accepted.row.origin, accepted.repeat)
        if live is not None and await self._is_opened_here(live):
            if live.outcome.draft_error is not None and accepted.task is None and not accepted.repeat:
                raise live.outcome.draft_error
            if live.outcome.reply is not None:
                return Stream(single(Record.of(0, live.outcome.reply), on_end), live.row.origin, accepted.repeat)
        elif live is not None and await self._store.task(live.row.id) is None:
            raise ServerError(ELSEWHERE, retryAfter="1")  # another process has its draft, or has answered it
        length = request.configuration.history_length
        task = accepted.task
        if accepted.repeat and (
            request.message.task_id is not None or not await self._has_records(accepted.row, live, 0)
        ):
            stored = await self._store.task(accepted.row.id) if live is None else None
            task = await self._tasks.durable_task(live, stored)
        if task is not None:
            # The text comes once more only if the task closes so, whoever answers.
            if call.closing == "whole" and live is not None and live.form.closing == "whole" and not accepted.repeat:
                task = with_empty_artifacts(task)
            batches = self._follower.follow_from_snapshot(
                accepted.row, truncate_history(task, length), ends_on_input_required=True, slot=slot, on_end=on_end
            )
            return Stream(batches, accepted.row.origin, accepted.repeat)
        batches = self._follower.follow(accepted.row, 0, ends_on_input_required=True, slot=slot, on_end=on_end)
        if length is not None:
            batches = truncate_first(batches, length)
        return Stream(batches, accepted.row.origin, accepted.repeat)

    async def resume(self, handle: str, data: Any = None) -> Task:
        """Continue a task that waits for a login; for callbacks such as the end of an OAuth flow.

        Raises:
            InvalidParams: the handle is not that of a login that a task of this agent waits for.
            ServerError: the server is stopping, or the store cannot take writes.
        """
        if self._draining.has_begun:
            self._draining.check_accepts()
        accepted = await self._resumption.resume(handle, data)
        stored = await self._store.task(accepted.row.id) if accepted.live is None else None  # another process runs it
        return await self._tasks.durable_task(accepted.live, stored)

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def get(self, call: CallContext, request: GetTaskRequest) -> OperationResult:
        """Read a task; with `current_generation`, wait up to `long_poll` seconds for a newer generation.

        Raises:
            TaskNotFound: there is none, or it belongs to another caller.
        """
        scope = self._admit(call, request.tenant)
        row, live, stored = await self._tasks.find(scope, request.id)
        generation = request.current_generation
        if generation is not None and not row.state.final and row.generation <= generation:
            with self._bus.watch(request.id) as watch:
                row, live, stored = await self._tasks.find(scope, request.id)
                if row.generation <= generation:
                    await watch.wait_past(generation, self._settings.long_poll)
                    row, live, stored = await self._tasks.find(scope, request.id)
        task = self.runner.hide_unfinished(await self._tasks.durable_task(live, stored))
        return OperationResult(truncate_history(task, request.history_length), row.origin)

    async def list(self, call: CallContext, request: ListTasksRequest) -> ListTasksResponse:
        """Read a page of the caller's tasks: up to `page_size`, or as many as fit into `page_bytes`, but at least one.

        Raises:
            InvalidParams: the page token or the timestamp is invalid.
            Unauthorized: the caller is anonymous and may not list tasks.
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
            live = self._tasks.live_of(stored)
            task = await self._tasks.durable_task(None if live is None or live.phase.is_broken else live, stored)
            task = truncate_history(self.runner.hide_unfinished(task), request.history_length)
            task = task if request.include_artifacts else structs.replace(task, artifacts=())
            # The store's limit counts snapshots only: a working task may be far larger by now.
            snapshot = stored.snapshot if live is None and stored.snapshot_generation == stored.row.generation else None
            budget -= len(encode(task) if snapshot is None else snapshot)
            if tasks and budget < 0:
                break
            tasks.append(task)
        next_token = ""
        if page.more or len(tasks) < len(page.tasks):
            last = page.tasks[len(tasks) - 1].row
            next_token = paging.encode_token(query, Cursor(last.status_ms, last.number))
        return ListTasksResponse(tuple(tasks), next_token, size, page.total)

    async def cancel(self, call: CallContext, request: CancelTaskRequest) -> OperationResult:
        """Cancel a task. Its run is canceled too, and can change nothing more.

        Raises:
            TaskNotFound: there is none, or it belongs to another caller.
            TaskNotCancelable: it has ended.
            ServerError: the store cannot take writes.
        """
        return OperationResult(*await self.canceler.cancel(self._admit(call, request.tenant), request.id))

    async def fail(self, task_id: str, text: str) -> bool:
        """Fail a task from inside the server. False when it does not exist or has ended. Raises ServerError."""
        return await self.canceler.fail(task_id, text)

    def is_running(self, task_id: str) -> bool:
        """True while a run of the task is executing or queued."""
        live = self._tasks.live.get(task_id)
        return live is not None and not live.phase.is_over

    async def subscribe(
        self,
        call: CallContext,
        request: SubscribeToTaskRequest,
        after: int | None = None,
        caller: str = "",
        on_end: OnEnd | None = None,
    ) -> Stream:
        """Stream a task until it ends: from a snapshot, or from the record after generation `after`. `on_end` as above.

        Raises:
            TaskNotFound: there is none, or it belongs to another caller.
            UnsupportedOperation: it has ended and there is nothing left to send, or the agent does not stream.
            Overloaded: the caller or the server has the maximum number of streams.
        """
        slot = self._admit_stream(caller)
        scope = self._admit(call, request.tenant)
        row, live, stored = await self._tasks.find(scope, request.id)
        if live is not None and live.phase.has_ended:  # nobody may learn of that before it is durable
            await live.wait_durable()
        state = live.row.state if live else row.state
        resumable = after is not None and 0 <= after <= row.generation
        if after is not None and resumable and state.final:
            resumable = after < row.generation and await self._has_records(row, live, after)
        if after is not None and resumable:
            batches = self._follower.follow(row, after, ends_on_input_required=False, slot=slot, on_end=on_end)
            return Stream(batches, row.origin, artifacts=partial(self._artifact_ids, live, stored))
        if state.final:
            raise UnsupportedOperation("the task has ended: there is nothing to subscribe to", taskId=request.id)
        task = await self._tasks.durable_task(live, stored)
        batches = self._follower.follow_from_snapshot(row, task, ends_on_input_required=False, slot=slot, on_end=on_end)
        return Stream(batches, row.origin)

    # -- webhooks --------------------------------------------------------------------------------------------------

    async def create_push(self, call: CallContext, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Create a webhook that receives a task's events, or replace the one with the same id.

        Raises:
            PushNotificationNotSupported: this agent sends no webhooks.
            TaskNotFound: there is no such task, or it belongs to another caller.
            InvalidParams: the webhook is malformed, or its address is not allowed.
            Overloaded: the task has the maximum number of webhooks.
            ServerError: the webhook cannot be stored now.
        """
        scope = self._admit(call, config.tenant)
        return await shielded(self._require_webhooks().create(scope, config, call.version))

    async def get_push(self, call: CallContext, request: GetPushConfigRequest) -> TaskPushNotificationConfig:
        """Return a webhook without its secrets.

        Raises:
            PushNotificationNotSupported: this agent sends no webhooks.
            TaskNotFound: there is no such task or webhook, or it belongs to another caller.
        """
        scope = self._admit(call, request.tenant)
        return await self._require_webhooks().get(scope, request)

    async def list_pushes(
        self, call: CallContext, request: ListPushConfigsRequest
    ) -> tuple[TaskPushNotificationConfig, ...]:
        """Return a task's webhooks without their secrets. Raises as `get_push` does."""
        scope = self._admit(call, request.tenant)
        return await self._require_webhooks().list(scope, request)

    async def delete_push(self, call: CallContext, request: GetPushConfigRequest) -> None:
        """Delete a webhook; no error when there is none with this id.

        Raises:
            PushNotificationNotSupported: this agent sends no webhooks.
            TaskNotFound: there is no such task, or it belongs to another caller.
            ServerError: the store cannot take writes.
        """
        scope = self._admit(call, request.tenant)
        await shielded(self._require_webhooks().delete(scope, request))

    def _require_webhooks(self) -> WebhookOperations:
        if self._webhooks is None:
            raise PushNotificationNotSupported
        return self._webhooks

    # -- the extended card -----------------------------------------------------------------------------------------

    def extended_card(self, call: CallContext, tenant: str | None) -> None:
        """Refuse a request for the extended card: the engine has none.

        Raises:
            UnsupportedOperation: always, unless an extension is missing.
        """
        self._admit(call, tenant)
        raise UnsupportedOperation("this agent has no extended card", capability="extendedAgentCard")

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _admit(self, call: CallContext, tenant: str | None) -> Scope:
        if self._required_extensions and not self._required_extensions <= call.extensions:
            missing = self._required_extensions - call.extensions
            names = ", ".join(sorted(missing))
            raise ExtensionSupportRequired(f"declare the extension in A2A-Extensions: {names}", extensions=names)
        tenant = call.tenant or tenant or ""
        if tenant:
            check_id(tenant, "tenant")
        return Scope(self._agent.name, tenant, call.user.id if call.user else "")

    def _admit_stream(self, caller: str) -> AbstractContextManager[None]:
        self._quota.check_stream(caller)
        if not self._agent.streams:
            raise UnsupportedOperation("this agent does not stream: its card says streaming is false")
        return self._quota.stream(caller)

    async def _is_opened_here(self, live: LiveTask) -> bool:
        """Wait until the task is durable. False when it goes on in another process."""
        try:
            await live.wait_durable(1)
        except OwnershipLost:
            return False
        return True

    async def _has_records(self, row: TaskRow, live: LiveTask | None, after: int) -> bool:
        """False when the records after generation `after` have been compacted."""
        return live is not None or bool(await self._store.records(row.number, after, 1))

    async def _artifact_ids(self, live: LiveTask | None, stored: StoredTask | None) -> tuple[str, ...]:
        task = await self._tasks.durable_task(live, stored)
        return tuple(artifact.artifact_id for artifact in task.artifacts)
