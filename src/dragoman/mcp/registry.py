"""The registry of agents, tasks and webhooks of this MCP server, in memory and optionally in a store."""

from __future__ import annotations

import re
import secrets
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

# Tasks beyond this number are evicted: ended ones first, oldest first.
MAX_TASKS = 10_000
MAX_AGENTS = 1_000
_WORD = re.compile(r"[a-z0-9]+")
_MAX_STEM = 40
# An agent with many tasks evicts its own, not those of other agents.
MAX_TASKS_PER_AGENT = 2_000
# A file that was written with higher limits shrinks step by step.
_EVICTIONS_PER_CHANGE = 2


class AgentRecord(Struct, kw_only=True):
    """A registered agent."""

    agent_id: str
    name: str
    base_url: str
    status: str
    card: dict[str, Any]
    auth_mode: str | None = None
    last_seen_at: str
    created_at: str

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def summary(self) -> dict[str, Any]:
        """Return the members that a list of agents shows."""
        return {name: getattr(self, name) for name in ("agent_id", "name", "base_url", "status")}


class TaskRecord(Struct, kw_only=True):
    """A task that was started here. `id` is local; `remote_id` is the agent's id, None until the agent has sent it."""

    id: str
    agent_id: str
    task: Task | None = None
    remote_id: str | None = None
    changed_ms: int = 0
    # Why it is no longer followed; empty when it is, or has ended.
    problem: str = ""
    # True when the local id was returned as that of a message's task: it stays the one that hosts see.
    keeps_local_id: bool = False

    @property
    def has_ended(self) -> bool:
        """True when the task is in a final state, or was lost before the agent sent it."""
        return bool(self.problem) if self.task is None else self.task.state.final


class Webhook(Struct, kw_only=True):
    """A webhook for the events of an agent's tasks."""

    config_id: str
    agent_id: str
    webhook_url: str
    events: list[str]
    active: bool = True
    created_at: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the webhook as the tool's result has it."""
        members = ("config_id", "agent_id", "webhook_url", "events", "active")
        return {name: getattr(self, name) for name in members}


class RegistryStore(Protocol):
    """Persistent storage for the registry's records."""

    def load(self) -> tuple[list[AgentRecord], list[TaskRecord], list[Webhook]]:
        """Return all records; tasks are ordered by their last change."""
        ...

    def save(self, record: AgentRecord | TaskRecord | Webhook) -> None:
        """Store a record, replacing an older version of it."""
        ...

    def delete(self, record: TaskRecord) -> None:
        """Delete a task."""
        ...

    def close(self) -> None:
        """Write what is pending, and close the store."""
        ...


