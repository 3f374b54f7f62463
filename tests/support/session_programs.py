"""A process manager for sessions whose programs do what a test says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Callback = Callable[[str, Any], Any]


class SessionPrograms:
    """Has only `subscribe` and `start_process` of a process manager: whatever else is asked of it fails the test."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self.started: list[tuple[Any, str, dict[str, Any]]] = []

    def subscribe(self, session_id: str, callback: Callback) -> Callable[[], None]:
        """Have the callback called with each event of a session, until what is returned is called."""
        self.callbacks.setdefault(session_id, []).append(callback)
        return lambda: self.callbacks[session_id].remove(callback)

    def start_process(self, session: Any, prompt: str, **options: Any) -> None:
        """Record the session, the prompt and the options of a program."""
        self.started.append((session, prompt, options))

    def emit(self, session_id: str, **event: Any) -> None:
        """Let an event happen in a session."""
        for callback in tuple(self.callbacks.get(session_id, ())):
            callback(session_id, event)

    @property
    def listening(self) -> int:
        """How many callbacks are subscribed."""
        return sum(map(len, self.callbacks.values()))
