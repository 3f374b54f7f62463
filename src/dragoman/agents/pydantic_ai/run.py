"""A Pydantic AI agent as an agent of ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dragoman.agents.bridge import value_for
from dragoman.agents.offers import offers_with_tools
from dragoman.agents.pause import Pause, Pending, approval_of, call_text, keep, kept, pause_of
from dragoman.agents.pydantic_ai.speech import PydanticSpeech, accepted_texts, answer_texts, speaks_text
from dragoman.agents.text import APART, MOST, Memory, media_of, text_of
from dragoman.engine.execute.outputs import Replace
from dragoman.model.error import Failed, Rejected
from dragoman.model.part import Part

if TYPE_CHECKING:
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
    from pydantic_ai.messages import ModelMessage, ToolCallPart, UserContent

    from dragoman.agents.offers import NamedSkill
    from dragoman.engine.execute.context import Context

KEY = "dragoman/pydantic-ai"


class PydanticAiRuns:
    """Runs a Pydantic AI agent: its text is streamed, its structured output is data.

    A text that its validators refuse is taken back. Of an agent whose output is never text, nothing is streamed.
    The messages of a conversation are kept in its state, at most `memory` bytes of them. Tools that need approval,
    or are done elsewhere, pause the task: the agent's `output_type` must allow for `DeferredToolRequests`. `deps`
    are the agent's dependencies, or a function that makes them from the run's context.
    """

    def __init__(self, agent: Agent[Any, Any], *, deps: Any = None, memory: int = MOST) -> None:
        self._agent = agent
        self._deps = deps
        self._memory = memory
        self.name = (agent.name or "agent").replace("/", "-")
        said: object = getattr(agent, "description", None)
        self.description = said if isinstance(said, str) else ""

    def offers(self) -> tuple[NamedSkill, ...]:
        """The agent, and its functions; what servers behind it offer is not known before a run."""
        found: dict[str, Any] = {}
        for toolset in self._agent.toolsets:
            found.update(getattr(toolset, "tools", {}))
        tools = [(name, getattr(tool, "description", None) or "") for name, tool in found.items()]
        return offers_with_tools(self.name, self.description, tools)

    async def close(self) -> None:
        """Nothing is held open between runs."""

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Give the message, or the answer to a question, to the agent, and pass on what it says.

        Raises:
            Failed: the agent used more than its limits allow.
            Rejected: the model's provider refused the content.
        """
        from pydantic_ai import DeferredToolRequests
        from pydantic_ai.capabilities import ReinjectSystemPrompt
        from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior, UsageLimitExceeded
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        pause = pause_of(ctx.resume)
        if pause is not None and pause.open:
            yield pause.ask()
            return
        memory = Memory(ctx, KEY, self._memory)
        begun: list[Any] = [] if pause is None else await kept(ctx, pause.held)
        speech = PydanticSpeech(ctx, quiet=not speaks_text(self._agent.output_type))
        result: Any = None
        try:
            async with self._agent.run_stream_events(
                _prompt(ctx.message.parts) if pause is None else None,
                message_history=ModelMessagesTypeAdapter.validate_python([*memory.messages, *begun]),
                deferred_tool_results=None if pause is None else _results(pause),
                deps=await value_for(ctx, self._deps),
                # The prompt stands in the oldest turn, which may have been forgotten.
                capabilities=[ReinjectSystemPrompt()],
            ) as events:
                async for event in events:
                    if text := speech.hear(event):
                        yield text
                result = events.result
        except UsageLimitExceeded as error:
            ctx.log.warning("an agent was stopped: %s", error)
            raise Failed("the agent stopped: it has used what it may use for one message") from error
        except ContentFilterError as error:
            raise Rejected("the model's provider refused the content") from error
        except UnexpectedModelBehavior:
            # No answer was good enough, so that none stays.
            if not speech.says(speech.settled):
                yield Replace(speech.settled)
            raise
        said = result.new_messages()
        turn = [*begun, *ModelMessagesTypeAdapter.dump_python(_without_metadata(said), mode="json")]
        messages = [*ModelMessagesTypeAdapter.validate_python(begun), *said]
        if isinstance(result.output, DeferredToolRequests):
            text = APART.join(accepted_texts(messages))
            if not speech.says(text):
                yield Replace(text)
            yield _pause(result.output, await keep(ctx, turn)).ask()
            return
        memory.add(turn)
        output = _final(result.output, messages, speech)
        if output is not None:
            yield output


def _final(output: Any, messages: list[ModelMessage], speech: PydanticSpeech) -> Replace | None:
    """The output, where it is not what has been streamed."""
    if not isinstance(output, str):
        return None if output is None else Replace(_shown(output))
    text = APART.join(answer_texts(messages, output))
    return None if speech.says(text) else Replace(text)


def _without_metadata(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages without what tools keep beside their results: it may be any object, and no model sees it."""
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


def _pause(requests: DeferredToolRequests, held: str) -> Pause:
    approvals = [_pending(call, f"May I call {_call(call)}?", approval=True) for call in requests.approvals]
    calls = [_pending(call, f"What is the result of {_call(call)}?", approval=False) for call in requests.calls]
    return Pause((*approvals, *calls), held)


def _pending(call: ToolCallPart, question: str, *, approval: bool) -> Pending:
    shown = {"id": call.tool_call_id, "tool": call.tool_name, "arguments": call.args_as_dict()}
    return Pending(call.tool_call_id, question, shown, approval)


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


def _shown(output: Any) -> Any:
    from pydantic_ai.messages import BinaryContent

    if isinstance(output, BinaryContent):
        return Part(raw=output.data, media_type=output.media_type)
    return output
