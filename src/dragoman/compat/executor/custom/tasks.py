"""Writes every change of a task to the user's task store before it is written to the journal."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from dragoman.clock import wait
from dragoman.compat.executor.custom.call import CustomObject
from dragoman.compat.executor.types import Task
from dragoman.engine.journal.replay import Replay, messages_by_generation
from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.engine.ports.store import ACCEPTED
from dragoman.model.error import ServerError
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import as_object
from dragoman.model.record import Folding
from dragoman.model.task import Task as ModelTask
from dragoman.stores.sole import MailWrite, SoleWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.compat.executor.custom.webhooks import CustomConfigs
    from dragoman.compat.executor.task_store import TaskStore
    from dragoman.engine.ports.store import Scope, Store, StoredTask, Verdict, Write
    from dragoman.engine.ports.webhooks import Outbox

# Seconds for the writes that are left when the server stops.
FLUSH_SECONDS = 10.0
# Metadata of saved tasks that belong to somebody. Without it, a task that only the user's store has is everybody's.
OWNER_KEY = "dragoman/owner"
_METHODS = {"get": ("task_id",), "save": ("task",), "delete": ("task_id",)}


class CustomTasks:
    """The user's task store. Every method raises ServerError when it fails.

    Raises:
        ConfigError: the object is no task store.
    """

    def __init__(self, store: object) -> None:
        self._store = CustomObject(store, "task store", "task_store", _METHODS)

    async def get(self, task_id: str) -> tuple[Task, str, str] | None:
        """Return a task with its tenant and its owner, or None."""
        value = await self._store.call("get", task_id)
        if value is None:
            return None
        task = self._store.read("get", value, Task)
        if task.id != task_id:
            raise self._store.error("get", "it returned another task")
        metadata = dict(task.metadata or {})
        owner = as_object(metadata.pop(OWNER_KEY, None))
        task = structs.replace(task, metadata=metadata or None)
        return task, str(owner.get("tenant") or ""), str(owner.get("owner") or "")

    async def save(self, task: ModelTask, scope: Scope) -> None:
        """Save a task. Who owns it is in its metadata, for `get`."""
        if scope.tenant or scope.owner:
            owner = {"tenant": scope.tenant, "owner": scope.owner}
            task = structs.replace(task, metadata={**(task.metadata or {}), OWNER_KEY: owner})
        await self._store.call("save", Task.from_model(task))

    async def delete(self, task_id: str) -> None:
        """Delete a task."""
        await self._store.call("delete", task_id)


class _TaskWrites:
    """The writes of one task that are on their way, and the task with all of them."""

    def __init__(self) -> None:
        self.queue: deque[Write] = deque()
        self.folding: Folding | None = None
        self.worker: asyncio.Task[None] | None = None
        self.unreported = 0
        self.settled = False


class WriteThroughStore(SoleWriter):
    """An engine's store that passes on what changes: tasks to `tasks`, webhooks to `configs`, then all to `store`.

    Nothing is in the journal, and so nothing reaches a caller, that the user's stores have not taken. A task that is
    being worked on is read from the journal, any other from the user's store: what that has differs from the journal
    when other code has written it, and then the journal is brought up to date. The writes of one task keep their order.
    """

    def __init__(
        self,
        store: Store,
        journal: TaskStore,
        tasks: CustomTasks | None,
        configs: CustomConfigs | None,
        outbox: Outbox | None,
    ) -> None:
        super().__init__()
        self._store = store
        self._journal = journal
        self._tasks = tasks
        self._configs = configs
        self._outbox = outbox
        self._writes: dict[str, _TaskWrites] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def durable(self) -> bool:
        """True with a task store of the user's: an executor is called when its task has been saved."""
        return self._tasks is not None or self._store.durable

    async def flush(self) -> None:
        """Wait until everything is written, for some seconds; what is left then is not written."""
        workers = [writes.worker for writes in self._writes.values() if writes.worker is not None]
        if workers:
            await wait(self._journal.clock, asyncio.gather(*workers, return_exceptions=True), FLUSH_SECONDS)
        for worker in workers:
            worker.cancel()

    # -- reading ---------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> StoredTask | None:
        """Read a task by its id. Raises ServerError when the user's store fails."""
        stored = await self._store.task(task_id)
        is_foreign = stored is not None and stored.row.scope.agent != self._journal.agent
        if self._tasks is None or is_foreign or task_id in self._writes:
            return stored
        found = await self._tasks.get(task_id)
        if task_id in self._writes:  # somebody has begun to work on it meanwhile
            return await self._store.task(task_id)
        _, current = await self._journal.get(task_id)
        if found is None and stored is not None:
            await self._journal.delete(task_id)
            return None
        if found is not None and found[0] != current:
            task, tenant, owner = found
            # An ended task stays as it ended: saving another is refused.
            await self._journal.save(task, tenant=tenant, owner=owner)
            return await self._store.task(task_id)
        return stored

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        """The id of the task that accepted a message with this dedupe key; None when none did, or the key expired."""
        verdict = self._keys.find(key, now_ms)
        if verdict is not None and verdict.duplicate_of:
            return verdict.duplicate_of
        return await self._store.duplicate_of(key, now_ms)

    async def read_duplicate(self, key: bytes, now_ms: int) -> str | None:
        return await self._store.duplicate_of(key, now_ms)

    async def read_reply(self, key: bytes, now_ms: int) -> bytes | None:
        return await self._store.reply(key, now_ms)

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks that a run of this process has left, without those that were only read from the user's store."""
        stored = await self._store.unfinished(agent)
        # What a run writes has no snapshot before the task settles; what `task` writes is one.
        return [each for each in stored if self._tasks is None or each.snapshot_generation < each.row.generation]

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, write: Write) -> Verdict | None:
        """Queue a change. `write.done` gets a ServerError when one of the user's stores fails.

        Whether an earlier process knew its dedupe key, only the commit can tell.
        """
        verdict = super().write(write)
        return None if write.dedupe_key is not None and verdict is ACCEPTED else verdict

    def queue(self, write: Write) -> None:
        task_id = write.row.id
        writes = self._writes.get(task_id)
        if writes is None:
            if not self._concerns(write):
                self._write_below(write, partial(self.report, write))
                return
            writes = self._writes[task_id] = _TaskWrites()
        writes.queue.append(write)
        if writes.worker is None:
            writes.worker = asyncio.get_running_loop().create_task(self._work(task_id, writes))

    def _concerns(self, write: Write) -> bool:
        if write.draft:
            return False
        has_webhooks = self._configs is not None and bool(write.pushes or write.deleted_pushes)
        changes_task = (
            write.delete or bool(write.records) or any(note.kind in ("message", "answer") for note in write.notes)
        )
        return has_webhooks or (self._tasks is not None and changes_task)

    async def _work(self, task_id: str, writes: _TaskWrites) -> None:
        try:
            while writes.queue:
                write = writes.queue.popleft()
                try:
                    if self._concerns(write):
                        await self._check_new(write)
                        await self._pass_on(write, writes)
                except Exception as error:  # noqa: BLE001 - reported through `write.done`
                    self._refuse(error, write, writes)
                else:
                    self._hand_over(task_id, write, writes)
        finally:
            writes.worker = None
            self._forget_if_idle(task_id, writes)

    def _refuse(self, error: BaseException, write: Write, writes: _TaskWrites) -> None:
        """Refuse a write and those that follow it: their records build on its."""
        refused = [write, *writes.queue]
        writes.queue.clear()
        writes.folding, writes.settled = None, True
        for each in refused:
            self.report(each, error)

    def _hand_over(self, task_id: str, write: Write, writes: _TaskWrites) -> None:
        if write.records or write.delete:
            state = write.row.state
            writes.settled = write.delete or state.final or state.waiting
        elif not writes.folding:  # webhooks alone, of a task that nobody works on
            writes.settled = True
        elif isinstance(write, MailWrite):
            state = writes.folding.task().state
            writes.settled = state.final or state.waiting
        writes.unreported += 1

        def done(error: BaseException | None) -> None:
            writes.unreported -= 1
            self._forget_if_idle(task_id, writes)
            self.report(write, error)

        self._write_below(write, done)

    def _write_below(self, write: Write, done: Callable[[BaseException | None], None]) -> None:
        verdict = self._store.write(structs.replace(write, done=done))
        if verdict is not None and verdict.duplicate_of:
            asyncio.get_running_loop().call_soon(done, MessageRepeated("another task has accepted this message"))

    def _forget_if_idle(self, task_id: str, writes: _TaskWrites) -> None:
        is_busy = bool(writes.queue) or writes.worker is not None or writes.unreported > 0
        if writes.settled and not is_busy and self._writes.get(task_id) is writes:
            del self._writes[task_id]

    async def _check_new(self, write: Write) -> None:
        """Refuse a message that an earlier process has accepted, before it is passed on."""
        key = write.dedupe_key
        if key is not None and write.create:
            task_id = await self._store.duplicate_of(key.digest, key.at_ms)
            if task_id is not None and task_id != write.row.id:
                raise MessageRepeated("another task has accepted this message")

    async def _pass_on(self, write: Write, writes: _TaskWrites) -> None:
        task_id = write.row.id
        if self._configs is not None and self._outbox is not None:
            for push in write.pushes:
                await self._configs.set(task_id, self._outbox.config(push, task_id))
            for push_id in write.deleted_pushes:
                await self._configs.delete(task_id, push_id)
        if self._tasks is None:
            return
        if write.delete:
            await self._tasks.delete(task_id)
            return
        if isinstance(write, MailWrite) and not await self._takes(write, writes):
            return  # the journal refuses it
        try:
            await self._save(self._tasks, write, writes)
        except ServerError:
            if write.create:  # there will be no such task: what was saved of it goes
                with suppress(ServerError):
                    await self._tasks.delete(task_id)
            raise

    async def _takes(self, post: MailWrite, writes: _TaskWrites) -> bool:
        """True when the journal will take a message, after the writes before it."""
        key = post.dedupe_key
        if key is not None and await self._store.duplicate_of(key.digest, key.at_ms or post.row.status_ms) is not None:
            return False
        if writes.folding is None and await self._store.task(post.row.id) is None:
            return False
        folding = await self._load(post, writes)
        return post.fits(folding.task().state, folding.generation)

    async def _save(self, tasks: CustomTasks, write: Write, writes: _TaskWrites) -> None:
        """Save the task once for every record, and once for messages that come without one."""
        messages = messages_by_generation(write.notes)
        for record in write.records:
            event = record.event
            if isinstance(event, ModelTask):
                writes.folding = Folding(event, record.generation)
            elif isinstance(event, (StatusUpdate, ArtifactUpdate)):
                (await self._load(write, writes)).apply(event)
            folding = await self._load(write, writes)
            for message in messages.pop(record.generation, ()):
                folding.add_message(message)
            await tasks.save(folding.task(), write.row.scope)
        for message in (each for batch in messages.values() for each in batch):
            folding = await self._load(write, writes)
            folding.add_message(message)
            await tasks.save(folding.task(), write.row.scope)

    async def _load(self, write: Write, writes: _TaskWrites) -> Folding:
        """Return the task as it is before the write, read from the journal if need be."""
        if writes.folding is None:
            stored = await self._store.task(write.row.id)
            if stored is None:
                raise ServerError("there is no such task")
            task = await Replay(self._store, stored).task()
            writes.folding = Folding(task, stored.row.generation)
        return writes.folding


def write_through(journal: TaskStore, tasks: CustomTasks | None, configs: CustomConfigs | None) -> Any:
    """Return the function that wraps an engine's store; `journal` reads and writes the same store."""

    def wrap(store: Store, outbox: Outbox | None) -> Store:
        return cast("Store", WriteThroughStore(store, journal, tasks, configs, outbox))

    return wrap
