"""Runs agents of the OpenAI Agents SDK as agents of Dragoman."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.bridge import PausingBridge, value_for
from dragoman.agents.pause import Approval, Pause, Pending, approval_of, call_text, load_state, save_state
from dragoman.agents.text import DEFAULT_HISTORY_BYTES, ConversationHistory, Paragraphs, media_of, text_of
from dragoman.engine.execute.outputs import Replace
from dragoman.model.error import ConfigError, Failed, Rejected

if TYPE_CHECKING:
    from agents import Agent, RunConfig
    from agents.memory import Session
    from agents.result import RunResultStreaming

    from dragoman.engine.execute.context import Context
    from dragoman.model.part import Part

KEY = "dragoman/openai-agents"
_IN_MEMORY = (
    "a session of the SDK is closed after every message: give it a file, as in SQLiteSession(id, 'sessions.db')"
)


class OpenAiRuns(PausingBridge):
    """Runs an agent of the OpenAI Agents SDK: its text is streamed, the output of an `output_type` is data.

    With output guardrails nothing is streamed: the answer is sent when they have passed.

    The messages of a conversation are stored in its state, at most `memory` bytes, or in a session of the SDK:
    `session` creates one from the conversation's id for every message, and it is closed afterwards. Tools that need
    approval pause the task. `context` is the run's context object, or a function that creates it; it is not stored.
    `max_turns` defaults to the SDK's own default. Every message starts with this agent, even after a handoff. Tracing
    is always disabled, whatever `run_config` says, because traces would be sent to OpenAI.

    Raises:
        ConfigError: `session` is `SQLiteSession` itself, whose sessions are kept in memory only.
    """

    def __init__(
        self,
        agent: Agent[Any],
        *,
        context: Any = None,
        session: Callable[[str], Session] | None = None,
        run_config: RunConfig | None = None,
        max_turns: int | None = None,
        memory: int = DEFAULT_HISTORY_BYTES,
    ) -> None:
        from agents import SQLiteSession

        if session is SQLiteSession:
            raise ConfigError(_IN_MEMORY)
        self._agent = agent
        self._context = context
        self._session = session
        self._config = run_config
        self._max_turns = max_turns
        self._memory = memory
        super().__init__(agent.name, agent.handoff_description or "")

    def tools(self) -> Iterable[tuple[str, str]]:
        """Return the agent's tools; those of MCP servers are not listed before a run."""
        return [(tool.name, str(getattr(tool, "description", None) or "")) for tool in self._agent.tools]

    async def turn(self, ctx: Context, pause: Pause | None) -> AsyncGenerator[Any, None]:
        """Run the agent on the message, or resume it with approvals.

        Raises:
            Failed: the agent took too many turns.
            Rejected: a guardrail or the model refused the message.
            ConfigError: `session` has created a session that is kept in memory only.
        """
        history = ConversationHistory(ctx, KEY, self._memory)
        saved = {"known": len(history.messages)} if pause is None else await load_state(ctx, pause.state)
        async with self._open_session(ctx) as session:
            result = await self._begin(ctx, history, pause, saved.get("state"), session)
            events = result.stream_events()
            try:
                async with aclosing(self._outputs(ctx, result, events, history, saved["known"])) as outputs:
                    async for output in outputs:
                        yield output
            finally:
                # Closing only the event stream would wait for the end of the run.
                result.cancel()
                await cast("AsyncGenerator[Any, None]", events).aclose()
                if result.run_loop_task is not None:
                    await asyncio.wait((result.run_loop_task,))

    async def _outputs(
        self, ctx: Context, result: RunResultStreaming, events: Any, history: ConversationHistory, history_length: int
    ) -> AsyncGenerator[Any, None]:
        from agents import AgentsException

        paragraphs, quiet = Paragraphs(ctx), self._is_quiet(result.current_agent)
        try:
            async for event in events:
                if event.type == "agent_updated_stream_event":
                    quiet = self._is_quiet(event.new_agent)
                elif text := "" if quiet else _text_delta(event, paragraphs):
                    yield text
            if result.interruptions:
                yield (await _pause(ctx, result, history_length)).ask()
                return
            output = result.final_output
            if self._session is None:
                _remember(history, result, history_length)
            if isinstance(output, str) and not paragraphs.last_message_equals(output):
                # The answer is a tool's output, or was not streamed.
                paragraphs.begin()
                yield paragraphs.add(output)
            elif output is not None and not isinstance(output, str):
                yield Replace(output)
        except AgentsException as error:
            public = _public(error)
            if public is None:
                raise
            ctx.log.info("an agent has stopped: %s", error)
            if isinstance(public, Rejected) and paragraphs.text != paragraphs.before:
                # Input guardrails run in parallel with the model, which may have streamed text already.
                yield Replace(paragraphs.before)
            raise public from error

    def _is_quiet(self, agent: Any) -> bool:
        """Return True if the agent's stream is not for callers: its output is JSON, or a guardrail may refuse it."""
        rails = [*agent.output_guardrails, *((self._config and self._config.output_guardrails) or ())]
        return bool(rails) or agent.output_type not in (None, str)

    @asynccontextmanager
    async def _open_session(self, ctx: Context) -> AsyncGenerator[Session | None, None]:
        session = None if self._session is None else self._session(ctx.session_id)
        try:
            if str(getattr(session, "db_path", "")) == ":memory:":
                raise ConfigError(_IN_MEMORY)
            yield session
        finally:
            close = getattr(session, "close", None)
            closed = close() if close is not None else None
            if inspect.isawaitable(closed):
                await closed

    async def _begin(
        self, ctx: Context, history: ConversationHistory, pause: Pause | None, state: Any, session: Session | None
    ) -> RunResultStreaming:
        from agents import RunConfig, RunContextWrapper, Runner, RunState
        from agents.run import DEFAULT_MAX_TURNS

        context = await value_for(ctx, self._context)
        run_input: Any = [*history.messages, {"role": "user", "content": _content(ctx.message.parts)}]
        if pause is not None:
            run_input = await RunState.from_json(self._agent, state, context_override=RunContextWrapper(context))
            for item in run_input.get_interruptions():
                approval = approval_of(pause.answers.get(item.call_id)) or Approval(False)
                if approval.approved:
                    run_input.approve(item)
                else:
                    run_input.reject(item, rejection_message=approval.message)
        return Runner.run_streamed(
            self._agent,
            run_input,
            # A resumed run already has its context.
            context=context if pause is None else None,
            max_turns=DEFAULT_MAX_TURNS if self._max_turns is None else self._max_turns,
            run_config=dataclasses.replace(self._config or RunConfig(), tracing_disabled=True),
            session=session,
        )


