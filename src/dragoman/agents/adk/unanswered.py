"""Calls that nobody has answered, in the sessions that hold them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from dragoman.agents.adk.calls import Call
from dragoman.agents.adk.remote_message import CONTEXT_ID, STATE, state_key
from dragoman.model.state import State

if TYPE_CHECKING:
    from google.adk.runners import Runner
    from google.adk.sessions.session import Session

    from dragoman.engine.context import Context

logger = logging.getLogger("dragoman.adk")

# Where a conversation keeps which tools have said nothing, by the task that waits.
_STATE = "dragoman.adk.open"
_CANCELED, _PENDING = "canceled", "pending"
_USER = "user"


class Place(NamedTuple):
    """A session, and whose it is."""

    user: str
    session: str


class Unanswered:
    """Keeps sessions such that models can go on with them.

    Models do not take a call of theirs without a response. When a task ends, what it waited for is canceled. When
    something else is said in a conversation of which a task still waits, that task stays as it is: a tool of it that
    has said nothing is pending. Both are responses in the session, as ADK has them of tools.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._running: Counter[Place] = Counter()
        self._ended: dict[Place, list[Call]] = {}

    @asynccontextmanager
    async def running(self, place: Place) -> AsyncGenerator[None, None]:
        """While something runs in a session nothing is written beside it, or some services refuse the rest."""
        self._running[place] += 1
        try:
            yield
        finally:
            self._running[place] -= 1
            await self._settle(place)

    async def cancel(self, place: Place, calls: Iterable[Call]) -> None:
        """A task has ended: nobody will answer these. It is written now, or when nothing runs in the session."""
        self._ended.setdefault(place, []).extend(calls)
        await self._settle(place)

    def wait(self, ctx: Context, calls: Iterable[Call]) -> None:
        """A task waits for these. As long as nothing else is said in its conversation, that is for ADK to remember."""
        silent = [(call.id, call.name) for call in calls if call.kind == "tool" and call.response is None]
        if silent and self._is_plain():
            ctx.state[_STATE] = {**ctx.state.get(_STATE, {}), ctx.task_id: silent}

    async def go_on(self, ctx: Context, place: Place) -> None:
        """Something is said in a conversation: to a task that waits, or beside those that do."""
        waiting: dict[str, list[tuple[str, str]]] = ctx.state.pop(_STATE, {})
        waiting.pop(ctx.task_id, None)
        if waiting:
            await self._respond(place, [Call(*call) for calls in waiting.values() for call in calls], _PENDING)

    def _is_plain(self) -> bool:
        """True where a response does not mean that ADK goes on: workflows, and apps that resume, look for any."""
        config: Any = getattr(self._runner, "resumability_config", None)
        return hasattr(self._runner.agent, "sub_agents") and not (config is not None and config.is_resumable)

    async def _settle(self, place: Place) -> None:
        if self._running[place]:
            return
        del self._running[place]
        calls = self._ended.pop(place, None)
        if calls:
            await self._respond(place, calls, _CANCELED)

    async def _respond(self, place: Place, calls: Iterable[Call], status: str) -> None:
        service = self._runner.session_service
        try:
            session = await service.get_session(
                app_name=self._runner.app_name, user_id=place.user, session_id=place.session
            )
            if session is None:
                return
            for event in _responses(session, {call.id: call for call in calls}, status):
                await service.append_event(session=session, event=event)
        except Exception:  # whatever a service may raise: the task has ended or waits all the same
            logger.warning("calls of session %s were left without a response", place.session, exc_info=True)


def _responses(session: Session, calls: dict[str, Call], status: str) -> list[Event]:
    """What to write for those of the calls that are still open."""
    answered = {
        response.id
        for event in session.events
        if event.author == _USER or status == _PENDING
        for response in event.get_function_responses()
    }
    made: list[Event] = []
    for event in session.events:
        found = [call for call in event.get_function_calls() if call.id in calls and call.id not in answered]
        if not found or event.author == _USER:
            continue
        if STATE in (event.custom_metadata or {}):
            if status == _CANCELED:
                made.append(_given_up(event))
            continue
        # Models do not see ADK's own requests, and ADK reads more into the answers to them.
        parts = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"status": status})
            )
            for call in found
            if calls[call.id or ""].kind == "tool"
        ]
        if parts:
            author = _USER if status == _CANCELED else event.author
            made.append(_beside(event, author, types.Content(role="user", parts=parts)))
    if made:
        # ADK takes a response at the end of a session for the beginning of what is said next.
        made.append(_beside(made[-1], _USER, None))
    return made


def _given_up(asked: Event) -> Event:
    """The end of a remote agent's question: it goes on in its conversation, and what is said next is no answer."""
    known: dict[str, Any] = asked.custom_metadata or {}
    context = {CONTEXT_ID: known[CONTEXT_ID]} if CONTEXT_ID in known else {}
    made = _beside(asked, asked.author, None)
    made.custom_metadata = {**context, STATE: State.CANCELED.value}
    kept = {"context_id": known[CONTEXT_ID]} if context else {}
    made.actions = EventActions(state_delta={state_key(asked.author): kept})
    return made


def _beside(event: Event, author: str, content: types.Content | None) -> Event:
    made = Event(author=author, invocation_id=event.invocation_id, branch=event.branch, content=content)
    scope: Any = getattr(event, "isolation_scope", None)
    if scope is not None:
        setattr(made, "isolation_scope", scope)  # noqa: B010 - older versions have none
    return made
