"""What must never happen, watched from outside: at the database, and where agents have effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cluster.world import START

from dragoman.engine.ports.ownership import ClaimedTask
from dragoman.engine.ports.store import TaskRow, Write
from dragoman.stores.postgres.database import ChangeOutcome, ConnectionLost, NodeInfo

ATTEMPTS = 3


class _Claimed(NamedTuple):
    """Who has claimed a task and how; and whether that counts as an attempt, because the owner before had died."""

    node: int
    how: str
    counts: bool = False


class AuditedDatabase:
    """A database that remembers what was committed, and by whom.

    With `ordered`, statements are executed one after the other, so that what is reported later happened later.
    """

    def __init__(self, database: Any, now: Callable[[], float], *, ordered: bool = True) -> None:
        self._database = database
        self._ordered = ordered
        # By task number and epoch, the node that wrote or claimed.
        self.writers: dict[tuple[int, int], int] = {}
        self.claims: dict[tuple[int, int], _Claimed] = {}
        self.epochs: dict[int, int] = {}
        self.journals: dict[int, dict[int, bytes]] = {}
        self.rows: dict[int, TaskRow] = {}
        self.numbers_by_id: dict[str, int] = {}
        self.nodes: dict[int, str] = {}
        self._left: set[int] = set()
        self.releases: set[tuple[int, int]] = set()
        # Tasks, by number, of which a commit may have been applied without a reply; with their ids.
        self.uncertain: dict[int, str] = {}
        self.commits = 0
        # Collected, because whoever would get an exception here handles it.
        self.violations: list[str] = []
        self._now = now
        self._stories: dict[int, list[tuple[Any, ...]]] = {}

    def report(self, text: str, number: int | None = None) -> None:
        """Note that an invariant does not hold, for a task perhaps."""
        self.violations.append(text)
        if number is not None and len(self.violations) < 4:
            self.violations.append(self.story(number))

    def _note(self, number: int, node: int, *what: Any) -> None:
        self._stories.setdefault(number, []).append((self._now(), node, *what))

    def story(self, number: int) -> str:
        """What has happened to a task in the database."""
        lines = [
            f"  {time - START:.3f} {self.nodes.get(node, node)} ({node % 1000}) {' '.join(map(str, what))}"
            for time, node, *what in self._stories.get(number, ())
        ]
        return "\n".join([f"the story of task {number}:", *lines])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def join(self, node: NodeInfo) -> None:
        """Register a node."""
        await self._database.join(node)
        self.nodes[node.id] = node.name

    async def leave(self, node: int) -> None:
        """Stop a node."""
        await self._database.leave(node)
        self._left.add(node)

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Commit, and look at what was committed."""
        try:
            outcomes = await self._database.commit(node, changes)
        except ConnectionLost:  # a real connection was cut, and nobody knows what it has done
            self.uncertain.update((sequence[0].row.number, sequence[0].row.id) for sequence in changes)
            raise
        self.commits += 1
        for sequence, outcome in zip(changes, outcomes, strict=True):
            number = sequence[0].row.number
            self._note(number, node, *outcome, *map(_describe, sequence))
            if outcome.kind == "refused" and number in (owners := await self._database.owners(node, [number])):
                owner, epoch, generation, _ = owners[number]
                self._note(number, owner or 0, f"has it under epoch {epoch} at {generation}")
            if outcome.kind == "committed":
                for write in sequence:
                    self._look_at(node, write)
        return outcomes

    def _look_at(self, node: int, write: Write) -> None:
        row = write.row
        if (write.records or write.notes or write.draft) and not write.queued:
            epoch = write.epoch or 1
            latest = self.epochs.get(row.number, 1)
            if epoch != latest and self._ordered:
                self.report(
                    f"task {row.number} was written under epoch {epoch}, after {latest} was claimed", row.number
                )
            if self.writers.setdefault((row.number, epoch), node) != node:
                self.report(f"two nodes have written task {row.number} under epoch {epoch}", row.number)
        journal = self.journals.setdefault(row.number, {})
        if write.records:
            before = self.rows.get(row.number)
            if before is not None and before.state.final and self._ordered:
                self.report(f"task {row.id} had ended as {before.state} and was changed to {row.state}", row.number)
            if before is None or before.generation < row.generation:
                self.rows[row.number] = row
                self.numbers_by_id[row.id] = row.number
        for record in write.records:
            if record.generation in journal:
                self.report(f"generation {record.generation} of task {row.id} was written twice", row.number)
            if self._ordered and record.generation != len(journal) + 1:
                self.report(f"generation {record.generation} of task {row.id} follows {len(journal)}", row.number)
            journal[record.generation] = record.body

    async def claim(self, node: int, number: int, generation: int, *, revoke: bool) -> ClaimedTask | None:
        """Claim a task."""
        claimed = await self._database.claim(node, number, generation, revoke=revoke)
        if claimed is None and revoke:
            self._note(number, node, "does not get it")
        elif claimed is None:
            pass  # of many nodes that try, most get nothing
        else:
            self._claimed(node, claimed, "revoke" if revoke else "claim")
        return claimed

    async def take(self, node: int, agent: str, **options: Any) -> list[ClaimedTask]:
        """Take tasks."""
        taken = await self._database.take(node, agent, **options)
        for claimed in taken:
            self._claimed(node, claimed, "take")
        return taken

    async def release(self, node: int, number: int, epoch: int, *, begun: bool = False) -> bool:
        """Give up a claim."""
        released = await self._database.release(node, number, epoch, begun=begun)
        self._note(number, node, "releases epoch", epoch, released)
        if released:
            self.releases.add((number, epoch))
        return released

    async def post(self, row: TaskRow, *args: Any) -> ChangeOutcome:
        """Add a message."""
        outcome = await self._database.post(row, *args)
        self._note(row.number, 0, "posted", *outcome)
        return outcome

    def _claimed(self, node: int, claimed: ClaimedTask, how: str) -> None:
        key = (claimed.claim.task, claimed.claim.epoch)
        self._note(key[0], node, how, key[1], "begun" if claimed.begun else "", "draft" if claimed.draft else "")
        if key in self.claims or key in self.writers:
            self.report(f"epoch {key[1]} of task {key[0]} was claimed twice", key[0])
        before = self.claims.get((key[0], key[1] - 1))
        owner = self.writers.get((key[0], key[1] - 1)) if before is None else before.node
        is_released = (key[0], key[1] - 1) in self.releases
        self.claims[key] = _Claimed(node, how, counts=how == "take" and owner not in self._left and not is_released)
        self.epochs[key[0]] = max(key[1], self.epochs.get(key[0], 1))


