"""From what a remote agent does to the events of ADK."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from dragoman.agents.adk.parts import IS_LONG_RUNNING, to_genai
from dragoman.agents.adk.remote_content import file_name, joined, news
from dragoman.agents.adk.remote_message import ASKS_AUTH, ASKS_INPUT, CONTEXT_ID, STATE, TASK_ID, state_key
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.state import Role, State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.adk.agents.invocation_context import InvocationContext

    from dragoman.client.event import Event as Told
    from dragoman.model.artifact import Artifact
    from dragoman.model.part import Part

logger = logging.getLogger("dragoman.adk")

ERROR = "remote_agent_error"
_ENDINGS = {
    State.FAILED: "remote agent failed",
    State.REJECTED: "remote agent rejected the request",
    State.CANCELED: "remote agent canceled the task",
}
_QUESTION, _LOGIN = "input required", "authentication required"


class RemoteEvents:
    """One turn of a remote agent as ADK events.

    Chunks and notes on the way are partial events. Each artifact is one event that stays, and the last event of the
    turn, and only that, has `turn_complete`; so one that is done waits here until it is known what follows it.
    """

    def __init__(self, ctx: InvocationContext, name: str, before: Task | None = None) -> None:
        self._ctx = ctx
        self._name = name
        # What the session has of each artifact already: a task that goes on after a question has the text before it.
        self._known: dict[str, tuple[Part, ...]] = {}
        if before is not None:
            self._known = {artifact.artifact_id: joined(artifact.parts) for artifact in before.artifacts}
        self._begun = set(self._known)
        # The chunks of an artifact and what comes of them are one event to whoever shows them.
        self._ids: dict[str, str] = {}
        self._unshown: dict[str, tuple[Part, ...]] = {}
        self._done: str | None = None

    # -- on the way ----------------------------------------------------------------------------------------------------

    async def take(self, told: Told) -> list[Event]:
        """What there is to show after the next event of a stream."""
        raw = told.raw
        if isinstance(raw, ArtifactUpdate):
            return await self._piece(told, raw)
        note = self._note(told)
        if not note:
            return []
        return [self._event(_content([types.Part(text=note, thought=True)]), partial=True)]

    async def _piece(self, told: Told, update: ArtifactUpdate) -> list[Event]:
        key = update.artifact.artifact_id
        chunk = self._chunk(told, update)
        self._begun.add(key)
        events = [self._event(_content(chunk), id=self._id(key), partial=True)] if chunk else []
        if update.last_chunk:
            done, self._done = self._done, key
            # Some say of every chunk that it is the last. It is, when another artifact is done.
            if done is not None and done != key and told.task is not None:
                finished = (artifact for artifact in told.task.artifacts if artifact.artifact_id == done)
                events += [event for each in finished if (event := await self._artifact(each, told.task))]
        return events

    def _chunk(self, told: Told, update: ArtifactUpdate) -> list[types.Part]:
        artifact = update.artifact
        known = artifact.artifact_id in self._begun
        if update.append or not known:
            parts = (*self._unshown.pop(artifact.artifact_id, ()), *artifact.parts)
            if update.last_chunk and not known and not update.append:
                # All of it at once: there is nothing to show beforehand, unless it goes on all the same.
                self._unshown[artifact.artifact_id] = parts
                return []
            return [to_genai(part) for part in parts if part.text]
        # A text that is told anew has no chunk; what is new at its end is one.
        return [types.Part(text=told.text)] if told.text and not told.replaces else []

    def _note(self, told: Told) -> str:
        raw = told.raw
        if told.state.final or told.state.waiting:
            return ""
        message = raw.status.message if isinstance(raw, (StatusUpdate, Task)) else raw
        return message.text if isinstance(message, Message) else ""

    # -- at the end ----------------------------------------------------------------------------------------------------

    async def close(self, result: Task | Message) -> list[Event]:
        """What stays of the turn, as far as it has not been told yet."""
        if isinstance(result, Message):
            metadata = self._metadata(result.context_id, result.task_id, State.COMPLETED)
            return [self._last(metadata, content=_content(map(to_genai, joined(result.parts))))]
        events = [event for each in result.artifacts if (event := await self._artifact(each, result))]
        if result.state is State.COMPLETED:
            last = events.pop() if events else None
            return [*events, self._completed(result, last)]
        return [*events, self._asks(result) if result.state.waiting else self._ends(result)]

    def _completed(self, task: Task, last: Event | None) -> Event:
        metadata = self._metadata(task.context_id, task.id, task.state)
        if last is None:
            # Some answer with words and no artifact; and who has nothing to say has ended all the same.
            said = task.status.message or _last_words(task)
            return self._last(metadata, content=_content(map(to_genai, joined(said.parts if said else ()))))
        last.custom_metadata, last.turn_complete = metadata, True
        last.actions.state_delta.update(self._kept(metadata))
        return last

    def _asks(self, task: Task) -> Event:
        metadata = self._metadata(task.context_id, task.id, task.state)
        message = task.status.message
        parts: list[types.Part] = []
        pending: set[str] = set()
        for part in message.parts if message is not None else ():
            made = to_genai(part)
            call = made.function_call
            if made.function_response is not None:
                continue  # it says only that there is no answer yet
            if call is not None and (part.metadata or {}).get(IS_LONG_RUNNING) is not False:
                call.id = call.id or new_id()
                pending.add(call.id)
            parts.append(made)
        if not pending:
            made_up = _question(task)
            assert made_up.id is not None
            pending.add(made_up.id)
            parts.append(types.Part(function_call=made_up))
        return self._last(metadata, content=_content(parts), long_running_tool_ids=pending)

    def _ends(self, task: Task) -> Event:
        text = task.status.message.text if task.status.message is not None else ""
        message = text or _ENDINGS.get(task.state, "remote agent stopped before it was done")
        metadata = self._metadata(task.context_id, task.id, task.state)
        return self._last(metadata, error_code=ERROR, error_message=message)

    async def _artifact(self, artifact: Artifact, task: Task) -> Event | None:
        """The event of an artifact, unless there is nothing new in it."""
        key = artifact.artifact_id
        parts = joined(artifact.parts)
        fresh = news(self._known.get(key, ()), parts)
        if not fresh:
            return None
        self._known[key] = parts
        event = self._event(_content(map(to_genai, fresh)), id=self._ids.pop(key, ""))
        event.custom_metadata = self._metadata(task.context_id, task.id, State.WORKING)
        event.actions.artifact_delta.update(await self._saved(fresh, artifact))
        return event

    async def _saved(self, parts: Sequence[Part], artifact: Artifact) -> dict[str, int]:
        """Put files where ADK keeps files."""
        service, session = self._ctx.artifact_service, self._ctx.session
        versions: dict[str, int] = {}
        if service is None:
            return versions
        for part in parts:
            if part.raw is None:
                continue
            name = file_name(part, artifact.name or artifact.artifact_id)
            try:
                versions[name] = await service.save_artifact(
                    app_name=session.app_name,
                    user_id=session.user_id,
                    session_id=session.id,
                    filename=name,
                    artifact=to_genai(part),
                )
            except Exception:  # whatever a service may raise: the answer itself has the file too
                logger.warning("a file of a remote agent was not saved: %s", name, exc_info=True)
        return versions

    # -- events --------------------------------------------------------------------------------------------------------

    def error(self, text: str) -> Event:
        """The end of a turn that did not come about."""
        return self._event(None, error_code=ERROR, error_message=text, turn_complete=True)

    def _last(self, metadata: dict[str, Any], *, content: types.Content | None = None, **more: Any) -> Event:
        event = self._event(content, custom_metadata=metadata, turn_complete=True, **more)
        event.actions.state_delta.update(self._kept(metadata))
        return event

    def _event(self, content: types.Content | None, *, id: str = "", **more: Any) -> Event:
        return Event(
            id=id or new_id(),
            author=self._name,
            invocation_id=self._ctx.invocation_id,
            branch=self._ctx.branch,
            content=content,
            actions=EventActions(),
            **more,
        )

    def _id(self, key: str) -> str:
        return self._ids.setdefault(key, new_id())

    def _metadata(self, context_id: str | None, task_id: str | None, state: State) -> dict[str, Any]:
        said = {CONTEXT_ID: context_id, TASK_ID: task_id, STATE: state.value}
        return {key: value for key, value in said.items() if value}

    def _kept(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return kept(self._ctx.session.state, self._name, metadata)


def kept(state: Any, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """What changes in a session's state: where the conversation is, and the task that waits for an answer."""
    place = {"context_id": metadata.get(CONTEXT_ID)}
    if State(metadata[STATE]).waiting:
        place["task_id"] = metadata.get(TASK_ID)
    place = {key: value for key, value in place.items() if value}
    return {} if place == (state.get(state_key(name)) or {}) else {state_key(name): place}


def _content(parts: Iterable[types.Part]) -> types.Content | None:
    found = list(parts)
    return types.Content(role="model", parts=found) if found else None


def _question(task: Task) -> types.FunctionCall:
    """A call that stands for a question in plain words, so that ADK knows that somebody has to answer."""
    auth = task.state is State.AUTH_REQUIRED
    text = task.question or (_LOGIN if auth else _QUESTION)
    arguments = {"auth_required" if auth else "input_required": text}
    return types.FunctionCall(id=new_id(), name=ASKS_AUTH if auth else ASKS_INPUT, args=arguments)


def _last_words(task: Task) -> Message | None:
    return task.history[-1] if task.history and task.history[-1].role is Role.AGENT else None
