"""One run of an ADK agent: converts its events to outputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from google.genai import types

from dragoman.agents.adk import credential
from dragoman.agents.adk.calls import CREDENTIAL, PendingCall
from dragoman.agents.adk.offers import children_of
from dragoman.agents.adk.parts import TYPES, from_genai
from dragoman.agents.adk.remote.message import STATE
from dragoman.agents.adk.text_stream import AdkTextStream, Output, Speaker
from dragoman.engine.execute.outputs import json_of
from dragoman.model.part import Part
from dragoman.model.state import State

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.runners import Runner
    from google.adk.sessions.session import Session

    from dragoman.engine.execute.context import Context


# Finish reasons of models: such an error is final, even if other events follow.
_MODEL_REASONS = {str(reason.value) for kind in (types.FinishReason, types.BlockedReason) for reason in kind}


class _Error:
    """The error that an event reports. Exceptions that ADK raises are not events, and are handled by the caller."""

    def __init__(self, event: Event, path: str) -> None:
        code: Any = event.error_code
        reason = str(getattr(code, "value", code) or "")
        self.is_final = reason in _MODEL_REASONS
        # ADK 2 reports the text of an exception in a workflow step before it is caught or not. It is not meant for
        # callers, and cannot be distinguished from an error that a step yields.
        is_exception = "/" in path and reason.endswith(("Error", "Exception"))
        self.text = reason if is_exception else event.error_message or reason


class AdkTurn:
    """Converts the events of one run, and collects its pending calls, its error, and whether it escalated.

    `details` are the parts next to the questions of remote agents, and `event_count` is the number of events.
    """

    def __init__(
        self, runner: Runner, session: Session, ctx: Context, *, show_tools: bool, show_thoughts: bool
    ) -> None:
        self._runner = runner
        self._session = session
        self._ctx = ctx
        self._show_tools = show_tools
        self._show_thoughts = show_thoughts
        self._text_stream = AdkTextStream(_text_before_pause(ctx))
        self._errors: dict[Hashable, _Error] = {}
        self._sent: set[str] = set()
        # Agents without a model, such as remote agents, send their thoughts only as partial events.
        self._without_model = frozenset(_names_without_model(runner.agent)) if show_thoughts else frozenset[str]()
        self._thoughts: dict[Speaker, str] = {}
        self.calls: dict[str, PendingCall] = {}
        self.details: list[Part] = []
        self.event_count = 0
        self.escalated = False

    @property
    def error(self) -> str | None:
        """The first error that the agent has not recovered from."""
        return next((error.text for error in self._errors.values()), None)

    async def outputs_of(self, event: Event) -> list[Output]:
        """Return the outputs of an event that belong to the answer."""
        speaker = Speaker(event.author, event.branch or "")
        parts = _parts(event)
        self.event_count += 1
        if event.partial:
            if speaker.author in self._without_model:
                for part in parts:
                    await self._report_thought(speaker, part, partial=True)
            text = "".join(part.text for part in parts if part.text and not part.thought)
            return list(self._text_stream.add_chunk(speaker, text))
        values = [value for part in parts if (value := await self._value(event, speaker, part)) is not None]
        if event.long_running_tool_ids:
            values = self._without_question(event, values)
        ends = bool(event.error_code or event.error_message or _tool_parts(event))
        outputs: list[Output] = []
        if values or ends:
            outputs = list(self._text_stream.add_message(speaker, values, ends=ends))
        elif _is_blank(event):
            outputs = list(self._text_stream.retract(speaker))
        self._note(event, has_parts=bool(parts))
        return [*outputs, *self._result(event, speaker)]

    async def publish(self, event: Event) -> None:
        """Send the tool calls and artifacts of an event."""
        if event.partial:
            return
        if self._show_tools:
            await self._publish_tools(event)
        await self._publish_artifacts(event)

    def finish(self) -> list[Output]:
        """Return the outputs that are left when there are no more events."""
        return list(self._text_stream.finish())

    async def _value(self, event: Event, speaker: Speaker, part: types.Part) -> str | Part | None:
        call, response = part.function_call, part.function_response
        if call is not None and call.id and call.id in (event.long_running_tool_ids or ()):
            args: dict[str, Any] = json_of(call.args or {})
            public_args = credential.public_args(args) if call.name == CREDENTIAL else args
            self.calls[call.id] = PendingCall(call.id, call.name or "", public_args)
        elif response is not None and response.id in self.calls:
            pending = self.calls[response.id]
            self.calls[response.id] = PendingCall(
                pending.id, pending.name, pending.args, json_of(response.response or {}), pending.remote_question
            )
        elif _is_tool(part):
            pass  # sent by `_publish_tools`
        elif part.thought:
            await self._report_thought(speaker, part)
        elif part.text is not None:
            return part.text or None
        else:
            return from_genai(part)
        return None

    async def _report_thought(self, speaker: Speaker, part: types.Part, *, partial: bool = False) -> None:
        if not self._show_thoughts or not part.thought or not part.text:
            return
        if partial:
            self._thoughts[speaker] = self._thoughts.get(speaker, "") + part.text
        elif self._thoughts.pop(speaker, "").endswith(part.text):
            return
        await self._ctx.progress(part.text)

    def _without_question(self, event: Event, values: Sequence[str | Part]) -> list[str | Part]:
        """Remove a remote agent's question from the answer: it becomes the question of the task."""
        calls = [self.calls[key] for key in event.long_running_tool_ids or () if key in self.calls]
        if _is_waiting(event):
            # The whole event is the remote agent's question.
            words = "".join(value for value in values if isinstance(value, str))
            self.details.extend(value for value in values if isinstance(value, Part))
            if len(calls) == 1:
                (call,) = calls
                self.calls[call.id] = PendingCall(call.id, call.name, call.args, call.response, words)
            return []
        questions = [call.question for call in calls if call.kind == "question"]
        return [value for value in values if isinstance(value, Part) or not any(value in each for each in questions)]

    def _note(self, event: Event, *, has_parts: bool) -> None:
        self.escalated = self.escalated or bool(event.actions.escalate)
        path: str = getattr(getattr(event, "node_info", None), "path", "")
        where: Hashable = path or (event.author, event.branch)
        if event.error_code or event.error_message:
            self._errors.setdefault(where, _Error(event, path))
        elif has_parts or getattr(event, "output", None) is not None:
            # A retry has succeeded, or an enclosing step has caught the error.
            over = [each for each, error in self._errors.items() if not error.is_final and _is_within(each, where)]
            for each in over:
                del self._errors[each]

    def _result(self, event: Event, speaker: Speaker) -> list[Output]:
        """Return the output of a workflow; the outputs of its inner steps are not public."""
        result = getattr(event, "output", None)
        node: Any = getattr(event, "node_info", None)
        if result is None or node is None or node.message_as_output:
            return []
        if not any("/" not in path for path in node.output_for or (node.path,)):
            return []
        if isinstance(result, str):
            return [] if self._text_stream.ends_with(result) else list(self._text_stream.add_message(speaker, [result]))
        return list(self._text_stream.add_message(speaker, [Part(data=json_of(result))]))

    async def _publish_tools(self, event: Event) -> None:
        for part in _tool_parts(event):
            call = part.function_call or part.function_response
            if call is not None and call.id in self.calls:
                continue  # sent when the task pauses
            tool_part = from_genai(part)
            if tool_part is not None:
                await self._ctx.artifact(tool_part, name="tool", metadata={"adk_author": event.author})

    async def _publish_artifacts(self, event: Event) -> None:
        service = self._runner.artifact_service
        inline_blobs = [blob.data for part in _parts(event) if (blob := part.inline_data) is not None]
        for name, version in (event.actions.artifact_delta or {}).items():
            key = f"{name}@{version}"
            if service is None or key in self._sent:
                continue
            self._sent.add(key)
            loaded = await service.load_artifact(
                app_name=self._runner.app_name,
                user_id=self._session.user_id,
                session_id=self._session.id,
                filename=name,
                version=version,
            )
            part = None if loaded is None else from_genai(loaded)
            # The event itself may contain the file, too.
            if part is not None and (part.raw is None or part.raw not in inline_blobs):
                await self._ctx.artifact(_named(part, name), name=name, id=key)


