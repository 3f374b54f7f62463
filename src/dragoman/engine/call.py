"""The caller of a request and the context of its call."""

from __future__ import annotations

from msgspec import Struct

from dragoman.model.user import User


class CallContext(Struct, frozen=True):
    """What the engine knows about the request that it handles, beside its parameters.

    `origin` is an opaque tag stored with a task that this call creates; transports use it to answer later requests in
    the dialect in which the task began. `asks` is False when the caller cannot be asked for missing arguments, `lists`
    is False when it may not list tasks.
    """

    user: User | None = None
    tenant: str = ""
    extensions: frozenset[str] = frozenset()
    origin: str = ""
    asks: bool = True
    lists: bool = True

    @property
    def owner(self) -> str:
        """The owner whose tasks this call may see; all anonymous callers share one."""
        return self.user.id if self.user else ""

    @property
    def version(self) -> str:
        """The protocol version of the call: `origin` up to the first slash, after which agents may add a suffix."""
        return self.origin.partition("/")[0]
