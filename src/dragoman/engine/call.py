"""Who asks, and in what way."""

from __future__ import annotations

from msgspec import Struct

from dragoman.model.user import User


class CallContext(Struct, frozen=True):
    """The circumstances of a request, as far as the engine cares.

    `origin` is an opaque tag kept with a task that this call creates; it lets the edge answer later requests in the
    words in which the task began. `asks` is False when the caller cannot be asked for missing arguments, `lists` when
    it may not list tasks.
    """

    user: User | None = None
    tenant: str = ""
    extensions: frozenset[str] = frozenset()
    origin: str = ""
    asks: bool = True
    lists: bool = True

    @property
    def owner(self) -> str:
        """Whose tasks this call may see; all anonymous callers are one."""
        return self.user.id if self.user else ""

    @property
    def version(self) -> str:
        """The version that is spoken: the tag, without what an agent of some kind may have added after a slash."""
        return self.origin.partition("/")[0]
