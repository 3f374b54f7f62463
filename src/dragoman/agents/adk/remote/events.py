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
    state_key,
    with_texts_joined,
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

    from dragoman.agents.adk.remote.call import Gone
    from dragoman.client.client import EventStream
    from dragoman.client.event import Event as Told

_LONGEST_NAME = 200
# A colon would put the file among those of the user instead of those of the session.
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f:/\\]+")


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with texts that follow each other as one: a stream of a thousand chunks is one text."""
    return tuple(part for part in with_texts_joined(parts, "") if part.text != "")


def news(before: Sequence[Part], now: Sequence[Part]) -> tuple[Part, ...]:
    """What `now` says that `before` did not; all of it when it says something else. Both are joined."""
    for at, known in enumerate(before):
        if at >= len(now):
            return tuple(now)
        if now[at] == known:
            continue
        grown = at == len(before) - 1 and is_plain(known) and is_plain(now[at])
        if grown and (now[at].text or "").startswith(known.text or ""):
            return (Part(text=(now[at].text or "")[len(known.text or "") :]), *now[at + 1 :])
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
        self._known: dict[str, tuple[Part, ...]] = {}
        if before is not None:
            self._known = {artifact.artifact_id: joined(artifact.parts) for artifact in before.artifacts}
        self._begun = set(self._known)
        self._told: set[str] = set()
        # The chunks of an artifact and what comes of them are one event to whoever shows them.
        self._ids: dict[str, str] = {}
        self._unshown: dict[str, tuple[Part, ...]] = {}
        self._done: str | None = None
        # Each artifact by itself: to put the whole task together whenever one is done would take ever longer.
        self._written: dict[str, Folding] = {}
        self._place: tuple[str, str] | None = None

    # -- on the way ----------------------------------------------------------------------------------------------------

    async def take(self, told: Told) -> list[Event]:
        """What there is to show after the next event of a stream."""
        raw = told.raw
        if isinstance(raw, ArtifactUpdate):
            return await self._piece(told, raw)
        if isinstance(raw, Task):
            # The artifacts as they are, whatever was told of them before.
            self._written = {each.artifact_id: _writing((each,)) for each in raw.artifacts}
        note = self._note(told)
        if not note:
            return []
        return [self._event(_content([types.Part(text=note, thought=True)]), partial=True)]

    async def _piece(self, told: Told, update: ArtifactUpdate) -> list[Event]:
        key = update.artifact.artifact_id
        chunk = self._chunk(told, update)
        self._begun.add(key)
        self._write(update)
        events = [self._event(_content(chunk), id=self._id(key), partial=True)] if chunk else []
        if update.last_chunk:
            done, self._done = self._done, key
            # Some say of every chunk that it is the last. It is, when another artifact is done.
            if done is not None and done != key and (written := self._written.pop(done, None)) is not None:
                finished = written.task().artifacts
                events += [event for each in finished if (event := await self._artifact(each, self._where(told)))]
        return events

    def _write(self, update: ArtifactUpdate) -> None:
        key = update.artifact.artifact_id
        if key not in self._written:
            # What is written on after its event has been told goes on from there.
            told = self._known.get(key)
            self._written[key] = _writing((Artifact(key, told),) if told and key in self._told else ())
        self._written[key].apply(update)

    def _where(self, told: Told) -> tuple[str, str]:
        """The context and the task. Some events do not name their context, so it is looked up, once."""
        if self._place is None:
            task = told.task
            assert task is not None
            self._place = task.context_id, task.id
        return self._place

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
        events = await self.unsent(result)
        if result.state is State.COMPLETED:
            last = events.pop() if events else None
            return [*events, self._completed(result, last)]
        return [*events, self._asks(result) if result.state.waiting else self._ends(result)]

    async def unsent(self, task: Task) -> list[Event]:
        """What the task has made, as far as it has not been told yet. The turn goes on."""
        where = task.context_id, task.id
        return [event for each in task.artifacts if (event := await self._artifact(each, where))]

    async def unsent_of(self, stream: EventStream) -> list[Event]:
        """What there is of a stream that broke."""
        try:
            result = stream.result
        except BadResponse:
            return []
        return await self.unsent(result) if isinstance(result, Task) else []

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

    async def _artifact(self, artifact: Artifact, where: tuple[str, str]) -> Event | None:
        """The event of an artifact, unless there is nothing new in it."""
        key = artifact.artifact_id
        parts = joined(artifact.parts)
        fresh = news(self._known.get(key, ()), parts)
        if not fresh:
            return None
        self._known[key] = parts
        self._told.add(key)
        event = self._event(_content(map(to_genai, fresh)), id=self._ids.pop(key, ""))
        event.custom_metadata = self._metadata(*where, State.WORKING)
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

    def error(self, text: str, gone: Gone | None = None) -> Event:
        """The end of a turn that did not come about. A task that is gone is not asked for again."""
        if gone is None:
            return self._event(None, error_code=ERROR, error_message=text, turn_complete=True)
        metadata = self._metadata(gone.context_id, gone.task_id, State.FAILED)
        return self._last(metadata, error_code=ERROR, error_message=text)

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


def _writing(artifacts: tuple[Artifact, ...]) -> Folding:
    return Folding(Task("", "", TaskStatus(State.WORKING), artifacts=artifacts))


def _question(task: Task) -> types.FunctionCall:
    """A call that stands for a question in plain words, so that ADK knows that somebody has to answer."""
    auth = task.state is State.AUTH_REQUIRED
    text = task.question or (_LOGIN if auth else _QUESTION)
    arguments = {"auth_required" if auth else "input_required": text}
    return types.FunctionCall(id=new_id(), name=ASKS_AUTH if auth else ASKS_INPUT, args=arguments)


def _last_words(task: Task) -> Message | None:
    return task.history[-1] if task.history and task.history[-1].role is Role.AGENT else None
