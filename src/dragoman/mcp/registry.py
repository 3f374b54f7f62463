"""The registry: agents, tasks and webhooks of this MCP server, in memory, and in a file where that is wanted."""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from dragoman.clock import timestamp
from dragoman.mcp.tools.tool import ToolError
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.model.message import Message


class AgentRecord(Struct, kw_only=True):
    """An agent that was resolved, or is configured."""

    agent_id: str
    name: str
    base_url: str
    status: str
    card: dict[str, Any]
    auth_mode: str | None = None
    last_seen_at: str
    created_at: str

    def shape(self) -> dict[str, Any]:
        """The whole record."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def summary(self) -> dict[str, Any]:
        """What a list shows."""
        return {name: getattr(self, name) for name in ("agent_id", "name", "base_url", "status")}


class TaskRecord(Struct, kw_only=True):
    """A task that was begun here. `id` is how it is kept here; `remote_id` is how its agent calls it, once known."""

    id: str
    agent_id: str
    task: Task | None = None
    remote_id: str | None = None
    changed_ms: int = 0
    # Why it cannot be followed any more, if so.
    problem: str = ""

    @property
    def has_ended(self) -> bool:
        """True when nothing more can come of it: it is over, or was lost before its agent said what it is."""
        return bool(self.problem) if self.task is None else self.task.state.final


class Webhook(Struct, kw_only=True):
    """Where events of an agent's tasks are to be posted."""

    config_id: str
    agent_id: str
    webhook_url: str
    events: list[str]
    active: bool = True
    created_at: str = ""

    def shape(self) -> dict[str, Any]:
        """What the tool gives."""
        members = ("config_id", "agent_id", "webhook_url", "events", "active")
        return {name: getattr(self, name) for name in members}


# Tasks beyond these are forgotten: those that have ended first, the oldest of them first.
MAX_TASKS = 10_000
MAX_AGENTS = 1_000
# An agent that begins many tasks pushes out its own, and not those of others.
MAX_TASKS_PER_AGENT = 2_000
# A file of days with other limits is thinned out step by step.
_EVICTIONS_PER_CHANGE = 2