def _remember(history: ConversationHistory, result: RunResultStreaming, history_length: int) -> None:
    if len(result.input) == history_length + 1:
        history.add([*result.to_input_list()[history_length:]])
    else:
        # A handoff filter has replaced the history.
        history.replace([[*result.to_input_list(mode="normalized")]])


def _public(error: Exception) -> Failed | Rejected | None:
    """Return the error for callers; None if they may not see it."""
    from agents import exceptions

    if isinstance(error, exceptions.MaxTurnsExceeded):
        return Failed("the agent stopped: it took too many turns")
    if isinstance(error, exceptions.ModelRefusalError):
        return Rejected(error.refusal)
    tripwires = (
        exceptions.InputGuardrailTripwireTriggered,
        exceptions.OutputGuardrailTripwireTriggered,
        exceptions.ToolInputGuardrailTripwireTriggered,
        exceptions.ToolOutputGuardrailTripwireTriggered,
    )
    return Rejected("a guardrail of the agent refused this") if isinstance(error, tripwires) else None


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        text = text_of(part)
        if text is not None:
            content.append({"type": "input_text", "text": text})
            continue
        media = media_of(part)
        url = part.url or f"data:{media};base64,{base64.b64encode(part.raw or b'').decode()}"
        if media.startswith("image/"):
            content.append({"type": "input_image", "image_url": url, "detail": "auto"})
        elif part.url is not None:
            content.append({"type": "input_file", "file_url": url})
        else:
            content.append({"type": "input_file", "file_data": url, "filename": part.filename or "file"})
    return content


def _text_delta(event: Any, paragraphs: Paragraphs) -> str:
    if event.type != "raw_response_event":
        return ""
    if event.data.type == "response.output_text.delta":
        return paragraphs.add(event.data.delta)
    if event.data.type in ("response.output_item.added", "response.completed"):
        paragraphs.begin()
    return ""


async def _pause(ctx: Context, result: RunResultStreaming, history_length: int) -> Pause:
    pending = tuple(_pending(item) for item in result.interruptions)
    state = _without_context(result.to_state().to_json(context_serializer=lambda _: {}))
    return Pause(pending, await save_state(ctx, {"state": state, "known": history_length}))


def _without_context(state: Any) -> Any:
    """Remove the run's context from the state, also from the nested states of agents that are tools.

    It is created again when the run resumes, and may hold secrets or values without a JSON form.
    """
    if isinstance(state, list):
        return [_without_context(each) for each in cast("list[Any]", state)]
    if not isinstance(state, dict):
        return state
    fields = cast("dict[str, Any]", state)
    if "context" in fields and "context_meta" in fields:
        nothing: dict[str, Any] = {}
        fields = {**fields, "context": nothing}
    return {key: _without_context(value) for key, value in fields.items()}


def _pending(item: Any) -> Pending:
    try:
        arguments: Any = json.loads(item.arguments or "{}")
    except ValueError:
        arguments = item.arguments
    details = {"id": item.call_id, "tool": item.name, "arguments": arguments}
    return Pending(item.call_id, f"May I call {call_text(item.name, item.arguments or '')}?", details, approval=True)
