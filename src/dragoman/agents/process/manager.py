"""The process manager: what runs programs for sessions, and whom it tells."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from dragoman.agents.process.events import Callback, Event
    from dragoman.agents.process.session import Session


class ProcessManager(Protocol):
    """All that is asked of a process manager; it may be anybody's.

    `subscribe` may give back the way to stop listening. `start_process` may be a coroutine; a program that cannot be
    started is told as an `error` event. One that has a method `stop_process(session_id)` is asked to end programs
    whose work nobody wants any more.
    """

    def subscribe(self, session_id: str, callback: Callback, /) -> Callable[[], object] | None:
        """Call back with everything that happens in a session from now on."""
        ...

    def start_process(self, session: Session, prompt: str, /, **options: Any) -> Awaitable[object] | object:
        """Run the session's program on a prompt."""
        ...


class Talk(Protocol):
    """What a process manager can do beside, where programs may be told something while they run."""

    def pid(self, session_id: str) -> int | None:
        """The program that is open in a session, if there is one."""
        ...

    def goes_on(self, session_id: str) -> bool:
        """True when the open program of a session takes the next message, too."""
        ...

    def say(self, session: Session, line: str) -> None:
        """Tell the open program of a session something. Nothing happens when there is none."""
        ...

    def put_back(self, session_id: str, events: Iterable[Event]) -> None:
        """Keep events that were not taken for whoever listens next, as long as the program is open."""
        ...

    def ended(self, session_id: str) -> str:
        """How the last program of a session ended, as far as that is still known."""
        ...


def talk_of(manager: ProcessManager) -> Talk | None:
    """The same process manager as one whose programs can be talked to, if they can."""
    return cast("Talk", manager) if hasattr(manager, "say") and hasattr(manager, "pid") else None


async def stop(manager: ProcessManager, session_id: str, reason: str) -> None:
    """Ask a process manager to end a program, if it can be asked."""
    asked = getattr(manager, "stop_process", None)
    if asked is not None:
        done = asked(session_id, reason)
        if inspect.isawaitable(done):
            await done
