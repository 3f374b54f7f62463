"""What the MCP server remembers: agents, tasks, webhooks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.task import Task


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
    def ended(self) -> bool:
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
        shown = ("config_id", "agent_id", "webhook_url", "events", "active")
        return {name: getattr(self, name) for name in shown}
