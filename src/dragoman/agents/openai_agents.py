"""An agent of the OpenAI Agents SDK as an agent of ours."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.approval import Approval, approval_of
from dragoman.agents.memory import MOST, Memory
from dragoman.agents.paragraphs import Paragraphs
from dragoman.agents.part_text import media_of, text_of
from dragoman.agents.pause import Pause, Pending, call_text, pause_of
from dragoman.agents.tool_offers import offers_with_tools
from dragoman.engine.outputs import Replace
from dragoman.model.error import Failed, Rejected

if TYPE_CHECKING:
    from agents import Agent, RunConfig
    from agents.memory import Session
    from agents.result import RunResultStreaming

    from dragoman.agents.process.offer import ProgramSkill
    from dragoman.engine.context import Context
    from dragoman.model.part import Part

KEY = "dragoman/openai-agents"


class OpenAiRuns:
    """Runs an agent of the OpenAI Agents SDK: its text is streamed, what has an `output_type` is data.

    The messages of a conversation are kept in its state, at most `memory` bytes of them, or in the SDK's own sessions:
    `session` makes one from the conversation's id. Tools that need approval pause the task. `context` is the run's
    context object, or a function that makes it. Every message begins with this agent, whoever it was handed to
    before. Nothing is traced, whatever `run_config` says: traces would go to OpenAI.
    """

    def __init__(
        self,
        agent: Agent[Any],
        *,
        context: Any = None,
        session: Callable[[str], Session] | None = None,
        run_config: RunConfig | None = None,
        max_turns: int | None = 10,
        memory: int = MOST,
    ) -> None:
        self._agent = agent
        self._context = context
        self._session = session
        self._config = run_config
        self._max_turns = max_turns
        self._memory = memory
        self.name = agent.name.replace("/", "-")
        self.description = agent.handoff_description or ""

    def offers(self) -> tuple[ProgramSkill, ...]:
        """The agent, and its tools; those of MCP servers are not known before a run."""
        tools = [(tool.name, str(getattr(tool, "description", None) or "")) for tool in self._agent.tools]
        return offers_with_tools(self.name, self.description, tools)

    async def close(self) -> None:
        """Nothing is held open between runs."""

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Give the message, or the answer to a question, to the agent, and pass on what it says.

        Raises:
            Failed: the agent took too many turns.
            Rejected: a guardrail or the model refused the message.
        """
        from agents import AgentsException

        pause = pause_of(ctx.resume)
        if pause is not None and pause.open:
            yield pause.ask()
            return
        memory = Memory(ctx, KEY, self._memory)
        known = len(memory.messages) if pause is None else pause.held["known"]
        paragraphs, quiet = Paragraphs(ctx), False
        result = await self._begin(ctx, memory, pause)
        events = result.stream_events()
        try:
            async for event in events:
                if event.type == "agent_updated_stream_event":
                    # What it streams is the JSON of its output, which comes whole at the end.
                    quiet = event.new_agent.output_type not in (None, str)
                elif text := "" if quiet else _said(event, paragraphs):
                    yield text
            if result.interruptions:
                yield _pause(result, known).ask()
                return
            output = result.final_output
            if self._session is None:
                _remember(memory, result, known)
            if isinstance(output, str) and not paragraphs.ends_with(output):
                # A tool has given the answer.
                paragraphs.begin()
                yield paragraphs.add(output)
            elif output is not None and not isinstance(output, str):
                yield Replace(output)
        except AgentsException as error:
            public = _public(error)
            if public is None:
                raise
            ctx.log.info("an agent has stopped: %s", error)
            raise public from error
        finally:
            # Closing the events alone would wait for the end of the run.
            result.cancel()
            await cast("AsyncGenerator[Any, None]", events).aclose()
            if result.run_loop_task is not None:
                await asyncio.wait((result.run_loop_task,))

    async def _begin(self, ctx: Context, memory: Memory, pause: Pause | None) -> RunResultStreaming:
        from agents import RunConfig, RunContextWrapper, Runner, RunState

        context = self._context(ctx) if callable(self._context) else self._context
        context = await context if inspect.isawaitable(context) else context
        given: Any = [*memory.messages, {"role": "user", "content": _content(ctx.message.parts)}]
        if pause is not None:
            given = await RunState.from_json(
                self._agent, pause.held["state"], context_override=RunContextWrapper(context)
            )
            for item in given.get_interruptions():
                approval = approval_of(pause.answers.get(item.call_id)) or Approval(False)
                if approval.approved:
                    given.approve(item)
                else:
                    given.reject(item, rejection_message=approval.message)
        return Runner.run_streamed(
            self._agent,
            given,
            # A resumed run has its context already.
            context=context if pause is None else None,
            max_turns=self._max_turns,
            run_config=dataclasses.replace(self._config or RunConfig(), tracing_disabled=True),
            session=None if self._session is None else self._session(ctx.session_id),
        )


def _remember(memory: Memory, result: RunResultStreaming, known: int) -> None:
    if len(result.input) == known + 1:
        memory.add([*result.to_input_list()[known:]])
    else:
        # A handoff has put something else in the place of all that was said.
        memory.replace([[*result.to_input_list(mode="normalized")]])


def _public(error: Exception) -> Failed | Rejected | None:
    """What callers may read of an error; None when that is nothing."""
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
        place = part.url or f"data:{media};base64,{base64.b64encode(part.raw or b'').decode()}"
        if media.startswith("image/"):
            content.append({"type": "input_image", "image_url": place, "detail": "auto"})
        elif part.url is not None:
            content.append({"type": "input_file", "file_url": place})
        else:
            content.append({"type": "input_file", "file_data": place, "filename": part.filename or "file"})
    return content


def _said(event: Any, paragraphs: Paragraphs) -> str:
    if event.type != "raw_response_event":
        return ""
    if event.data.type == "response.output_text.delta":
        return paragraphs.add(event.data.delta)
    if event.data.type in ("response.output_item.added", "response.completed"):
        paragraphs.begin()
    return ""


def _pause(result: RunResultStreaming, known: int) -> Pause:
    pending = tuple(_pending(item) for item in result.interruptions)
    # The context is made anew for the run that goes on.
    state = result.to_state().to_json(context_serializer=lambda _: {})
    return Pause(pending, {"state": state, "known": known})


def _pending(item: Any) -> Pending:
    try:
        arguments: Any = json.loads(item.arguments or "{}")
    except ValueError:
        arguments = item.arguments
    shown = {"id": item.call_id, "tool": item.name, "arguments": arguments}
    return Pending(item.call_id, f"May I call {call_text(item.name, item.arguments or '')}?", shown, approval=True)