def _is_within(inner: Hashable, outer: Hashable) -> bool:
    return inner == outer or (isinstance(inner, str) and isinstance(outer, str) and inner.startswith(f"{outer}/"))


def _parts(event: Event) -> list[types.Part]:
    return (event.content.parts if event.content is not None else None) or []


def _tool_parts(event: Event) -> list[types.Part]:
    return [part for part in _parts(event) if _is_tool(part)]


def _is_tool(part: types.Part) -> bool:
    return any(getattr(part, kind, None) is not None for kind in TYPES)


def _is_blank(event: Event) -> bool:
    """Return True if the event has only empty text: a callback has removed it."""
    return event.content is not None and all(
        part.text == "" and part.thought_signature is None and not part.thought for part in _parts(event)
    )


def _is_waiting(event: Event) -> bool:
    """Return True for the question of a remote agent."""
    return (event.custom_metadata or {}).get(STATE) in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


def _names_without_model(agent: Any) -> Iterator[str]:
    if not hasattr(agent, "instruction"):
        yield str(agent.name)
    for child in children_of(agent):
        yield from _names_without_model(child)


def _named(part: Part, name: str) -> Part:
    if part.filename is not None or part.kind not in ("raw", "url"):
        return part
    return Part(raw=part.raw, url=part.url, filename=name, media_type=part.media_type, metadata=part.metadata)


def _text_before_pause(ctx: Context) -> str:
    """Return the text of the answer before the pause, which this run continues."""
    if ctx.resume is None:
        return ""
    for artifact in ctx.artifacts:
        name, is_text = artifact.name or "", all(part.kind == "text" and not part.media_type for part in artifact.parts)
        # A file may have the same name, but its artifact id has a version.
        is_answer = artifact.artifact_id == name or artifact.artifact_id.startswith(f"{name}-")
        if is_text and is_answer and name.endswith("-result"):
            return artifact.text
    return ""
