"""From what a remote agent does to the events of ADK."""

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
from dragoman.model.error import BadResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Folding
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.adk.agents.invocation_context import InvocationContext

    from dragoman.agents.adk.remote.call import TaskLost
    from dragoman.client.client import EventStream
    from dragoman.client.event import Event as Told

_LONGEST_NAME = 200
# A colon would put the file among those of the user instead of those of the session.
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f:/\\]+")


def join_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with texts that follow each other as one: a stream of a thousand chunks is one text."""
    return tuple(part for part in merge_texts(parts, "") if part.text != "")


def new_parts(before: Sequence[Part], now: Sequence[Part]) -> tuple[Part, ...]:
    """What `now` says that `before` did not; all of it when it says something else. Both are joined."""
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
    """A name for a file that stays what it is: a name, and of this session."""
    name = _NOT_IN_NAMES.sub("_", (part.filename or otherwise).rsplit("/", 1)[-1]).strip(" ._")
    return name[:_LONGEST_NAME] or "file"


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
        self._sent_parts: dict[str, tuple[Part, ...]] = {}
        if before is not None:
            self._sent_parts = {artifact.artifact_id: join_texts(artifact.parts) for artifact in before.artifacts}
        self._started = set(self._sent_parts)
        self._sent_ids: set[str] = set()
        # The chunks of an artifact and what comes of them are one event to whoever shows them.
        self._event_ids: dict[str, str] = {}
        self._withheld: dict[str, tuple[Part, ...]] = {}
        self._last_finished: str | None = None
        # Each artifact by itself: to put the whole task together whenever one is done would take ever longer.
        self._foldings: dict[str, Folding] = {}
        self._task_key: tuple[str, str] | None = None

    # -- on the way ----------------------------------------------------------------------------------------------------

    async def take(self, client_event: Told) -> list[Event]:
        """What there is to show after the next event of a stream."""
        raw = client_event.raw
        if isinstance(raw, ArtifactUpdate):
            return await self._artifact_chunk(client_event, raw)
        if isinstance(raw, Task):
            # The artifacts as they are, whatever was told of them before.
            self._foldings = {each.artifact_id: _new_folding((each,)) for each in raw.artifacts}
        note = self._note(client_event)
        if not note:
            return []
        return [self._event(_content([types.Part(text=note, thought=True)]), partial=True)]

    async def _artifact_chunk(self, client_event: Told, update: ArtifactUpdate) -> list[Event]:
        key = update.artifact.artifact_id
        chunk = self._chunk(client_event, update)
        self._started.add(key)
        self._fold(update)
        events = [self._event(_content(chunk), id=self._event_id(key), partial=True)] if chunk else []
        if update.last_chunk:
            done, self._last_finished = self._last_finished, key
            # Some say of every chunk that it is the last. It is, when another artifact is done.
            if done is not None and done != key and (folding := self._foldings.pop(done, None)) is not None:
                finished = folding.task().artifacts
                events += [
                    event for each in finished if (event := await self._artifact(each, self._key_of(client_event)))
                ]
        return events

    def _fold(self, update: ArtifactUpdate) -> None:
        key = update.artifact.artifact_id
        if key not in self._foldings:
            # What is written on after its event has been told goes on from there.
            sent = self._sent_parts.get(key)
            self._foldings[key] = _new_folding((Artifact(key, sent),) if sent and key in self._sent_ids else ())
        self._foldings[key].apply(update)

    def _key_of(self, client_event: Told) -> tuple[str, str]:
        """The context and the task. Some events do not name their context, so it is looked up, once."""
        if self._task_key is None:
            task = client_event.task
            assert task is not None
            self._task_key = task.context_id, task.id
        return self._task_key

    def _chunk(self, client_event: Told, update: ArtifactUpdate) -> list[types.Part]:
        artifact = update.artifact
        is_started = artifact.artifact_id in self._started
        if update.append or not is_started:
            parts = (*self._withheld.pop(artifact.artifact_id, ()), *artifact.parts)
            if update.last_chunk and not is_started and not update.append:
                # All of it at once: there is nothing to show beforehand, unless it goes on all the same.
                self._withheld[artifact.artifact_id] = parts
                return []
            return [to_genai(part) for part in parts if part.text]
        # A text that is told anew has no chunk; what is new at its end is one.
        return [types.Part(text=client_event.text)] if client_event.text and not client_event.replaces else []

    def _note(self, client_event: Told) -> str:
        raw = client_event.raw
        if client_event.state.final or client_event.state.waiting:
            return ""
        message = raw.status.message if isinstance(raw, (StatusUpdate, Task)) else raw
        return message.text if isinstance(message, Message) else ""

    # -- at the end ----------------------------------------------------------------------------------------------------

    async def close(self, result: Task | Message) -> list[Event]:
        """What stays of the turn, as far as it has not been told yet."""
        if isinstance(result, Message):
            metadata = self._metadata(result.context_id, result.task_id, State.COMPLETED)
            return [self._final_event(metadata, content=_content(map(to_genai, join_texts(result.parts))))]
        events = await self.unsent_events(result)
        if result.state is State.COMPLETED:
            last = events.pop() if events else None
            return [*events, self._completed(result, last)]
        return [*events, self._asks(result) if result.state.waiting else self._ends(result)]

    async def unsent_events(self, task: Task) -> list[Event]:
        """What the task has made, as far as it has not been told yet. The turn goes on."""
        task_key = task.context_id, task.id
        return [event for each in task.artifacts if (event := await self._artifact(each, task_key))]

    async def unsent_events_of(self, stream: EventStream) -> list[Event]:
        """What there is of a stream that broke."""
        try:
            result = stream.result
        except BadResponse:
            return []
        return await self.unsent_events(result) if isinstance(result, Task) else []

    def _completed(self, task: Task, last: Event | None) -> Event:
        metadata = self._metadata(task.context_id, task.id, task.state)
        if last is None:
            # Some answer with words and no artifact; and who has nothing to say has ended all the same.
            message = task.status.message or _last_agent_message(task)
            return self._final_event(
                metadata, content=_content(map(to_genai, join_texts(message.parts if message else ())))
            )
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
                continue  # it says only that there is no answer yet
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
        """The event of an artifact, unless there is nothing new in it."""
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

    def error(self, text: str, lost: TaskLost | None = None) -> Event:
        """The end of a turn that did not come about. A task that is gone is not asked for again."""
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
    """What changes in a session's state: where the conversation is, and the task that waits for an answer."""
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
    """A call that stands for a question in plain words, so that ADK knows that somebody has to answer."""
    auth = task.state is State.AUTH_REQUIRED
    text = task.question or (_LOGIN if auth else _QUESTION)
    arguments = {"auth_required" if auth else "input_required": text}
    return types.FunctionCall(id=new_id(), name=ASKS_AUTH if auth else ASKS_INPUT, args=arguments)


def _last_agent_message(task: Task) -> Message | None:
    return task.history[-1] if task.history and task.history[-1].role is Role.AGENT else None
