"""Runs Pydantic AI agents as agents of Dragoman."""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

from dragoman.agents.bridge import PausingBridge, value_for
from dragoman.agents.pause import Pause, Pending, approval_of, call_text, load_state, save_state
from dragoman.agents.text import (
    DEFAULT_HISTORY_BYTES,
    PARAGRAPH_BREAK,
    ConversationHistory,
    Paragraphs,
    media_of,
    text_of,
)
from dragoman.engine.execute.outputs import Replace
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.model.part import Part

if TYPE_CHECKING:
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, UserContent

    from dragoman.engine.execute.context import Context

KEY = "dragoman/pydantic-ai"


class PydanticAiRuns(PausingBridge):
    """Runs a Pydantic AI agent: its text is streamed, its structured output is data.

    Text that its output validators reject is retracted. Nothing is streamed if the output is never text. The messages
    of a conversation are stored in its state, at most `memory` bytes. Tools that need approval, or run elsewhere, pause
    the task: the agent's `output_type` must allow `DeferredToolRequests`. `deps` are the agent's dependencies, or a
    function that creates them from the run's context.

    Raises:
        ConfigError: a tool needs approval or runs elsewhere, and the `output_type` does not allow that.
    """

    def __init__(self, agent: Agent[Any, Any], *, deps: Any = None, memory: int = DEFAULT_HISTORY_BYTES) -> None:
        self._agent = agent
        self._deps = deps
        self._memory = memory
        check_deferred_tools(agent)
        description: object = getattr(agent, "description", None)
        super().__init__(agent.name or "agent", description if isinstance(description, str) else "")

    def tools(self) -> Iterable[tuple[str, str]]:
        """Return the agent's function tools; those of MCP servers are not listed before a run."""
        tools: dict[str, Any] = {}
        for toolset in self._agent.toolsets:
            tools.update(getattr(toolset, "tools", {}))
        return [(name, getattr(tool, "description", None) or "") for name, tool in tools.items()]

    async def turn(self, ctx: Context, pause: Pause | None) -> AsyncGenerator[Any, None]:
        """Run the agent on the message, or resume it with the results of deferred tools.

        Raises:
            Failed: the agent exceeded its usage limits, or no longer waits for this answer.
            Rejected: the model's provider refused the content.
        """
        from pydantic_ai import DeferredToolRequests
        from pydantic_ai.capabilities import ReinjectSystemPrompt
        from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior, UsageLimitExceeded
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        history = ConversationHistory(ctx, KEY, self._memory)
        earlier: list[Any] = [] if pause is None else await load_state(ctx, pause.state)
        text_stream = PydanticTextStream(ctx, quiet=not allows_text(self._agent.output_type))
        result: Any = None
        try:
            async with self._agent.run_stream_events(
                _prompt(ctx.message.parts) if pause is None else None,
                message_history=ModelMessagesTypeAdapter.validate_python([*history.messages, *earlier]),
                deferred_tool_results=None if pause is None else _results(pause),
                deps=await value_for(ctx, self._deps),
                # The system prompt is in the oldest turn, which may have been dropped.
                capabilities=[ReinjectSystemPrompt()],
            ) as events:
                async for event in events:
                    if text := text_stream.feed(event):
                        yield text
                result = events.result
        except UsageLimitExceeded as error:
            ctx.log.warning("an agent was stopped: %s", error)
            raise Failed("the agent stopped: it has reached its usage limit for one message") from error
        except ContentFilterError as error:
            raise Rejected("the model's provider refused the content") from error
        except UnexpectedModelBehavior:
            # No answer was accepted, so the rejected text is retracted.
            if not text_stream.matches(text_stream.settled):
                yield Replace(text_stream.settled)
            raise
        new_messages = result.new_messages()
        turn_messages = [*earlier, *ModelMessagesTypeAdapter.dump_python(_without_metadata(new_messages), mode="json")]
        messages = [*ModelMessagesTypeAdapter.validate_python(earlier), *new_messages]
        if isinstance(result.output, DeferredToolRequests):
            text = PARAGRAPH_BREAK.join(accepted_texts(messages))
            if not text_stream.matches(text):
                yield Replace(text)
            yield _pause(result.output, await save_state(ctx, turn_messages)).ask()
            return
        history.add(turn_messages)
        output = _final(result.output, messages, text_stream)
        if output is not None:
            yield output