class RegistryStore(Protocol):
    """Keeps records beyond the life of the process."""

    def load(self) -> tuple[list[AgentRecord], list[TaskRecord], list[Webhook]]:
        """All that was kept, tasks in the order in which they changed."""
        ...

    def save(self, record: AgentRecord | TaskRecord | Webhook) -> None:
        """Keep a record, in place of an older one."""
        ...

    def delete(self, record: TaskRecord) -> None:
        """Forget a task."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Registry:
    """What is known. Task ids are those of the remotes; a local id stays a name of its task when that becomes known.

    `followed` says whether somebody follows a task: such a one is never forgotten.
    """

    def __init__(
        self,
        clock: Clock,
        store: RegistryStore | None = None,
        is_followed: Callable[[TaskRecord], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._store = store
        self._is_followed = is_followed
        self.agents: dict[str, AgentRecord] = {}
        self.webhooks: dict[str, Webhook] = {}
        # In the order in which they changed, newest last.
        self._tasks: OrderedDict[str, TaskRecord] = OrderedDict()
        self._aliases: dict[str, str] = {}
        # By agent and its own id: two agents may give the same.
        self._by_remote_id: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        if store is not None:
            agents, tasks, webhooks = store.load()
            self.agents = {each.agent_id: each for each in agents}
            self.webhooks = {each.config_id: each for each in webhooks}
            for each in tasks:
                self._tasks[each.id] = each
                self._counts[each.agent_id] += 1
                if each.remote_id is not None:
                    self._aliases.setdefault(each.remote_id, each.id)
                    self._by_remote_id[each.agent_id, each.remote_id] = each.id

    def now(self) -> str:
        """The time, as records have it."""
        return timestamp(self._clock.now())

    def close(self) -> None:
        """Let go of the file, if there is one."""
        if self._store is not None:
            self._store.close()

    # -- agents --------------------------------------------------------------------------------------------------------

    def agent_by_name(self, agent_id: str) -> AgentRecord | None:
        """An agent by its id, its address or its name: whatever a card says, an address is nobody's name."""
        record = self.agents.get(agent_id) or self.agent_at(agent_id)
        if record is not None:
            return record
        named = [each for each in self.agents.values() if each.name == agent_id]
        return named[0] if len(named) == 1 else None

    def agent_at(self, base_url: str) -> AgentRecord | None:
        """The agent at an address."""
        return next((each for each in self.agents.values() if each.base_url == base_url), None)

    def register_agent(
        self, base_url: str, name: str, card: dict[str, Any], auth_mode: str | None = None
    ) -> AgentRecord:
        """Note an agent; one that is known keeps its id. Raises ToolError when there are too many."""
        now = self.now()
        existing = self.agent_at(base_url)
        if existing is None and len(self.agents) >= MAX_AGENTS:
            raise ToolError(f"{MAX_AGENTS} agents are registered: use one of them, see list_remote_agents")
        record = AgentRecord(
            agent_id=f"agent_{uuid.uuid4().hex}" if existing is None else existing.agent_id,
            name=name,
            base_url=base_url,
            status="connected",
            card=card,
            auth_mode=auth_mode,
            last_seen_at=now,
            created_at=now if existing is None else existing.created_at,
        )
        self.agents[record.agent_id] = record
        self._save(record)
        return record

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def start_task(self, agent_id: str) -> TaskRecord:
        """A task whose own id is not known yet."""
        record = TaskRecord(id=f"local-{uuid.uuid4().hex}", agent_id=agent_id)
        self._put_task(record)
        return record

    def update_task(self, record: TaskRecord, task: Task, *, may_be_stale: bool = False) -> TaskRecord:
        """Take in how a task is now. The remote's id becomes a name of it.

        Who has only `looked` may have seen it as it was before what is known by now.
        """
        if record.remote_id is not None and task.id != record.remote_id:
            return record  # it is about nothing, or about another
        if may_be_stale and record.task is not None and record.task.state.final and not task.state.final:
            return record
        if record.remote_id is None and task.id:
            record = self._set_remote_id(record, task.id)
        moved = record.task is None or record.task.state is not task.state
        record.task, record.problem = task, ""
        self._put_task(record, moved=moved)
        return record

    def _set_remote_id(self, record: TaskRecord, remote_id: str) -> TaskRecord:
        record.remote_id = remote_id
        earlier = self._tasks.get(self._by_remote_id.get((record.agent_id, remote_id), ""))
        if earlier is not None:
            # It was known already: this is another message to it.
            if record.id in self._tasks:
                self._remove(record)
            self._aliases[record.id] = earlier.id
            return earlier
        self._by_remote_id[record.agent_id, remote_id] = record.id
        if self.task(remote_id) is None:
            # Else it is the name of another agent's task, which nobody may take away.
            self._aliases[remote_id] = record.id
        return record

    def complete_with_message(self, record: TaskRecord, message: Message) -> None:
        """Take in an answer that is a mere message: without a task of the agent's, it completes one of our own."""
        if record.remote_id is None:
            status = TaskStatus(State.COMPLETED, timestamp=self.now())
            artifact = Artifact(message.message_id, message.parts)
            record.task = Task(record.id, message.context_id or "", status, (artifact,))
        record.problem = ""
        self._put_task(record)

    def set_problem(self, record: TaskRecord, problem: str) -> None:
        """Note that a task cannot be followed any more."""
        record.problem = problem
        self._put_task(record, moved=False)

    def task(self, task_id: str) -> TaskRecord | None:
        """A task by the remote's id or by ours."""
        return self._tasks.get(self._aliases.get(task_id, task_id))

    def require_task(self, task_id: str) -> TaskRecord:
        """A task by the remote's id or by ours. Raises ToolError when there is none."""
        record = self.task(task_id)
        if record is None:
            raise ToolError(f"Task not found: {task_id}")
        return record

    def tasks(self) -> list[TaskRecord]:
        """All tasks, the one that changed last first."""
        return list(reversed(self._tasks.values()))

    def public_id(self, record: TaskRecord) -> str:
        """The id to tell: the remote's as soon as it is known, unless another agent's task has the same."""
        remote_id = record.remote_id
        return remote_id if remote_id and self._aliases.get(remote_id) == record.id else record.id

    def _put_task(self, record: TaskRecord, *, moved: bool = True) -> None:
        if record.id not in self._tasks:
            self._counts[record.agent_id] += 1
        self._tasks[record.id] = record
        if moved:
            record.changed_ms = max(record.changed_ms, self._clock.now())  # the clock may be set back
            self._tasks.move_to_end(record.id)
        self._save(record)
        for _ in range(_EVICTIONS_PER_CHANGE):
            oldest = self._find_evictable(record)
            if oldest is None:
                return
            self._evict(oldest)

    def _find_evictable(self, newest: TaskRecord) -> TaskRecord | None:
        """The task that there is no room for, if so: never one that is new or followed."""
        agent_id = newest.agent_id
        if self._counts[agent_id] > MAX_TASKS_PER_AGENT:
            candidates = [each for each in self._tasks.values() if each.agent_id == agent_id]
        elif len(self._tasks) > MAX_TASKS:
            candidates = self._tasks.values()
        else:
            return None
        first: TaskRecord | None = None
        for each in candidates:
            # Who follows it is asked last: that takes a while.
            if each is newest or (first is not None and not each.has_ended) or self._is_followed(each):
                continue
            if each.has_ended:
                return each
            first = each
        return first

    def _evict(self, record: TaskRecord) -> None:
        self._remove(record)
        self._aliases = {name: place for name, place in self._aliases.items() if place != record.id}
        if record.remote_id is not None:
            self._by_remote_id.pop((record.agent_id, record.remote_id), None)

    def _remove(self, record: TaskRecord) -> None:
        del self._tasks[record.id]
        self._counts[record.agent_id] -= 1
        if self._store is not None:
            self._store.delete(record)

    # -- webhooks ------------------------------------------------------------------------------------------------------

    def put_webhook(self, agent_id: str, webhook_url: str, events: list[str]) -> Webhook:
        """Note a webhook; the same address for the same agent is the same webhook."""
        existing = next(
            (h for h in self.webhooks.values() if (h.agent_id, h.webhook_url) == (agent_id, webhook_url)), None
        )
        record = Webhook(
            config_id=f"push_{uuid.uuid4().hex}" if existing is None else existing.config_id,
            agent_id=agent_id,
            webhook_url=webhook_url,
            events=events,
            created_at=self.now() if existing is None else existing.created_at,
        )
        self.webhooks[record.config_id] = record
        self._save(record)
        return record

    def webhooks_of(self, agent_id: str) -> list[Webhook]:
        """The webhooks for an agent's tasks."""
        return [each for each in self.webhooks.values() if each.agent_id == agent_id and each.active]

    def _save(self, record: AgentRecord | TaskRecord | Webhook) -> None:
        if self._store is not None:
            self._store.save(record)
