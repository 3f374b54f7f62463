"""One webhook that is still owed something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dragoman.net.exchange import origin_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from dragoman.clock import Timer
    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.webhooks.payload import Payloads


class Hook:
    """What the courier knows of a webhook. There may be many thousands that wait for parked tasks: it is small.

    It is at rest, `busy` (at work, or waiting for its turn), or has a timer that ends its rest. `more` says that its
    last look was not enough, `calm` that it found nothing to bring, `gone` that nobody is to work for it any more.
    """

    __slots__ = ("busy", "calm", "gone", "heard", "more", "payloads", "place", "push", "row", "stop", "timer", "worker")

    def __init__(self, row: TaskRow, push: Push) -> None:
        self.row = row
        self.push = push
        self.place = origin_of(push.url)
        self.heard = row.generation
        self.busy = False
        self.calm = False
        self.more = False
        self.gone = False
        self.payloads: Payloads | None = None
        self.worker: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.stop: Callable[[], None] | None = None

    @property
    def key(self) -> tuple[int, str]:
        """By what it is found: the task's number and its own id."""
        return self.push.task, self.push.id

    @property
    def behind(self) -> bool:
        """True when the task is known to have come further than this webhook was told."""
        return self.more or self.heard > self.push.cursor

    def rest(self) -> None:
        """Stop listening and waiting."""
        self.gone = True
        if self.stop is not None:
            self.stop()
            self.stop = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Sealer(Protocol):
    """Keeps secrets in a form that is worth nothing without the server's key."""

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Close."""
        ...

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Open. Raises BadSeal when that is not possible."""
        ...


class Signer(Protocol):
    """Signs what leaves, with a key whose public half is at `/.well-known/jwks.json`."""

    def sign_jwt(self, claims: dict[str, Any]) -> str:
        """A compact JWT."""
        ...


class AddressGuard(Protocol):
    """Says where webhooks may be."""

    def check_url(self, url: str) -> None:
        """Raise DragomanError for an address that may not be called."""
        ...
