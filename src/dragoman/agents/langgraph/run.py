"""Runs LangGraph graphs as agents of Dragoman."""

from __future__ import annotations

import base64
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.agents.bridge import PausingBridge, value_for
from dragoman.agents.langgraph.messages import (
    MESSAGES,
    GraphAnswer,
    canceled_calls,
    messages_in,
    messages_of,
    plain,
    turns_of,
)
from dragoman.agents.langgraph.pause import BREAKPOINT, answers_of, pause_for
from dragoman.agents.langgraph.turn import GraphTurn, tool_paths, tools_of
from dragoman.agents.pause import Pause
from dragoman.agents.text import DEFAULT_HISTORY_BYTES, ConversationHistory, media_of, text_of
from dragoman.engine.execute.outputs import Replace
from dragoman.model.error import Failed, Rejected

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context
    from dragoman.model.part import Part

KEY = "dragoman/langgraph"


class _GraphState(msgspec.Struct):
    """The stored state of a task that waits for an answer."""

    thread: str
    answer: GraphAnswer


class LangGraphRuns(PausingBridge):
    """Runs a compiled graph or an entrypoint: text of its models is streamed, interrupts pause the task.

    The graph's checkpointer is its memory; each conversation is a thread. A graph compiled without one keeps its
    `messages` in the conversation's state, at most `memory` bytes, and its open interrupts in this process only. The
    answer of a graph with `messages` is what the task has added to them, or its `structured_response`; the answer of
    any other graph is its final state, as data. `to_input` builds the graph's input from the run's context; the default
    is a human message, or the message's data. `context` is the value for the graph's `context_schema`, or a function
    that builds it from the run's context.
    """

    def __init__(
        self,
        graph: Any,
        *,
        to_input: Callable[[Context], Any] | None = None,
        context: Any = None,
        memory: int = DEFAULT_HISTORY_BYTES,
    ) -> None:
        self._graph = graph
        self._keeps_messages = isinstance(graph.checkpointer, bool | None)
        if self._keeps_messages:
            from langgraph.checkpoint.memory import InMemorySaver

            self._graph = graph.copy({"checkpointer": InMemorySaver()})
        self._to_input = to_input or self._input
        self._context = context
        self._memory = memory
        self._tool_paths = tool_paths(graph)
        builder = getattr(graph, "builder", None)
        # An entrypoint takes a single value instead of named fields.
        self._fields: list[str] = [] if builder is None else list(builder.schemas[builder.input_schema])
        name: str = graph.name or ""
        super().__init__("graph" if name in ("", "LangGraph") else name)

    def tools(self) -> Iterable[tuple[str, str]]:
        """Return the tools of the graph's tool nodes."""
        return [(name, str(tool.description or "")) for name, tool in tools_of(self._graph).items()]

    async def canceled(self, ref: Any) -> None:
        """Delete the thread of a graph without a checkpointer, whose question will not be answered."""
        state: Any = cast("dict[str, Any]", ref).get("held") if isinstance(ref, dict) else None
        if self._keeps_messages and isinstance(state, dict):
            await self._graph.checkpointer.adelete_thread(cast("dict[str, Any]", state)["thread"])

    async def turn(self, ctx: Context, pause: Pause | None) -> AsyncGenerator[Any, None]:
        """Run the graph on the message, or resume it from its interrupts.

        Raises:
            Failed: the graph took too many steps, or no longer waits for this answer.
            Rejected: the graph requires data that the message does not have, or the caller refused to go on from a
                breakpoint.
        """
        from langgraph.errors import GraphRecursionError

        thread = ctx.task_id if self._keeps_messages else ctx.session_id
        config = {"configurable": {"thread_id": thread, **({"user_id": ctx.user.id} if ctx.user else {})}}
        state = _GraphState(thread, GraphAnswer()) if pause is None else msgspec.convert(pause.state, _GraphState)
        turn = GraphTurn(ctx, self._graph, config, state.answer, self._tool_paths)
        waiting: Pause | None = None
        try:
            graph_input = (
                await self._graph_input(ctx, config) if pause is None else await self._resume_input(pause, config)
            )
            if isinstance(graph_input, Pause):
                waiting = graph_input
            else:
                async with aclosing(turn.texts(graph_input, await value_for(ctx, self._context))) as texts:
                    async for text in texts:
                        yield text
                if turn.interrupts is not None:
                    waiting = pause_for([*turn.interrupts.values()], msgspec.to_builtins(state))
                elif self._keeps_messages:
                    await self._remember(ctx, config)
        except GraphRecursionError as error:
            raise Failed("the graph stopped: it took too many steps") from error
        except ValueError as error:
            waiting = await self._ask_again(error, config, state)
        finally:
            if self._keeps_messages and waiting is None:
                await self._graph.checkpointer.adelete_thread(thread)
        if waiting is not None:
            yield waiting.ask()
            return
        output = self._output(turn, state.answer)
        if output is not None:
            yield output

    def _output(self, turn: GraphTurn, answer: GraphAnswer) -> Replace | None:
        """Return the output of the graph, unless it equals the streamed text."""
        result = turn.values
        if isinstance(result, dict) and MESSAGES in result:
            result = cast("dict[str, Any]", result).get("structured_response")
            # The result of an entrypoint is no state, so it is unknown which messages are new.
            if result is None and self._fields:
                text = answer.text(turn.values)
                return None if text is None or turn.text_stream.paragraphs.answer_equals(text) else Replace(text)
        return None if _is_streamed(result, turn) else Replace(plain(result))

    async def _remember(self, ctx: Context, config: dict[str, Any]) -> None:
        messages = messages_in((await self._graph.aget_state(config)).values)
        if messages:
            ConversationHistory(ctx, KEY, self._memory).replace(turns_of(messages))

    # -- graph input ---------------------------------------------------------------------------------------------------

    async def _graph_input(self, ctx: Context, config: dict[str, Any]) -> Any:
        from langchain_core.messages import messages_from_dict

        graph_input = self._to_input(ctx)
        graph_input = await graph_input if inspect.isawaitable(graph_input) else graph_input
        if not isinstance(graph_input, dict) or MESSAGES not in graph_input:
            return cast("Any", graph_input)
        values = cast("dict[str, Any]", graph_input)
        if self._keeps_messages:
            before = messages_from_dict(ConversationHistory(ctx, KEY).messages)
        else:
            before = canceled_calls(await self._thread_messages(config))
            if not before:
                return values
        return {**values, MESSAGES: [*before, *messages_of(values[MESSAGES])]}

    async def _thread_messages(self, config: dict[str, Any]) -> Sequence[Any]:
        """Return the messages of the thread, which an earlier task may have left unfinished."""
        state = await self._graph.aget_state(config)
        if state.next:
            # Writes of an unfinished step are lost when a new run starts, so they must not count here.
            state = await self._graph.aget_state(state.config)
        return messages_in(state.values)

    def _input(self, ctx: Context) -> Any:
        if MESSAGES in self._fields:
            from langchain_core.messages import HumanMessage

            return {MESSAGES: [HumanMessage(cast("Any", _content(ctx.message.parts)))]}
        value = ctx.text if ctx.data is None else ctx.data
        if self._fields in ([], ["__root__"]) or isinstance(value, dict):
            return cast("Any", value)
        if len(self._fields) == 1:
            return {self._fields[0]: value}
        raise Rejected(f"this agent takes data, with some of: {', '.join(self._fields)}")

    async def _resume_input(self, pause: Pause, config: dict[str, Any]) -> Any:
        from langgraph.types import Command

        answers = answers_of(pause)
        if isinstance(answers, Pause):
            return answers
        state = await self._graph.aget_state(config)
        stopped = pause.pending[0].id == BREAKPOINT
        # Another message of the conversation may have moved the thread on, or a restart has lost it.
        if not state.next or not answers.keys() <= {one.id for one in state.interrupts}:
            raise Failed("the graph does not wait for this answer any more")
        return None if stopped else Command(resume=answers)

    async def _ask_again(self, error: ValueError, config: dict[str, Any], saved: _GraphState) -> Pause:
        from langgraph import errors

        is_invalid_resume: Callable[[BaseException], bool] | None = getattr(errors, "is_invalid_resume", None)
        if is_invalid_resume is None or not is_invalid_resume(error):
            raise error
        state = await self._graph.aget_state(config)
        return pause_for(state.interrupts, msgspec.to_builtins(saved), "The last answer does not fit.")


def _is_streamed(value: Any, turn: GraphTurn) -> bool:
    """Return True if the value adds nothing to the streamed text."""
    from langchain_core.messages import BaseMessage

    if isinstance(value, str):
        return turn.text_stream.paragraphs.last_message_equals(value)
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return value is None or (bool(items) and all(isinstance(item, BaseMessage) for item in items))


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0].text is not None:
        return parts[0].text
    content: list[dict[str, Any]] = []
    for part in parts:
        text = text_of(part)
        if text is not None:
            content.append({"type": "text", "text": text})
            continue
        media = media_of(part)
        kind = media.split("/")[0]
        block = {"type": kind if kind in ("image", "audio", "video") else "file", "mime_type": media}
        source = {"base64": base64.b64encode(part.raw).decode()} if part.raw is not None else {"url": part.url}
        name = {"extras": {"filename": part.filename}} if part.filename else {}
        content.append({**block, **source, **name})
    return content