def _describe(write: Write) -> str:
    """A change, in short."""
    flags = [name for name in ("create", "queued", "begins", "draft", "opens_draft", "delete") if getattr(write, name)]
    notes = [note.kind for note in write.notes]
    numbers = f"{write.records[0].generation}-{write.records[-1].generation}" if write.records else ""
    return f"[{' '.join([*flags, *notes, numbers, write.row.state.name, f'epoch {write.epoch}'])}]"


class _Run:
    """The agent's code at work for one message of a task."""

    __slots__ = ("context", "epoch", "node", "number", "task_id")

    def __init__(self, node: object, task_id: str, number: int, epoch: int, context: tuple[str, str]) -> None:
        self.node = node
        self.task_id = task_id
        self.number = number
        self.epoch = epoch
        self.context = context


class Effects:
    """What agents have done, noted outside of the system."""

    def __init__(self, audit: AuditedDatabase) -> None:
        self._audit = audit
        # By task and the number of its answers so far: each accepted message starts the agent's code. Restartable runs
        # that continue on their node are counted by epoch.
        self.starts: Counter[tuple[str, int, int]] = Counter()
        self.once: Counter[tuple[str, str]] = Counter()
        # The handles of logins by task, the last one last. That of a pause that was refused continues nothing.
        self.handles: dict[str, list[str]] = {}
        self._pardoned = 0
        self._active: dict[_Run, None] = {}
        self._homes: dict[tuple[str, str], str] = {}

    def begin(self, node: Any, ctx: Any, agent: Any, *, restartable: bool) -> _Run:
        """The agent's code begins."""
        live = ctx._live
        run = _Run(node, live.row.id, live.row.number, live.claim.epoch, (live.row.scope.agent, live.row.context_id))
        # Only a takeover counts as an attempt, and no claim starts two runs.
        claim = self._audit.claims.get((run.number, run.epoch))
        key = (live.row.id, len(ctx.answers), 0 if not restartable or (claim and claim.counts) else run.epoch)
        self.starts[key] += 1
        starts = self.starts[key]
        if starts > (ATTEMPTS + self._pardoned if restartable else 1):
            self._audit.report(f"the run of task {live.row.id} has begun {starts} times", run.number)
        self.check_claim(run)
        home = self._homes.setdefault(run.context, node.name) if agent.pinned else node.name
        if home != node.name:
            self._audit.report(f"task {live.row.id} runs on another node than its context", run.number)
        # A run whose task was canceled elsewhere may not have learned of that yet, whether it ends or begins.
        if not agent.parallel and self._is_valid(run):
            for other in self._active:
                if other.context == run.context and other.number != run.number and self._is_valid(other):
                    self._audit.report(
                        f"tasks {other.task_id} and {run.task_id} of one context run at once", run.number
                    )
        self._active[run] = None
        return run

    def check_claim(self, run: _Run) -> None:
        """Nothing may begin when another node has taken the task over."""
        later = self._audit.claims.get((run.number, run.epoch + 1))
        if later is not None and later.how == "take":
            self._audit.report(f"task {run.task_id} has effects after node {later.node} had taken it", run.number)

    def _is_valid(self, run: _Run) -> bool:
        """True when no later claim has revoked that of the run, and the task has not settled."""
        row = self._audit.rows.get(run.number)
        settled = row is not None and (row.state.final or row.state.waiting)
        return (
            not settled
            and run.number not in self._audit.uncertain
            and (run.number, run.epoch + 1) not in self._audit.claims
        )

    def pardon(self) -> None:
        """Runs may begin once more, and that is no attempt: a server stops properly, or has refused the message."""
        self._pardoned += 1

    def end(self, run: _Run) -> None:
        """The agent's code has ended."""
        self._active.pop(run, None)

    def forget(self, node: object) -> None:
        """A node was killed, and all its runs with it."""
        for run in [run for run in self._active if run.node is node]:
            del self._active[run]

    def effect(self, run: _Run, key: str) -> None:
        """An effect under `ctx.once`."""
        self.check_claim(run)
        self.once[run.task_id, key] += 1
        if self.once[run.task_id, key] > 1:
            self._audit.report(f"effect {key} of task {run.task_id} has happened twice", run.number)
