"""A process manager whose programs say what a test wants."""

from __future__ import annotations

from typing import Any

from dragoman import Agent
from dragoman.agents.process.events import Callback, Event
from dragoman.agents.process.run import SessionRuns
from dragoman.agents.process.session import ProgramSession
from dragoman.server.agent.base import Backend


class Manager:
    """A process manager with the two methods that every one has. Its programs say what the test wants."""

    def __init__(self, *output: Event) -> None:
        self.output = output
        self.started: list[tuple[ProgramSession, str, dict[str, Any]]] = []
        self.listeners: dict[str, Callback] = {}

    def subscribe(self, session_id: str, callback: Callback) -> None:
        self.listeners[session_id] = callback

    def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
        self.started.append((session, prompt, options))
        self.say_of(session.id, *self.output)

    def say_of(self, session_id: str, *output: Event) -> None:
        for event in output:
            self.listeners[session_id](session_id, event)

    @property
    def sessions(self) -> list[str]:
        return [session.id for session, _, _ in self.started]


def agent_of(manager: Any, **options: Any) -> Agent:
    """An agent whose programs this manager has."""
    runs = SessionRuns(manager, agent_id="fox", project_id="forest", **options)
    return Agent("fox", Backend(runs.run, prepare=runs.prepare, canceled=runs.canceled, close=runs.close))