def check_deferred_tools(agent: Agent[Any, Any]) -> None:
    """Check that an agent may pause for its tools. What only its code decides, such as `CallDeferred`, is not known.

    Raises:
        ConfigError: a tool is known to need approval, or to run elsewhere, and the `output_type` does not allow that.
    """
    from pydantic_ai import DeferredToolRequests
    from pydantic_ai.capabilities import AbstractCapability

    if _allows(agent.output_type, lambda type_: type_ is DeferredToolRequests):
        return
    own = AbstractCapability.handle_deferred_tool_calls
    if any(type(each).handle_deferred_tool_calls is not own for each in agent.root_capability.capabilities):
        return  # it may decide by itself
    reason = next(filter(None, map(_deferral, agent.toolsets)), None)
    if reason is not None:
        raise ConfigError(
            f"{reason}, and the agent's output_type has no DeferredToolRequests, so every such call would fail: write "
            "output_type=[str, DeferredToolRequests] (from pydantic_ai) instead of str, or add it to the types you have"
        )


def _deferral(toolset: Any) -> str | None:
    """Say which tool of a toolset needs approval or runs elsewhere; None where no tool is known to."""
    from pydantic_ai.toolsets import ApprovalRequiredToolset, ExternalToolset

    if isinstance(toolset, ExternalToolset):
        names = [each.name for each in toolset.tool_defs]
        return f"the tool {names[0]!r} runs elsewhere" if names else None
    if isinstance(toolset, ApprovalRequiredToolset):
        return "the tools of an ApprovalRequiredToolset need approval"
    for name, tool in getattr(toolset, "tools", {}).items():
        if getattr(tool, "requires_approval", False):
            return f"the tool {name!r} needs approval"
    inner: Sequence[Any] = (*filter(None, (getattr(toolset, "wrapped", None),)), *getattr(toolset, "toolsets", ()))
    return next(filter(None, map(_deferral, inner)), None)


def _final(output: Any, messages: list[ModelMessage], text_stream: PydanticTextStream) -> Replace | None:
    """Return the output, unless it equals the streamed text."""
    if not isinstance(output, str):
        return None if output is None else Replace(_output_value(output))
    text = PARAGRAPH_BREAK.join(answer_texts(messages, output))
    return None if text_stream.matches(text) else Replace(text)