class Registry:
    """The agents, tasks and webhooks of this server.

    A task is found by its local id and, once its agent has sent it, by the agent's id. `is_followed` says whether a
    task is being followed: such a task is never evicted.
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
        # Ordered by last change, newest last.
        self._tasks: OrderedDict[str, TaskRecord] = OrderedDict()
        self._aliases: dict[str, str] = {}
        # Keyed by agent and remote id: two agents may use the same id.
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
        """Return the current time as a timestamp for records."""
        return timestamp(self._clock.now())

    def close(self) -> None:
        """Close the store, if there is one."""
        if self._store is not None:
            self._store.close()

    # -- agents --------------------------------------------------------------------------------------------------------

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        """Return an agent by its id, else by its address, else by its name if that is unique; else None."""
        record = self.agents.get(agent_id) or self.agent_at(agent_id)
        if record is not None:
            return record
        named = [each for each in self.agents.values() if each.name == agent_id]
        return named[0] if len(named) == 1 else None

    def agent_at(self, base_url: str) -> AgentRecord | None:
        """Return the agent at an address, or None."""
        return next((each for each in self.agents.values() if each.base_url == base_url), None)

    def register_agent(
        self, base_url: str, name: str, card: dict[str, Any], auth_mode: str | None = None
    ) -> AgentRecord:
        """Register or update an agent; an existing one keeps its id. Raises ToolError when there are too many."""
        now = self.now()
        existing = self.agent_at(base_url)
        if existing is None and len(self.agents) >= MAX_AGENTS:
            raise ToolError(f"{MAX_AGENTS} agents are registered: use one of them, see list_remote_agents")
        record = AgentRecord(
            agent_id=self._new_agent_id(name) if existing is None else existing.agent_id,
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

    def _new_agent_id(self, name: str) -> str:
        """Return a readable id that is not in use: the words of the agent's name, and a random suffix."""
        # Only plain words, and few of them: the name is the agent's own, and a model reads the id.
        words = _WORD.findall(name.lower())
        stem = "_".join(["agent", *(words[:-1] if words[-1:] == ["agent"] else words)])[:_MAX_STEM].rstrip("_")
        while True:
            agent_id = f"{stem}_{secrets.token_hex(3)}"
            if agent_id not in self.agents:
                return agent_id

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def start_task(self, agent_id: str) -> TaskRecord:
        """Create a task that has no remote id yet."""
        record = TaskRecord(id=f"local-{uuid.uuid4().hex}", agent_id=agent_id)
        self._put_task(record)
        return record

    def update_task(self, record: TaskRecord, task: Task, *, may_be_stale: bool = False) -> TaskRecord:
        """Store the current state of a task and its remote id. Returns the record that now holds the task.

        A task with another id than the record's is ignored. With `may_be_stale`, the task was read rather than streamed
        and may be older than the stored one: a stored final state is kept.
        """
        if record.remote_id is not None and task.id != record.remote_id:
            return record  # the agent sent another task, or one without an id
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
            # The task is registered already: this was another message to it.
            if record.id in self._tasks:
                self._remove(record)
            self._aliases[record.id] = earlier.id
            return earlier
        self._by_remote_id[record.agent_id, remote_id] = record.id
        if self.task(remote_id) is None:
            # Otherwise another agent's task has the same id, and keeps it.
            self._aliases[remote_id] = record.id
        return record

    def complete_with_message(self, record: TaskRecord, message: Message) -> None:
        """Store a response that is a bare message. Without a task of the agent, it completes the local one."""
        if record.remote_id is None:
            status = TaskStatus(State.COMPLETED, timestamp=self.now())
            artifact = Artifact(message.message_id, message.parts)
            record.task = Task(record.id, message.context_id or "", status, (artifact,))
        record.problem = ""
        self._put_task(record)

    def set_problem(self, record: TaskRecord, problem: str) -> None:
        """Store why a task is no longer followed."""
        record.problem = problem
        self._put_task(record, moved=False)

    def task(self, task_id: str) -> TaskRecord | None:
        """Return a task by its remote or local id, or None."""
        return self._tasks.get(self._aliases.get(task_id, task_id))

    def task_of(self, agent_id: str, task_id: str) -> TaskRecord | None:
        """Return a task of an agent by its remote or local id, or None. Raises ToolError when it is another agent's."""
        record = self._tasks.get(self._by_remote_id.get((agent_id, task_id), "")) or self.task(task_id)
        if record is not None and record.agent_id != agent_id:
            raise ToolError(f"Task {task_id} is not one of this agent's: its agent_id is {record.agent_id}")
        return record

    def require_task(self, task_id: str) -> TaskRecord:
        """Return a task by its remote or local id. Raises ToolError when there is none."""
        record = self.task(task_id)
        if record is None:
            raise ToolError(f"Task not found: {task_id}")
        return record

    def tasks(self) -> list[TaskRecord]:
        """Return all tasks, most recently changed first."""
        return list(reversed(self._tasks.values()))

    def public_id(self, record: TaskRecord) -> str:
        """Return the id to show to hosts: the remote id once it is known, unless another agent's task has the same."""
        remote_id = None if record.keeps_local_id else record.remote_id
        return remote_id if remote_id and self._aliases.get(remote_id) == record.id else record.id

    def assign_id(self, record: TaskRecord) -> str:
        """Return the id for the result of a message; whatever the agent calls the task later, hosts see this one."""
        task_id = self.public_id(record)
        record.keeps_local_id = task_id == record.id
        return task_id

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

    def _find_evictable(self, changed: TaskRecord) -> TaskRecord | None:
        """Return the task to evict when a limit is exceeded: never the one just changed or one that is followed."""
        agent_id = changed.agent_id
        if self._counts[agent_id] > MAX_TASKS_PER_AGENT:
            candidates = [each for each in self._tasks.values() if each.agent_id == agent_id]
        elif len(self._tasks) > MAX_TASKS:
            candidates = self._tasks.values()
        else:
            return None
        oldest: TaskRecord | None = None
        for each in candidates:
            # is_followed comes last: it is the slowest check.
            if each is changed or (oldest is not None and not each.has_ended) or self._is_followed(each):
                continue
            if each.has_ended:
                return each
            oldest = each
        return oldest

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
        """Create or update a webhook; it is identified by agent and URL."""
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
        """Return the active webhooks of an agent."""
        return [each for each in self.webhooks.values() if each.agent_id == agent_id and each.active]

    def _save(self, record: AgentRecord | TaskRecord | Webhook) -> None:
        if self._store is not None:
            self._store.save(record)
