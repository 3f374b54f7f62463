"""Converts the events of a remote agent to ADK events."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from dragoman.agents.adk.parts import IS_LONG_RUNNING, to_genai
from dragoman.agents.adk.remote.message import (
    ASKS_AUTH,
    ASKS_INPUT,
    CONTEXT_ID,
    STATE,
    TASK_ID,
    is_plain,
    merge_texts,
    state_key,
)
from dragoman.agents.text import PARAGRAPH_BREAK
from dragoman.model.error import BadResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task, TaskStatus, closing_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.adk.agents.invocation_context import InvocationContext

    from dragoman.agents.adk.remote.call import TaskLost
    from dragoman.client.event import Event as ClientEvent
    from dragoman.client.streams.stream import EventStream

logger = logging.getLogger("dragoman.adk")

_MAX_NAME = 200
# A "user:" prefix would store the file for the user instead of the session.
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f:/\\]+")
ERROR = "remote_agent_error"
_ENDINGS = {
    State.FAILED: "remote agent failed",
    State.REJECTED: "remote agent rejected the request",
    State.CANCELED: "remote agent canceled the task",
}
_QUESTION, _LOGIN = "input required", "authentication required"


def join_texts(parts: Iterable[Part], separator: str = "") -> tuple[Part, ...]:
    """Join consecutive texts: a stream of a thousand chunks becomes one text."""
    return tuple(part for part in merge_texts(parts, separator) if part.text != "")


def new_parts(before: Sequence[Part], now: Sequence[Part]) -> tuple[Part, ...]:
    """Return what `now` adds to `before`; all of `now` if it is no continuation. Both have joined texts."""
    for at, old_part in enumerate(before):
        if at >= len(now):
            return tuple(now)
        if now[at] == old_part:
            continue
        grown = at == len(before) - 1 and is_plain(old_part) and is_plain(now[at])
        if grown and (now[at].text or "").startswith(old_part.text or ""):
            return (Part(text=(now[at].text or "")[len(old_part.text or "") :]), *now[at + 1 :])
        return tuple(now)
    return tuple(now[len(before) :])


def file_name(part: Part, otherwise: str) -> str:
    """Return a safe file name, scoped to the session."""
    name = _NOT_IN_NAMES.sub("_", (part.filename or otherwise).rsplit("/", 1)[-1]).strip(" ._")
    return name[:_MAX_NAME] or "file"


class RemoteEvents:
    """Converts one turn of a remote agent to ADK events.

    Chunks and progress are partial events. Each artifact becomes one final event. Only the last event of the turn has
    `turn_complete`, so a finished artifact is held back until it is known what follows.
    """

    def __init__(self, ctx: InvocationContext, name: str, before: Task | None = None) -> None:
        self._ctx = ctx
        self._name = name
        # The parts of each artifact that are in the session already: a resumed task repeats the text before its
        # question.
        self._sent_parts: dict[str, tuple[Part, ...]] = {}
        if before is not None:
            self._sent_parts = {artifact.artifact_id: join_texts(artifact.parts) for artifact in before.artifacts}
        self._started = set(self._sent_parts)
        self._sent_ids: set[str] = set()
        # The chunks of an artifact and its final event have the same id, so that clients show them as one.
        self._event_ids: dict[str, str] = {}
        self._withheld: dict[str, tuple[Part, ...]] = {}
        self._last_finished: str | None = None
        # One folding per artifact: folding the whole task for each finished artifact would be quadratic.
        self._foldings: dict[str, Folding] = {}
        self._task_key: tuple[str, str] | None = None

    # -- while the task runs -------------------------------------------------------------------------------------------

    async def take(self, client_event: ClientEvent) -> list[Event]:
        """Return the ADK events for the next event of a stream."""
        raw = client_event.raw
        if isinstance(raw, ArtifactUpdate):
            return await self._artifact_chunk(client_event, raw)
        if isinstance(raw, Task):
            # A task replaces all artifacts received so far.
            self._foldings = {each.artifact_id: _new_folding((each,)) for each in raw.artifacts}
        note = self._note(client_event)
        if not note:
            return []
        return [self._event(_content([types.Part(text=note, thought=True)]), partial=True)]

    async def _artifact_chunk(self, client_event: ClientEvent, update: ArtifactUpdate) -> list[Event]:
        key = update.artifact.artifact_id
        chunk = self._chunk(client_event, update)
        self._started.add(key)
        self._fold(update)
        events = [self._event(_content(chunk), id=self._event_id(key), partial=True)] if chunk else []
        if update.last_chunk:
            done, self._last_finished = self._last_finished, key
            # Some agents flag every chunk as the last one, so an artifact counts as finished when the next one is.
            if done is not None and done != key and (folding := self._foldings.pop(done, None)) is not None:
                finished = folding.task().artifacts
                events += [
                    event for each in finished if (event := await self._artifact(each, self._key_of(client_event)))
                ]
        return events

    def _fold(self, update: ArtifactUpdate) -> None:
        key = update.artifact.artifact_id
        if key not in self._foldings:
            # An artifact that grows after its event was sent continues from there.
            sent = self._sent_parts.get(key)
            self._foldings[key] = _new_folding((Artifact(key, sent),) if sent and key in self._sent_ids else ())
        self._foldings[key].apply(update)

    def _key_of(self, client_event: ClientEvent) -> tuple[str, str]:
        """Return the context and task id. Some events lack the context id, so it is looked up once."""
        if self._task_key is None:
            task = client_event.task
            assert task is not None
            self._task_key = task.context_id, task.id
        return self._task_key

    def _chunk(self, client_event: ClientEvent, update: ArtifactUpdate) -> list[types.Part]:
        artifact = update.artifact
        is_started = artifact.artifact_id in self._started
        if update.append or not is_started:
            parts = (*self._withheld.pop(artifact.artifact_id, ()), *artifact.parts)
            if update.last_chunk and not is_started and not update.append:
                # Complete in one update: no partial event is needed, unless more follows nevertheless.
                self._withheld[artifact.artifact_id] = parts
                return []
            return [to_genai(part) for part in parts if part.text]
        # A replaced text has no chunk; an addition at its end has.
        return [types.Part(text=client_event.text)] if client_event.text and not client_event.replaces else []

    def _note(self, client_event: ClientEvent) -> str:
        raw = client_event.raw
        if client_event.state.final or client_event.state.waiting:
            return ""
        message = raw.status.message if isinstance(raw, (StatusUpdate, Task)) else raw
        return message.text if isinstance(message, Message) else ""

    # -- end of the turn -----------------------------------------------------------------------------------------------

    async def close(self, result: Task | Message) -> list[Event]:
        """Return the final events of the turn that have not been sent yet."""
        if isinstance(result, Message):
            metadata = self._metadata(result.context_id, result.task_id, State.COMPLETED)
            return [self._final_event(metadata, content=_content(_paragraphs(result.parts)))]
        events = await self.unsent_events(result)
        if result.state is State.COMPLETED:
            # A closing message of its own comes last.
            last = events.pop() if events and not closing_parts(result) else None
            return [*events, self._completed(result, last)]
        return [*events, self._asks(result) if result.state.waiting else self._ends(result)]

    async def unsent_events(self, task: Task) -> list[Event]:
        """Return the events of the task's artifacts that have not been sent yet. The turn continues."""
        task_key = task.context_id, task.id
        return [event for each in task.artifacts if (event := await self._artifact(each, task_key))]

    async def unsent_events_of(self, stream: EventStream) -> list[Event]:
        """Return the unsent events of a broken stream."""
        try:
            result = stream.result
        except BadResponse:
            return []
        return await self.unsent_events(result) if isinstance(result, Task) else []

    def _completed(self, task: Task, last: Event | None) -> Event:
        metadata = self._metadata(task.context_id, task.id, task.state)
        if last is None:
            # Some agents answer with a message instead of an artifact; an empty answer also ends the turn.
            parts = closing_parts(task) if task.artifacts else task.parts
            return self._final_event(metadata, content=_content(_paragraphs(parts)))
        last.custom_metadata, last.turn_complete = metadata, True
        last.actions.state_delta.update(self._state_changes(metadata))
        return last

    def _asks(self, task: Task) -> Event:
        metadata = self._metadata(task.context_id, task.id, task.state)
        message = task.status.message
        parts: list[types.Part] = []
        pending: set[str] = set()
        for part in message.parts if message is not None else ():
            genai_part = to_genai(part)
            call = genai_part.function_call
            if genai_part.function_response is not None:
                continue  # only a placeholder for the missing answer
            if call is not None and (part.metadata or {}).get(IS_LONG_RUNNING) is not False:
                call.id = call.id or new_id()
                pending.add(call.id)
            parts.append(genai_part)
        if not pending:
            question_call = _question(task)
            assert question_call.id is not None
            pending.add(question_call.id)
            parts.append(types.Part(function_call=question_call))
        return self._final_event(metadata, content=_content(parts), long_running_tool_ids=pending)

    def _ends(self, task: Task) -> Event:
        text = task.status.message.text if task.status.message is not None else ""
        message = text or _ENDINGS.get(task.state, "remote agent stopped before it was done")
        metadata = self._metadata(task.context_id, task.id, task.state)
        return self._final_event(metadata, error_code=ERROR, error_message=message)

    async def _artifact(self, artifact: Artifact, task_key: tuple[str, str]) -> Event | None:
        """Return the event of an artifact; None if it has nothing new."""
        key = artifact.artifact_id
        parts = join_texts(artifact.parts)
        added = new_parts(self._sent_parts.get(key, ()), parts)
        if not added:
            return None
        self._sent_parts[key] = parts
        self._sent_ids.add(key)
        event = self._event(_content(map(to_genai, added)), id=self._event_ids.pop(key, ""))
        event.custom_metadata = self._metadata(*task_key, State.WORKING)
        event.actions.artifact_delta.update(await self._save_files(added, artifact))
        return event

    async def _save_files(self, parts: Sequence[Part], artifact: Artifact) -> dict[str, int]:
        """Save files with ADK's artifact service; return their versions."""
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
            except Exception:  # third-party code: the event itself contains the file, too
                logger.warning("a file of a remote agent was not saved: %s", name, exc_info=True)
        return versions

    # -- building events -----------------------------------------------------------------------------------------------

    def error(self, text: str, lost: TaskLost | None = None) -> Event:
        """Return the event of a failed turn. A lost task is removed from the session's state."""
        if lost is None:
            return self._event(None, error_code=ERROR, error_message=text, turn_complete=True)
        metadata = self._metadata(lost.context_id, lost.task_id, State.FAILED)
        return self._final_event(metadata, error_code=ERROR, error_message=text)

    def _final_event(self, metadata: dict[str, Any], *, content: types.Content | None = None, **more: Any) -> Event:
        event = self._event(content, custom_metadata=metadata, turn_complete=True, **more)
        event.actions.state_delta.update(self._state_changes(metadata))
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

    def _event_id(self, key: str) -> str:
        return self._event_ids.setdefault(key, new_id())

    def _metadata(self, context_id: str | None, task_id: str | None, state: State) -> dict[str, Any]:
        metadata = {CONTEXT_ID: context_id, TASK_ID: task_id, STATE: state.value}
        return {key: value for key, value in metadata.items() if value}

    def _state_changes(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return state_changes(self._ctx.session.state, self._name, metadata)


def state_changes(state: Any, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the changes to a session's state: the context id, and the id of a task that waits for an answer."""
    conversation = {"context_id": metadata.get(CONTEXT_ID)}
    if State(metadata[STATE]).waiting:
        conversation["task_id"] = metadata.get(TASK_ID)
    conversation = {key: value for key, value in conversation.items() if value}
    return {} if conversation == (state.get(state_key(name)) or {}) else {state_key(name): conversation}


def _content(parts: Iterable[types.Part]) -> types.Content | None:
    part_list = list(parts)
    return types.Content(role="model", parts=part_list) if part_list else None


def _new_folding(artifacts: tuple[Artifact, ...]) -> Folding:
    return Folding(Task("", "", TaskStatus(State.WORKING), artifacts=artifacts))


def _question(task: Task) -> types.FunctionCall:
    """Return a call that represents a plain-text question, so that ADK waits for an answer."""
    auth = task.state is State.AUTH_REQUIRED
    text = task.question or (_LOGIN if auth else _QUESTION)
    arguments = {"auth_required" if auth else "input_required": text}
    return types.FunctionCall(id=new_id(), name=ASKS_AUTH if auth else ASKS_INPUT, args=arguments)


def _paragraphs(parts: Iterable[Part]) -> Iterable[types.Part]:
    """Return the parts of messages, whose texts are paragraphs."""
    return map(to_genai, join_texts(parts, PARAGRAPH_BREAK))
