"""Long-running tool calls of an ADK agent that wait for the caller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from msgspec import Struct

from dragoman.agents.adk import credential
from dragoman.agents.adk.parts import IS_LONG_RUNNING, TYPE
from dragoman.agents.adk.remote.message import ASKS_AUTH, ASKS_INPUT, CONFIRMATION, CONTEXT_ID, INPUT, STATE, state_key
from dragoman.model.part import Part
from dragoman.model.state import State

if TYPE_CHECKING:
    from google.adk.runners import Runner
    from google.adk.sessions.session import Session

    from dragoman.engine.execute.context import Context

logger = logging.getLogger("dragoman.adk")

CREDENTIAL = "adk_request_credential"
# Start of ADK's default confirmation hint, which is addressed to programs, not to people.
_DEFAULT_HINT = "Please approve or reject the tool call"
# The argument that holds the text of a remote agent's question, by the name of the call that represents it.
_QUESTION_ARGUMENTS = {ASKS_INPUT: "input_required", ASKS_AUTH: "auth_required"}
_MAX_ARGUMENTS = 200

Kind = Literal["confirmation", "credential", "input", "question", "tool"]
# Key in the conversation's state of the tools without any response, by the waiting task.
_STATE = "dragoman.adk.open"
_CANCELED, _PENDING = "canceled", "pending"
_USER = "user"


class PendingCall(Struct, frozen=True, omit_defaults=True):
    """A tool call that waits for the caller.

    `args` are the arguments that callers may see, `response` is the tool's preliminary response. `remote_question` is
    the question that came with the call, if a remote agent makes it.
    """

    id: str
    name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    response: dict[str, Any] | None = None
    remote_question: str = msgspec.field(default="", name="asked")

    @property
    def kind(self) -> Kind:
        """What the call waits for."""
        if self.name == CREDENTIAL:
            return "credential"
        if self.name in _QUESTION_ARGUMENTS:
            return "question"
        if self.name == CONFIRMATION or "confirmed" in (self.schema.get("properties") or {}):
            return "confirmation"
        return "input" if self.name == INPUT else "tool"

    @property
    def auth(self) -> bool:
        """True if the call waits for credentials."""
        return self.name in (CREDENTIAL, ASKS_AUTH)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer, if the agent gives one."""
        if self.name != INPUT:
            return {}
        return _object(self.args.get("response_schema") or self.args.get("responseSchema"))

    @property
    def question(self) -> str:
        """The question for the caller."""
        if self.kind == "credential":
            return credential.question(self.args)
        if self.name == CONFIRMATION:
            return self._confirmation()
        if self.name == INPUT or self.name in _QUESTION_ARGUMENTS:
            message = self.args.get(_QUESTION_ARGUMENTS.get(self.name, "message"))
            text = message if isinstance(message, str) else self.remote_question
            return text or ("Credentials are needed." if self.auth else "Input is needed.")
        return self.remote_question or f"{_call_text(self.name, self.args)} waits for its result."

    def _confirmation(self) -> str:
        call = _object(self.args.get("originalFunctionCall"))
        hint = _object(self.args.get("toolConfirmation")).get("hint")
        allow = f"Allow {_call_text(str(call['name']), call.get('args'))}?" if "name" in call else "Allow it?"
        if isinstance(hint, str) and hint and not hint.startswith(_DEFAULT_HINT):
            return f"{hint} {allow}"
        return allow

    def details(self) -> tuple[Part, ...]:
        """Return the call as a part in ADK's own format, and the tool's preliminary response, if it has one."""
        body: dict[str, Any] = {"id": self.id, "name": self.name, "args": self.args}
        parts = [Part(data=body, metadata={TYPE: "function_call", IS_LONG_RUNNING: True})]
        if self.response is not None:
            response = {"id": self.id, "name": self.name, "response": self.response}
            parts.append(Part(data=response, metadata={TYPE: "function_response"}))
        return tuple(parts)


class PendingCalls(Struct, frozen=True, omit_defaults=True):
    """The stored state of a waiting task: its calls, the answers so far, its session."""

    calls: tuple[PendingCall, ...]
    answers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict[str, dict[str, Any]], name="given")
    user: str = ""
    session: str = ""

    @property
    def missing(self) -> tuple[PendingCall, ...]:
        """The calls without an answer."""
        return tuple(call for call in self.calls if call.id not in self.answers)


def details_of(calls: Sequence[PendingCall]) -> tuple[Part, ...]:
    """Return the parts sent next to the question; none for a single question in plain text."""
    if len(calls) == 1 and calls[0].kind == "question":
        return ()
    return tuple(part for call in calls for part in call.details())


def question_of(calls: Sequence[PendingCall]) -> str:
    """Return one question for all calls."""
    questions = [call.question for call in calls]
    if all(call.kind == "confirmation" for call in calls):
        return " ".join((*questions, "Answer yes or no."))
    if len(calls) == 1:
        return questions[0]
    return "\n".join(("Each of these needs an answer of its own:", *(f"- {text}" for text in questions)))


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _call_text(name: str, args: Any) -> str:
    if not isinstance(args, dict) or not args:
        return f"{name}()"
    arguments = msgspec.json.encode(args).decode(errors="replace")
    return f"{name}({arguments if len(arguments) <= _MAX_ARGUMENTS else arguments[: _MAX_ARGUMENTS - 1] + '…'})"


