"""A database in memory, with the semantics of the PostgreSQL tables: what several simulated nodes share.

It implements the ports `Database` and `NodeDatabase`. Every method is atomic, because it never awaits anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from cluster.simulated_rows import ContextRow, NodeRow, OwnershipRow
from msgspec import structs

from dragoman.engine.ports.ownership import Claim, ClaimedTask, TaskClaim
from dragoman.engine.ports.store import WOKEN, Note, PushState, StoredTask
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore
from dragoman.stores.postgres.database import ChangeOutcome, InvalidValue, NodeInfo, Peer, Renewal, TaskOwner
from dragoman.stores.postgres.sql.claims import RETURN_SECONDS
from dragoman.stores.state_numbers import NUMBERS

if TYPE_CHECKING:
    from dragoman.engine.ports.store import DedupeKey, Push, Scope, Sweep, TaskPage, TaskQuery, TaskRow, Write

_UNFINISHED = frozenset({State.SUBMITTED, State.WORKING})
_REFUSED = ChangeOutcome("refused")
_COMMITTED = ChangeOutcome("committed")
_BUSY = ChangeOutcome("busy")
_REPEATED = ChangeOutcome("repeated")


class SimulatedDatabase(MemoryStore):
    """The tables of one store. `now` is the time of the database, in seconds."""

    # Every change decides about its key when it is applied: the tables keep no index.
    duplicate_of = MemoryStore.read_duplicate
    reply = MemoryStore.read_reply

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._next_number = 1
        self._arrivals = count(1)
        self._ownership: dict[int, OwnershipRow] = {}
        # Tasks that are submitted or working, and drafts: what `take` looks through.
        self._unfinished: dict[int, OwnershipRow] = {}
        self._held: dict[int, OwnershipRow] = {}  # those that have an owner
        self._contexts: dict[tuple[Scope, str], ContextRow] = {}
        self._context_tasks: dict[tuple[Scope, str], dict[int, OwnershipRow]] = {}
        self._nodes: dict[int, NodeRow] = {}
        self._ids: dict[str, int] = {}  # of tasks and drafts
        self._posted: set[tuple[int, int]] = set()
        self._noted: set[tuple[int, int, int]] = set()
        self._push_owners: dict[tuple[int, str], int | None] = {}

    # -- nodes -------------------------------------------------------------------------------------------------------

    async def join(self, node: NodeInfo) -> None:
        """Register a node; once more is harmless."""
        if node.id not in self._nodes:
            self._nodes[node.id] = NodeRow(node, self._now())

    async def beat(self, node: int, *, runs: bool = True) -> Renewal:
        """Renew the lease of a node, unless it is dead, and read all nodes."""
        row = self._nodes.get(node)
        alive = row is not None and not row.dead
        if row is not None and alive:
            row.beat += 1
            row.seen = self._now()
            row.runs = runs
        peers = [
            Peer(key, other.info.name, other.beat, False, other.info.lease, other.info.keys, other.agents)
            for key, other in self._nodes.items()
            if not other.dead
        ]
        return Renewal(alive, peers)

    async def bury(self, node: int, beat: int) -> bool:
        """Declare a node dead if its beat is still this one."""
        row = self._nodes.get(node)
        if row is None or row.dead or row.beat != beat:
            return False
        row.dead = True
        return True

    async def leave(self, node: int) -> None:
        """Declare a node dead that stops by itself."""
        if node in self._nodes:
            row = self._nodes[node]
            if not row.dead:
                row.dead, row.stopped, row.seen = True, True, self._now()

    def _is_dead(self, node: int) -> bool:
        row = self._nodes.get(node)
        return row is None or row.dead

    # -- writing -----------------------------------------------------------------------------------------------------

    async def numbers(self, count: int) -> int:
        """Reserve `count` task numbers, and return the first."""
        first = self._next_number
        self._next_number += count
        return first

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Apply the changes of many tasks: one sequence of changes per task, each whole or not at all."""
        for sequence in changes:
            for write in sequence:
                if "\0" in write.row.id or "\0" in write.row.context_id:
                    raise InvalidValue("text with a NUL character")
        outcomes: list[ChangeOutcome] = []
        # A statement sees neither its own inserts nor its own updates: what is queued is counted at the end.
        for sequence in changes:
            outcome = self._refusal(node, sequence)
            if outcome is None:
                outcome = _COMMITTED
                for write in sequence:
                    self._apply_claimed(node, write)
            outcomes.append(outcome)
        for index, sequence in enumerate(changes):
            last = sequence[-1]
            settled = last.row.state not in _UNFINISHED or (last.draft and last.delete)
            if outcomes[index] is _COMMITTED and settled and self._has_queued(last.row):
                outcomes[index] = ChangeOutcome("committed", queue=True)
        return outcomes

    def _refusal(self, node: int, sequence: Sequence[Write]) -> ChangeOutcome | None:
        """Why a sequence of changes is refused; None when it is not."""
        keys = [write.dedupe_key for write in sequence if write.dedupe_key is not None]
        first = sequence[0]
        if any(self._key_holder(key) not in (None, first.row.id) for key in keys):
            return _REPEATED
        existing = self._ownership.get(first.row.number)
        if first.delete and existing is None:
            return None
        holder = self._ids.get(first.row.id)
        inserts = (first.draft and not first.delete) or (first.create and not first.opens_draft)
        if inserts and existing is None and holder is None and any(self._key_holder(key) for key in keys):
            return _REPEATED  # it was a draft, and was answered long ago
        if first.draft and not first.delete:
            is_same = existing is not None and existing.draft and existing.owner == node
            fits = is_same or (existing is None and holder is None)
        elif first.create and not first.opens_draft:
            fits = existing is None and holder is None
        else:
            fits = existing is not None and (existing.draft or not (first.draft or first.opens_draft))
        if not fits or (existing is not None and self._is_fenced_off(node, existing, sequence)):
            return _REFUSED
        if not self._follows(existing, sequence):
            return _REFUSED
        for write in sequence:
            takes_turn = write.begins and write.serial and (write.joins_context or not write.create)
            if takes_turn and self._is_busy(write.row):
                return _BUSY
        return None

    def _key_holder(self, key: DedupeKey) -> str | None:
        """The id of the task that has a dedupe key which has not expired."""
        now_ms = int(self._now() * 1000)
        until_ms, task_id, _ = self._repeats.get(key.digest, (now_ms, "", None))
        return task_id if until_ms > now_ms else None

    def _is_fenced_off(self, node: int, existing: OwnershipRow, sequence: Sequence[Write]) -> bool:
        """True when the node does not own the task under the epoch of the first change that needs a claim."""
        for write in sequence:
            if write.records or write.notes or write.begins or (write.draft and write.delete):
                return bool(write.epoch) and (existing.owner != node or existing.epoch != write.epoch)
        return False

    def _follows(self, existing: OwnershipRow | None, sequence: Sequence[Write]) -> bool:
        """True when the records continue the journal. A draft has none."""
        draft = sequence[0].draft or (existing is not None and existing.draft)
        generation = 0 if existing is None or existing.draft else existing.row.generation
        for write in sequence:
            if write.records:
                if write.records[0].generation != generation + 1:
                    return False
                generation = write.records[-1].generation
                draft = False
            if (write.records or (write.notes and not draft)) and write.row.generation != generation:
                return False
        return True

    def _is_busy(self, row: TaskRow) -> bool:
        """True when another task of the context is at work, or an older one has not ended or paused."""
        key = (row.scope, row.context_id)
        context = self._contexts.get(key)
        if context is not None and context.running not in (None, row.number):
            return True
        mine = self._ownership.get(row.number)
        return any(
            other.begun or ((mine is None or other.queued_at < mine.queued_at) and other.row.state in _UNFINISHED)
            for number, other in self._context_tasks.get(key, {}).items()
            if number != row.number and not other.draft
        )

    def _has_queued(self, row: TaskRow) -> bool:
        return any(
            other.owner is None and other.row.state in _UNFINISHED
            for number, other in self._context_tasks.get((row.scope, row.context_id), {}).items()
            if number != row.number and not other.draft
        )

    def _delivers(self, node: int, push: Push) -> bool:
        """True when the node delivers to a webhook under the epoch that it names."""
        task = self._by_number.get(push.task)
        stored = None if task is None else task.pushes.get(push.id)
        return self._push_owners.get((push.task, push.id)) == node and stored is not None and stored.epoch == push.epoch

    def _apply_claimed(self, node: int, write: Write) -> None:
        row = write.row
        if write.push_progress:
            progress = tuple(push for push in write.push_progress if self._delivers(node, push))
            write = structs.replace(write, push_progress=progress)
            if not (progress or write.records or write.notes or write.pushes or write.deleted_pushes):
                return  # there is nothing to change
        if write.records or write.notes or write.begins or write.queued or write.draft or write.create or write.delete:
            ownership = self._ownership.get(row.number)
            if write.delete:
                self._remove(row.number)
            else:
                if ownership is None:
                    ownership = self._insert(OwnershipRow(row, None if write.queued else node, draft=write.draft))
                self._change(node, ownership, write)
        if write.notes and write.key:
            # A note is there once, however often its statement is repeated.
            keys = [(row.number, write.key, place) for place in range(len(write.notes))]
            new = tuple(note for note, key in zip(write.notes, keys, strict=True) if key not in self._noted)
            self._noted.update(keys)
            write = structs.replace(write, notes=new)
        # What only begins or queues a run has no content. It may be an old statement, with an old row.
        if write.create or write.records or not (write.begins or write.queued) or write.notes or write.draft:
            error = self._apply(write)
            if error is not None:
                raise error
        for push in (*write.pushes, *write.push_progress):
            self._push_owners[push.task, push.id] = node if push.state is PushState.OPEN else None
        for push_id in write.deleted_pushes:
            self._push_owners.pop((row.number, push_id), None)

    def _insert(self, ownership: OwnershipRow) -> OwnershipRow:
        number = ownership.row.number
        ownership.claimed_at = self._now()
        ownership.queued_at = next(self._arrivals)
        self._ownership[number] = self._unfinished[number] = ownership
        self._ids[ownership.row.id] = number
        self._set_owner(ownership, ownership.owner)
        self._context_tasks.setdefault(ownership.context, {})[number] = ownership
        return ownership

    def _set_owner(self, ownership: OwnershipRow, owner: int | None) -> None:
        ownership.owner = owner
        if owner is None:
            self._held.pop(ownership.row.number, None)
        else:
            self._held[ownership.row.number] = ownership

    def _change(self, node: int, ownership: OwnershipRow, write: Write) -> None:
        row = write.row
        if write.create:
            ownership.draft = False
        if write.records:
            ownership.row = row
        if write.snapshot is not None:
            ownership.snapshot_mail = write.mail
        key = ownership.context
        if write.pins:
            self._contexts.setdefault(key, ContextRow()).home = self._nodes[node].info.name
        if write.begins:
            ownership.begun = True
            if write.serial and (write.joins_context or not write.create or write.draft):
                self._contexts.setdefault(key, ContextRow()).running = row.number
        if write.records and row.state not in _UNFINISHED:
            ownership.begun = False
            self._set_owner(ownership, None)
            self._unfinished.pop(row.number, None)
            self._free(key, row.number)
        elif write.queued and not write.create:
            self._set_owner(ownership, None)
        if write.records and row.number not in self._unfinished and row.state in _UNFINISHED:
            self._unfinished[row.number] = ownership
            ownership.queued_at = next(self._arrivals)

    def _free(self, key: tuple[Scope, str], number: int) -> None:
        context = self._contexts.get(key)
        if context is not None and context.running == number:
            context.running = None

    def _remove(self, number: int) -> None:
        ownership = self._ownership.pop(number, None)
        if ownership is None:
            return
        del self._ids[ownership.row.id]
        self._unfinished.pop(number, None)
        self._held.pop(number, None)
        tasks = self._context_tasks[ownership.context]
        del tasks[number]
        self._free(ownership.context, number)
        if not tasks:
            del self._context_tasks[ownership.context]
            if not ownership.draft:  # the session of a conversation that began with a bare reply goes on
                self._contexts.pop(ownership.context, None)

    # -- claims ------------------------------------------------------------------------------------------------------

    async def owners(self, node: int, numbers: Sequence[int]) -> dict[int, TaskOwner]:
        """Who owns these tasks and drafts now."""
        found = {number: self._ownership[number] for number in numbers if number in self._ownership}
        return {
            number: TaskOwner(o.owner, o.epoch, 0 if o.draft else o.row.generation, o.row.id)
            for number, o in found.items()
        }

    async def claim(self, node: int, number: int, generation: int, *, revoke: bool) -> ClaimedTask | None:
        """Claim one task."""
        ownership = self._ownership.get(number)
        if ownership is None or ownership.row.state.final:
            return None
        owner = ownership.owner
        if ownership.draft and (revoke or owner != node):
            return None
        if not revoke:
            free = ownership.row.state.waiting if owner is None else owner == node or self._is_dead(owner)
            if not free or ownership.row.generation != generation:
                return None
        return self._claim(node, ownership)

    def _claim(self, node: int, ownership: OwnershipRow) -> ClaimedTask:
        owner = ownership.owner
        before = None if owner is None else self._nodes.get(owner)
        if ownership.begun and owner not in (None, node) and not (before is not None and before.stopped):
            ownership.attempts += 1
        self._set_owner(ownership, node)
        ownership.epoch += 1
        ownership.claimed_at = self._now()
        number = ownership.row.number
        claim = Claim(number, ownership.epoch, ownership.attempts)
        entry = self._drafts[number] if ownership.draft else self._by_number[number]
        home = self._home(ownership)
        home = home if self._is_gone(home) else None
        return ClaimedTask(self._with_mail(entry.stored_task()), claim, ownership.begun, ownership.draft, home)

    async def release(self, node: int, number: int, epoch: int, *, begun: bool = False) -> bool:
        """Give up a claim of this node on a task, unless it has begun, or also then."""
        ownership = self._ownership.get(number)
        if ownership is None or (ownership.owner, ownership.epoch) != (node, epoch) or ownership.draft:
            return False
        if ownership.begun and not begun:
            return False
        self._set_owner(ownership, None)
        return True

    async def take(
        self, node: int, agent: str, *, parallel: bool, limit: int, queued: bool = True
    ) -> list[ClaimedTask]:
        """Claim tasks of an agent that no live node owns."""
        for ownership in list(self._held.values()):
            owner, unbegun = ownership.owner, not (ownership.begun or ownership.draft)
            if unbegun and ownership.row.scope.agent == agent and owner is not None and self._is_dead(owner):
                self._set_owner(ownership, None)
        taken: list[ClaimedTask] = []
        for number, ownership in sorted(self._unfinished.items()):
            if len(taken) == limit:
                break
            if ownership.row.scope.agent != agent:
                continue
            owner, home = ownership.owner, self._home(ownership)
            is_elsewhere = home is not None and home != self._nodes[node].info.name
            may_return = not self._is_gone(home) or self._was_stopped(home)
            if owner is None:
                if not queued:
                    continue
                if not parallel and self._is_behind(number, ownership):
                    continue
                if is_elsewhere and may_return:
                    continue
            elif not self._is_dead(owner) or (is_elsewhere and not self._is_gone(home)):
                continue
            taken.append(self._claim(node, ownership))
        return taken

    def _home(self, ownership: OwnershipRow) -> str | None:
        context = self._contexts.get(ownership.context)
        return None if context is None else context.home

    def _is_gone(self, home: str | None) -> bool:
        return home not in {other.info.name for other in self._nodes.values() if not other.dead}

    def _was_stopped(self, home: str | None) -> bool:
        """True when a node of this name has just left: it may come back."""
        since = self._now() - RETURN_SECONDS
        return any(row.stopped and row.seen > since for row in self._nodes.values() if row.info.name == home)

    def _is_behind(self, number: int, ownership: OwnershipRow) -> bool:
        """True while an older task of the context is unfinished, or another one is at work."""
        context = self._contexts.get(ownership.context)
        if context is not None and context.running not in (None, number):
            return True
        return any(
            (row.queued_at < ownership.queued_at and row.row.state in _UNFINISHED) or (other != number and row.begun)
            for other, row in self._context_tasks[ownership.context].items()
            if not row.draft
        )

    async def owned(self, node: int) -> dict[int, TaskClaim]:
        """The tasks that a node owns."""
        return {
            number: TaskClaim(one.epoch, one.mail, one.row.scope.agent, one.row.id)
            for number, one in self._held.items()
            if one.owner == node
        }

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None, generation: int | None, key: int
    ) -> ChangeOutcome:
        """Add a message to a task that is submitted, working or auth-required."""
        ownership = self._ownership.get(row.number)
        if ownership is None or ownership.draft:
            return _REFUSED
        if (row.number, key) in self._posted:
            return _COMMITTED  # this statement, sent once more
        if dedupe_key is not None and self._key_holder(dedupe_key) is not None:
            return _REPEATED
        if ownership.row.state not in (*_UNFINISHED, State.AUTH_REQUIRED):
            return _REFUSED
        if generation not in (None, ownership.row.generation):
            return _REFUSED
        self._posted.add((row.number, key))
        ownership.mail += 1
        entry = self._by_number[row.number]
        entry.notes.append(Note(ownership.row.generation, "message", body, ownership.mail))
        if dedupe_key is not None:
            self._add_dedupe_key(entry, dedupe_key)
        return _COMMITTED

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added with `post`, with their numbers, after number `after`."""
        return [(note.mail, note.body) for note in await self.notes(number) if note.mail > after]

    # -- reading -----------------------------------------------------------------------------------------------------

    async def run(self, query: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Answer a query with the method of its name."""
        return await getattr(self, query.__name__)(*args, **kwargs)

    def _with_mail(self, stored: StoredTask) -> StoredTask:
        o = self._ownership[stored.row.number]
        return stored._replace(mail=o.mail, snapshot_mail=o.snapshot_mail, epoch=o.epoch)

    async def task(self, task_id: str) -> StoredTask | None:
        """Read a task by its id."""
        stored = await super().task(task_id)
        return None if stored is None else self._with_mail(stored)

    async def generations(self, task_ids: Sequence[str]) -> list[tuple[str, int]]:
        """The generations of many tasks."""
        return [(task_id, self._by_id[task_id].row.generation) for task_id in task_ids if task_id in self._by_id]

    async def page(self, query: TaskQuery) -> TaskPage:
        """Read one page of tasks."""
        page = await super().page(query)
        return page._replace(tasks=[self._with_mail(stored) for stored in page.tasks])

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks of an agent that are submitted or working."""
        return [self._with_mail(stored) for stored in await super().unfinished(agent)]

    async def drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent."""
        return [self._with_mail(stored) for stored in await super().drafts(agent)]

    async def state_of(self, number: int) -> tuple[int, int | None, bool, int, str | None]:
        """State, owner, begun, attempts and home of a task, as the columns of PostgreSQL have them."""
        o = self._ownership[number]
        return -1 if o.draft else NUMBERS[o.row.state], o.owner, o.begun, o.attempts, self._home(o)

    # -- webhooks ----------------------------------------------------------------------------------------------------

    async def wake_pushes(self, task_id: str, push_id: str) -> int:
        """Make a webhook that is dead or fails WOKEN and nobody's."""
        woken = await super().wake_pushes(task_id, push_id)
        if woken:
            entry = self._by_id[task_id]
            push = entry.pushes[push_id]
            entry.pushes[push_id] = structs.replace(push, epoch=push.epoch + 1)
            self._push_owners[push.task, push_id] = None
        return woken

    async def take_pushes(self, node: int, limit: int) -> int:
        """Claim open webhooks that no live node delivers, and mark them WOKEN."""
        taken = 0
        for push, row in await super().undelivered_pushes():
            owner = self._push_owners.get((push.task, push.id))
            if push.state is PushState.OPEN and (owner is None or self._is_dead(owner)) and taken < limit:
                self._push_owners[push.task, push.id] = node
                self._by_number[row.number].pushes[push.id] = structs.replace(push, due_ms=WOKEN, epoch=push.epoch + 1)
                taken += 1
        return taken

    async def undelivered_pushes(self, node: int = 0, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        """The open webhooks that a node delivers and all dead ones; or only those WOKEN of the node."""
        return [
            (push, row)
            for push, row in await super().undelivered_pushes(woken=woken)
            if self._push_owners.get((push.task, push.id)) == node or (push.state is PushState.DEAD and not woken)
        ]

    # -- the rest ----------------------------------------------------------------------------------------------------

    async def sweep(self, rules: Sweep) -> int:
        """One step of retention."""
        touched = await super().sweep(rules)
        for number in self._ownership.keys() - self._by_number.keys() - self._drafts.keys():
            self._remove(number)
        return touched

    async def check(self, node: int = 0) -> None:
        """Do nothing: memory takes writes."""
