"""Accepts messages when other processes accept messages for the same store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from dragoman.clock import sleep
from dragoman.engine.accept.inbox import RETRY_SECONDS, TRIES, AcceptedMessage, Inbox
from dragoman.engine.journal.tasks import ELSEWHERE
from dragoman.engine.ports.ownership import MessageRepeated, OwnershipLost
from dragoman.model.error import InvalidParams, ServerError, TaskNotFound
from dragoman.model.ids import check_id
from dragoman.model.json import encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.engine.call import CallContext
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.store import DedupeKey, Scope, StoredTask, TaskRow
    from dragoman.model.message import Message
    from dragoman.model.operation import SendMessageRequest

CUT_OFF = "this server has lost the connection to its store: try again with the same messageId"


class SharedInbox(Inbox):
    """An inbox among several on one store. What a message is, the store decides: others may decide at the same time.

    `refresh` brings a live task up to date with the store.
    """

    def __init__(self, *parts: Any, refresh: Callable[[LiveTask], Awaitable[None]]) -> None:
        super().__init__(*parts)
        self._refresh = refresh

    async def _route(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        caller: str,
        created: AcceptedMessage | None = None,
    ) -> AcceptedMessage:
        """Decide what a message is, and let the store have the last word."""
        if created is None and self._tasks.ownership.expired:  # the caller may ask another server, which is not cut off
            raise ServerError(CUT_OFF, retryAfter="1")
        message = request.message
        check_id(message.message_id, "message.messageId")
        dedupe_key = self._window.key_of(scope, message)
        task_id = message.task_id or request.new_task_id
        if task_id is None:
            return await self._create_decided(scope, call, request, dedupe_key, caller, created)
        async with self._locks.hold(task_id):
            for _ in range(TRIES):
                accepted = await self._try_existing(scope, call, request, dedupe_key, caller, task_id)
                if accepted is not None:
                    return accepted
                # Another process has claimed it or changed its state, and is about to write that.
                await sleep(self._tasks.clock, RETRY_SECONDS)
            raise ServerError(ELSEWHERE)

    async def _try_existing(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        caller: str,
        task_id: str,
    ) -> AcceptedMessage | None:
        """Accept a message to an existing task, or one that creates it. None when another process was faster."""
        tasks, message = self._tasks, request.message
        try:
            found, had_ended = await self._find_existing(scope, task_id)
        except OwnershipLost:
            return None
        # After the task was read: what another process accepts from now on changes its generation.
        duplicate = await self._find_duplicate(scope, call, message, dedupe_key)
        if duplicate is not None:
            return duplicate
        if found is None:
            if message.task_id is not None:
                raise TaskNotFound(taskId=task_id)
            other = await tasks.store.task(task_id)
            if other is not None and other.row.scope == scope:
                return None
            if other is not None:
                raise InvalidParams("this id cannot be used: choose another", field="id")
            return await self._create_decided(scope, call, request, dedupe_key, caller)
        row, live, stored = found
        if live is not None and live.phase.has_ended and not had_ended:
            return None  # it ended only now: another process may have been faster
        self._check_can_accept(request, row, live)
        if live is not None and live.row.state.waiting:  # it has just paused and its run is still being released
            with suppress(OwnershipLost):
                await live.durability.wait_settled()
            if not row.state.waiting:
                return None
        if row.state.waiting and not await self._waits_for_login(row):
            return await self._answer_shared(stored, call, request, dedupe_key, caller)
        return await self._post(scope, call, request, dedupe_key, row, None if row.state.waiting else live)

    async def _find_existing(
        self, scope: Scope, task_id: str
    ) -> tuple[tuple[TaskRow, LiveTask | None, StoredTask | None] | None, bool]:
        """Find a task, and whether its run here has ended. Raises OwnershipLost when its end was refused."""
        current = self._tasks.live.get(task_id)
        if current is not None and current.phase.is_draft:  # wait until it is either a task or answered without one
            with suppress(OwnershipLost):
                await current.wait_durable(1)
        try:
            found = await self._tasks.find(scope, task_id)
        except TaskNotFound:
            return None, False
        live = found[1]
        if live is None or not live.phase.has_ended:
            return found, False
        await live.wait_durable()  # until then, other processes accept messages for it, and perhaps this one
        return found, True

    async def _post(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        row: TaskRow,
        live: LiveTask | None,
    ) -> AcceptedMessage | None:
        message = structs.replace(request.message, task_id=row.id, context_id=row.context_id)
        # One that waits for a login must still do so: at its next pause, a message may be the answer.
        expected = row.generation if row.state.waiting else request.configuration.if_generation_match
        try:
            if not await self._tasks.ownership.post(row, encode(message), dedupe_key, expected):
                return None
        except MessageRepeated:
            return await self._find_duplicate(scope, call, message, dedupe_key)
        if live is not None:
            await self._refresh(live)
        stored = await self._tasks.store.task(row.id)
        if stored is None:
            raise TaskNotFound(taskId=row.id)
        return AcceptedMessage(stored.row, self._tasks.live_of(stored), await self._tasks.read(stored))

    async def _answer_shared(
        self,
        stored: StoredTask | None,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        caller: str | None,
    ) -> AcceptedMessage | None:
        if stored is None:
            return None
        try:
            return await self._claim_and_resume(
                stored, call, request.message, request.metadata, dedupe_key, caller, kind="answer"
            )
        except MessageRepeated:
            return await self._find_duplicate(stored.row.scope, call, request.message, dedupe_key)

    async def go_on(self, stored: StoredTask, call: CallContext, message: Message) -> AcceptedMessage | None:
        """Continue a waiting task with something that its caller has not sent. None when another process was faster.

        Raises:
            ServerError: the store cannot take writes.
        """
        return await self._claim_and_resume(stored, call, message, None, None, None, kind="resumed")

    async def _claim_and_resume(
        self, stored: StoredTask, *answer: Any, kind: Literal["answer", "resumed"]
    ) -> AcceptedMessage | None:
        """Claim a waiting task and continue it. None when another process was faster."""
        # Read before the claim, which keeps others from answering.
        history = await self._tasks.run_history(stored.row, stored.mail)
        claimed = await self._tasks.ownership.claim(stored)
        if claimed is None:
            return None
        if not claimed.stored.row.state.waiting:
            self._tasks.ownership.release(claimed.claim)
            return None
        live: LiveTask | None = None
        try:
            live = await self._tasks.load(claimed)
            if live.mail != stored.mail:  # messages came meanwhile
                history = await self._tasks.run_history(stored.row, live.mail)
            return await self._resume_live(live, history, *answer, kind=kind)
        except MessageRepeated:
            raise
        except BaseException:
            if live is None or live.row.state.waiting:  # the answer was not written: another process may try
                self._tasks.ownership.release(claimed.claim)
            raise
