"""What administrators need of a store beside its server: users, webhooks, backups, nodes and health checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.stores.users import Users

Level = Literal["ok", "warn", "FAIL"]


class HealthFinding(NamedTuple):
    """The result of one check. `do` says what to do about it; "" when there is nothing to do."""

    level: Level
    check: str
    says: str
    do: str = ""


def check_schema(version: int, newest: int, empty: str) -> HealthFinding:
    """Say which version the tables of a usable store have. `newest` is this program's; `empty` is said when it is 0."""
    if version == 0:
        return HealthFinding("ok", "schema", empty)
    if version < newest:
        return HealthFinding("ok", "schema", f"version {version}, the next start makes it version {newest}")
    if version > newest:
        return HealthFinding("ok", "schema", f"version {version}, with which version {newest} still works")
    return HealthFinding("ok", "schema", f"version {version}")


NodeState = Literal["alive", "front", "late", "dead", "stopped"]


class NodeStatus(NamedTuple):
    """A server of a store, and what it has to do.

    `state` is "front" when it accepts messages and runs none: by its settings, or because it stops. It is "late"
    when it has not renewed its lease in time, "dead" when others have declared it so, and "stopped" when it has
    left by itself. `keys` are fingerprints of its secrets, `age` is how many seconds ago it was seen. `running`
    counts the tasks that its agents work on, `claimed` those that it is about to begin, and `webhooks` those that
    it delivers. `tables` is the version of the tables that it was made for. The server of a file has a process id
    instead of all that.
    """

    name: str
    state: NodeState
    version: str = ""
    agents: tuple[str, ...] = ()
    lease: float = 0.0
    keys: tuple[str, ...] = ()
    age: float = 0.0
    since_ms: int = 0
    running: int = 0
    claimed: int = 0
    webhooks: int = 0
    tables: int = 0
    pid: int | None = None


class NodeReport(NamedTuple):
    """The servers of a store, how many tasks wait until one takes them, and what is worth a note.

    `waiting` is None where tasks do not wait for a server.
    """

    nodes: tuple[NodeStatus, ...]
    waiting: int | None
    findings: tuple[HealthFinding, ...]


class BackupResult(NamedTuple):
    """What a backup contains: how many tasks, and its size in bytes. `restore` is how to continue from it, in lines."""

    tasks: int
    size: int
    restore: tuple[str, ...] = ()


class Administration(Protocol):
    """Administers one store, also while servers use it. Every method opens and closes what it needs.

    They raise ConfigError when there is no such store or it cannot be used, and ServerError when it is busy.
    """

    @property
    def location(self) -> str:
        """Where the store is, in words and without a password."""
        ...

    @property
    def key_file(self) -> Path | None:
        """The file of the server's keys when no `secret` is set; None when this kind of store has none."""
        ...

    def users(self, *, create: bool = True) -> AbstractContextManager[Users]:
        """The users of the store, for administration. With `create`, missing tables are created first."""
        ...

    def webhooks(self) -> list[tuple[Push, TaskRow]]:
        """The webhooks with pending, failed or refused deliveries, oldest first, with their tasks."""
        ...

    def retry_webhooks(self, task_id: str | None, push_id: str | None) -> int:
        """Schedule failing and dead webhooks for a retry: all, those of a task, or one. Returns how many."""
        ...

    def back_up(
        self, target: Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> BackupResult:
        """Write a consistent copy of the store to the file `target`. `force` replaces an existing one.

        `progress` is called with what remains and with the whole, where that is possible.

        Raises:
            DragomanError: the copy failed; nothing is left of it then.
        """
        ...

    def size(self) -> int:
        """How many bytes the store takes on its disk."""
        ...

    def nodes(self, *, dead: bool = False) -> NodeReport:
        """The servers that use the store; with `dead` also those that did, and are not forgotten yet."""
        ...

    def examine(self, *, full: bool = False) -> list[HealthFinding]:
        """Check the store. Problems are findings; nothing is raised, and nothing is written. `full` may take long."""
        ...