class SessionKey(NamedTuple):
    """The user and the id of an ADK session."""

    user: str
    session: str


class UnansweredCalls:
    """Writes responses for unanswered calls, so that models can continue a session.

    Models reject a history in which a call has no response. When a task ends, the calls it waited for get the response
    "canceled". When another message arrives in the conversation of a waiting task, that task keeps waiting, and its
    tools without a response get "pending". Both are written to the session as ADK's tool responses.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._running: Counter[SessionKey] = Counter()
        self._canceled: dict[SessionKey, list[PendingCall]] = {}

    @asynccontextmanager
    async def running(self, key: SessionKey) -> AsyncGenerator[None, None]:
        """Postpone writes to a session while a run uses it: some session services reject concurrent writes."""
        self._running[key] += 1
        try:
            yield
        finally:
            self._running[key] -= 1
            await self._respond_to_canceled(key)

    async def cancel(self, key: SessionKey, calls: Iterable[PendingCall]) -> None:
        """Write "canceled" for the calls of an ended task, now or when no run uses the session."""
        self._canceled.setdefault(key, []).extend(calls)
        await self._respond_to_canceled(key)

    def note_waiting(self, ctx: Context, calls: Iterable[PendingCall]) -> None:
        """Remember the calls that a task waits for, in case another message arrives in its conversation."""
        unanswered = [(call.id, call.name) for call in calls if call.kind == "tool" and call.response is None]
        if unanswered and self._accepts_pending():
            ctx.state[_STATE] = {**ctx.state.get(_STATE, {}), ctx.task_id: unanswered}

    async def answer_waiting(self, ctx: Context, key: SessionKey) -> None:
        """Write "pending" for the calls of other tasks that wait in the conversation of this message."""
        waiting: dict[str, list[tuple[str, str]]] = ctx.state.pop(_STATE, {})
        waiting.pop(ctx.task_id, None)
        if waiting:
            await self._respond(key, [PendingCall(*call) for calls in waiting.values() for call in calls], _PENDING)

    def _accepts_pending(self) -> bool:
        """Return True if a response does not resume the agent: workflows and resumable apps resume on any response."""
        config: Any = getattr(self._runner, "resumability_config", None)
        return hasattr(self._runner.agent, "sub_agents") and not (config is not None and config.is_resumable)

    async def _respond_to_canceled(self, key: SessionKey) -> None:
        if self._running[key]:
            return
        del self._running[key]
        calls = self._canceled.pop(key, None)
        if calls:
            await self._respond(key, calls, _CANCELED)

    async def _respond(self, key: SessionKey, calls: Iterable[PendingCall], status: str) -> None:
        service = self._runner.session_service
        try:
            session = await service.get_session(
                app_name=self._runner.app_name, user_id=key.user, session_id=key.session
            )
            if session is None:
                return
            for event in _responses(session, {call.id: call for call in calls}, status):
                await service.append_event(session=session, event=event)
        except Exception:  # third-party code: the task has ended or waits anyway
            logger.warning("calls of session %s were left without a response", key.session, exc_info=True)


def _responses(session: Session, calls: dict[str, PendingCall], status: str) -> list[Event]:
    """Return the events to append for those of the calls that are still open."""
    answered_ids = {
        response.id
        for event in session.events
        if event.author == _USER or status == _PENDING
        for response in event.get_function_responses()
    }
    new_events: list[Event] = []
    for event in session.events:
        open_calls = [call for call in event.get_function_calls() if call.id in calls and call.id not in answered_ids]
        if not open_calls or event.author == _USER:
            continue
        if STATE in (event.custom_metadata or {}):
            if status == _CANCELED:
                new_events.append(_canceled_question(event))
            continue
        # ADK's own requests are not part of a model's history, and a response to them would have side effects.
        parts = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"status": status})
            )
            for call in open_calls
            if calls[call.id or ""].kind == "tool"
        ]
        if parts:
            author = _USER if status == _CANCELED else event.author
            new_events.append(_event_beside(event, author, types.Content(role="user", parts=parts)))
    if new_events:
        # ADK merges a response at the end of a session with the next message, so an empty event follows.
        new_events.append(_event_beside(new_events[-1], _USER, None))
    return new_events


def _canceled_question(question_event: Event) -> Event:
    """Return the event that ends a remote agent's question, so that the next message is not taken as its answer."""
    metadata: dict[str, Any] = question_event.custom_metadata or {}
    context = {CONTEXT_ID: metadata[CONTEXT_ID]} if CONTEXT_ID in metadata else {}
    event = _event_beside(question_event, question_event.author, None)
    event.custom_metadata = {**context, STATE: State.CANCELED.value}
    remote_state = {"context_id": metadata[CONTEXT_ID]} if context else {}
    event.actions = EventActions(state_delta={state_key(question_event.author): remote_state})
    return event


def _event_beside(event: Event, author: str, content: types.Content | None) -> Event:
    new_event = Event(author=author, invocation_id=event.invocation_id, branch=event.branch, content=content)
    scope: Any = getattr(event, "isolation_scope", None)
    if scope is not None:
        setattr(new_event, "isolation_scope", scope)  # noqa: B010 - older versions have none
    return new_event