def _without_metadata(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Remove the metadata of tool results: it may be any object, and is not sent to models."""
    from pydantic_ai.messages import ToolReturnPart

    return [
        replace(
            message,
            parts=[
                replace(part, metadata=None) if isinstance(part, ToolReturnPart) else part for part in message.parts
            ],
        )
        if message.kind == "request"
        else message
        for message in messages
    ]


def _prompt(parts: Sequence[Part]) -> list[UserContent]:
    from pydantic_ai import messages

    kinds = {"image": messages.ImageUrl, "audio": messages.AudioUrl, "video": messages.VideoUrl}
    prompt: list[UserContent] = []
    for part in parts:
        if part.raw is not None:
            prompt.append(messages.BinaryContent(part.raw, media_type=media_of(part), identifier=part.filename))
        elif part.url is not None:
            kind = kinds.get(media_of(part).split("/")[0], messages.DocumentUrl)
            prompt.append(kind(part.url, media_type=part.media_type))
        else:
            prompt.append(text_of(part) or "")
    return prompt


def _pause(requests: DeferredToolRequests, state_name: str) -> Pause:
    approvals = [_pending(call, f"May I call {_call(call)}?", approval=True) for call in requests.approvals]
    calls = [_pending(call, f"What is the result of {_call(call)}?", approval=False) for call in requests.calls]
    return Pause((*approvals, *calls), state_name)


def _pending(call: ToolCallPart, question: str, *, approval: bool) -> Pending:
    details = {"id": call.tool_call_id, "tool": call.tool_name, "arguments": call.args_as_dict()}
    return Pending(call.tool_call_id, question, details, approval)


def _call(call: ToolCallPart) -> str:
    return call_text(call.tool_name, call.args_as_json_str())


def _results(pause: Pause) -> DeferredToolResults:
    from pydantic_ai import DeferredToolResults, ToolDenied

    results = DeferredToolResults()
    for one in pause.pending:
        answer = pause.answers[one.id]
        approval = approval_of(answer) if one.approval else None
        if approval is None:
            results.calls[one.id] = answer
        else:
            denied = ToolDenied(approval.message) if approval.message else False
            results.approvals[one.id] = approval.approved or denied
    return results


def _output_value(output: Any) -> Any:
    from pydantic_ai.messages import BinaryContent

    if isinstance(output, BinaryContent):
        return Part(raw=output.data, media_type=output.media_type)
    return output


# -- text of the answer ------------------------------------------------------------------------------------------------

# Part kinds that ask the model to retry, in current and earlier versions.
_RETRIES = ("retry-feedback", "retry-prompt")


class PydanticTextStream:
    """Merges the texts of a run into one stream. With `quiet` nothing is streamed."""

    def __init__(self, ctx: Context, *, quiet: bool) -> None:
        self._paragraphs = Paragraphs(ctx)
        self._settled = self._paragraphs.before
        self._quiet = quiet
        self._unsettled: list[str] = []

    def feed(self, event: object) -> str:
        """Process the next event and return the text to send now."""
        from pydantic_ai.messages import (
            FunctionToolCallEvent,
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
        )

        text = ""
        if isinstance(event, FunctionToolCallEvent):
            self._settle()
        elif isinstance(event, PartStartEvent):
            if event.index == 0:
                self._unsettled.clear()
            if isinstance(event.part, TextPart):
                # Some models split one text into several parts.
                if event.previous_part_kind != "text":
                    self._paragraphs.begin()
                text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if self._quiet or not text:
            return ""
        self._unsettled.append(text)
        return self._paragraphs.add(text)

    def _settle(self) -> None:
        """Accept the text before a tool call: only answers are validated."""
        texts = [self._settled, "".join(self._unsettled)]
        self._settled = PARAGRAPH_BREAK.join(text for text in texts if text)
        self._unsettled.clear()

    @property
    def settled(self) -> str:
        """The accepted text before tool calls and pauses: all that remains if the agent finds no answer."""
        return self._settled

    def matches(self, text: str) -> bool:
        """Return True if the text sent to callers equals this one, or nothing is streamed."""
        return self._quiet or self._paragraphs.answer_equals(text)


def allows_text(output_type: Any) -> bool:
    """Return True if the output may be text: otherwise all text is JSON, or a step towards it."""
    from pydantic_ai import TextOutput

    return _allows(output_type, lambda type_: type_ is str or isinstance(type_, TextOutput))


def _allows(output_type: Any, fits: Callable[[Any], bool]) -> bool:
    """Return True if one of the output types fits."""
    if isinstance(output_type, list | tuple):
        return any(_allows(each, fits) for each in cast("Sequence[Any]", output_type))
    if get_origin(output_type) in (Union, types.UnionType):
        return any(_allows(each, fits) for each in get_args(output_type))
    alias: Any = getattr(output_type, "__value__", None)
    return _allows(alias, fits) if alias is not None else fits(output_type)


def accepted_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the texts of the agent, without answers that its validators have rejected."""
    texts: list[str] = []
    for index, message in enumerate(messages):
        if message.kind == "response" and not _is_refused(messages[index + 1 :]):
            texts += _texts(message)
    return texts


def answer_texts(messages: Sequence[ModelMessage], output: str) -> list[str]:
    """Return the accepted texts with the output at the end, which was made from the last text or from a call."""
    texts = accepted_texts(messages)
    last = next(message for message in reversed(messages) if message.kind == "response")
    return [*(texts[:-1] if _texts(last) else texts), output]


def _texts(response: ModelResponse) -> list[str]:
    grouped = groupby(response.parts, key=lambda part: part.part_kind)
    return ["".join(cast("Any", part).content for part in parts) for kind, parts in grouped if kind == "text"]


def _is_refused(after: Sequence[ModelMessage]) -> bool:
    # A retry that names no tool concerns the answer itself.
    parts = cast("Sequence[Any]", after[0].parts if after else ())
    return any(part.part_kind in _RETRIES and not getattr(part, "tool_name", None) for part in parts)
