"""What administrators need of a store beside its server: users, webhooks, backups, nodes and health checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.model.user import Account, UserSummary

Level = Literal["ok", "warn", "FAIL"]


class HealthFinding(NamedTuple):
    """The result of one check. `do` says what to do about it; "" when there is nothing to do."""

    level: Level
    check: str
    says: str
    do: str = ""


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


class Users(Protocol):
    """The users of a store, with their permissions and API keys.

    The administration methods block, work in any thread and process, need no `open`, and may be used while servers use
    the store; they raise ServerError or ConfigError when it cannot be used. The `async` ones are for a server, which
    caches accounts until a change is noticed.
    """

    # -- for a server ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Prepare for lookups. The store must be open, so that its tables exist."""
        ...

    async def close(self) -> None:
        """Release what `open` acquired."""
        ...

    async def by_name(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now, or None. Raises ServerError when it cannot be read."""
        ...

    async def by_key(self, digest: bytes) -> Account | None:
        """Return the user of a valid API key by its digest, or None. Raises ServerError when it cannot be read."""
        ...

    # -- administration --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the tables, or migrate older ones, if no server has done so. Raises ConfigError."""
        ...

    def add(self, name: str, password: str = "", permissions: tuple[str, ...] = ()) -> None:
        """Add a user; `password` is a hash. A revoked user is added again without the old permissions.

        Raises:
            ConfigError: the name is invalid or taken; a permission is empty or too long.
        """
        ...

    def set_password(self, name: str, password: str) -> None:
        """Set another password hash, which invalidates the user's cookies. Raises ConfigError for an unknown user."""
        ...

    def grant(self, name: str, permission: str, seconds: float | None = None) -> None:
        """Grant a permission, for a time or for good; it replaces an earlier grant of the same one.

        Raises:
            ConfigError: there is no such user, or the permission is empty or too long.
        """
        ...

    def add_key(self, name: str, digest: bytes, hint: str, seconds: float | None = None) -> None:
        """Add an API key, for a time or for good, and delete expired ones. `hint` is the part of it that may be shown.

        Raises:
            ConfigError: there is no such user.
        """
        ...

    def revoke(self, name: str) -> None:
        """Revoke a user: no key, cookie or password is valid any more. Raises ConfigError for an unknown user."""
        ...

    def revoke_permission(self, name: str, permission: str) -> None:
        """Revoke a permission. Raises ConfigError when there is no such user, or the user does not have it."""
        ...

    def revoke_key(self, name: str, hint: str) -> None:
        """Revoke the API key with this hint. Raises ConfigError when there is no such user, no such key, or several."""
        ...

    def account(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now; None when there is none, or it was revoked."""
        ...

    def list_users(self) -> list[UserSummary]:
        """List the users who were not revoked, by name, with their valid permissions and keys."""
        ...


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
