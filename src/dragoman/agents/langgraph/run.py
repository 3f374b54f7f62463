"""A LangGraph graph as an agent of ours."""

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
from dragoman.agents.langgraph.turn import GraphTurn, tool_places, tools_of
from dragoman.agents.pause import Pause
from dragoman.agents.text import MOST, Memory, media_of, text_of
from dragoman.engine.execute.outputs import Replace
from dragoman.model.error import Failed, Rejected

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context
    from dragoman.model.part import Part

KEY = "dragoman/langgraph"


class _Held(msgspec.Struct):
    """What a task needs to go on after a question."""

    thread: str
    answer: GraphAnswer


class LangGraphRuns(PausingBridge):
    """Runs a compiled graph, or an entrypoint: what its models say is streamed, interrupts pause the task.

    Memory is the graph's checkpointer; every conversation is a thread. A graph that was compiled without one keeps
    its `messages` in the conversation's state, at most `memory` bytes of them, and what it waits for only in this
    process. The answer of a graph with `messages` is what the task has added to them, or its `structured_response`; the
    answer of every other graph is its last state, as data. `to_input` makes the graph's input from the run's context;
    by default that is a human message, or the message's data. `context` is what the graph's `context_schema` wants, or
    a function that makes it from the run's context.
    """

    def __init__(
        self,
        graph: Any,
        *,
        to_input: Callable[[Context], Any] | None = None,
        context: Any = None,
        memory: int = MOST,
    ) -> None:
        self._graph = graph
        self._remembers = isinstance(graph.checkpointer, bool | None)
        if self._remembers:
            from langgraph.checkpoint.memory import InMemorySaver

            self._graph = graph.copy({"checkpointer": InMemorySaver()})
        self._to_input = to_input or self._input
        self._context = context
        self._memory = memory
        self._places = tool_places(graph)
        builder = getattr(graph, "builder", None)
        # What an entrypoint takes is one value, without names.
        self._fields: list[str] = [] if builder is None else list(builder.schemas[builder.input_schema])
        name: str = graph.name or ""
        super().__init__("graph" if name in ("", "LangGraph") else name)

    def tools(self) -> Iterable[tuple[str, str]]:
        """The tools of its tool nodes."""
        return [(name, str(tool.description or "")) for name, tool in tools_of(self._graph).items()]

    async def canceled(self, ref: Any) -> None:
        """Nobody will answer: forget what a graph without a checkpointer waited for."""
        held: Any = cast("dict[str, Any]", ref).get("held") if isinstance(ref, dict) else None
        if self._remembers and isinstance(held, dict):
            await self._graph.checkpointer.adelete_thread(cast("dict[str, Any]", held)["thread"])

    async def turn(self, ctx: Context, pause: Pause | None) -> AsyncGenerator[Any, None]:
        """See `PausingBridge.turn`.

        Raises:
            Failed: the graph took too many steps, or does not wait for this answer any more.
            Rejected: the graph takes data that the message does not have.
        """
        from langgraph.errors import GraphRecursionError

        thread = ctx.task_id if self._remembers else ctx.session_id
        config = {"configurable": {"thread_id": thread, **({"user_id": ctx.user.id} if ctx.user else {})}}
        held = _Held(thread, GraphAnswer()) if pause is None else msgspec.convert(pause.held, _Held)
        turn = GraphTurn(ctx, self._graph, config, held.answer, self._places)
        waiting: Pause | None = None
        try:
            given = await self._given(ctx, config) if pause is None else await self._resumed(pause, config)
            if isinstance(given, Pause):
                waiting = given
            else:
                async with aclosing(turn.texts(given, await value_for(ctx, self._context))) as texts:
                    async for text in texts:
                        yield text
                if turn.interrupts is not None:
                    waiting = pause_for([*turn.interrupts.values()], msgspec.to_builtins(held))
                elif self._remembers:
                    await self._remember(ctx, config)
        except GraphRecursionError as error:
            raise Failed("the graph stopped: it took too many steps") from error
        except ValueError as error:
            waiting = await self._again(error, config, held)
        finally:
            if self._remembers and waiting is None:
                await self._graph.checkpointer.adelete_thread(thread)
        if waiting is not None:
            yield waiting.ask()
            return
        output = self._output(turn, held.answer)
        if output is not None:
            yield output

    def _output(self, turn: GraphTurn, answer: GraphAnswer) -> Replace | None:
        """What the graph gives, where that is not what has been streamed."""
        result = turn.values
        if isinstance(result, dict) and MESSAGES in result:
            result = cast("dict[str, Any]", result).get("structured_response")
            # What an entrypoint returns is no state: nobody knows what of it is new.
            if result is None and self._fields:
                text = answer.text(turn.values)
                return None if text is None or turn.speech.paragraphs.say(text) else Replace(text)
        return None if _is_said(result, turn) else Replace(plain(result))

    async def _remember(self, ctx: Context, config: dict[str, Any]) -> None:
        messages = messages_in((await self._graph.aget_state(config)).values)
        if messages:
            Memory(ctx, KEY, self._memory).replace(turns_of(messages))

    # -- what goes in --------------------------------------------------------------------------------------------------

    async def _given(self, ctx: Context, config: dict[str, Any]) -> Any:
        from langchain_core.messages import messages_from_dict

        given = self._to_input(ctx)
        given = await given if inspect.isawaitable(given) else given
        if not isinstance(given, dict) or MESSAGES not in given:
            return cast("Any", given)
        values = cast("dict[str, Any]", given)
        if self._remembers:
            before = messages_from_dict(Memory(ctx, KEY).messages)
        else:
            before = canceled_calls(await self._standing(config))
            if not before:
                return values
        return {**values, MESSAGES: [*before, *messages_of(values[MESSAGES])]}

    async def _standing(self, config: dict[str, Any]) -> Sequence[Any]:
        """The messages of the thread, which an earlier task may have left in the middle of its work."""
        state = await self._graph.aget_state(config)
        if state.next:
            # What was done of a step that never ended is lost when another begins, so it must not count here.
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

    async def _resumed(self, pause: Pause, config: dict[str, Any]) -> Any:
        from langgraph.types import Command

        answers = answers_of(pause)
        if isinstance(answers, Pause):
            return answers
        state = await self._graph.aget_state(config)
        stopped = pause.pending[0].id == BREAKPOINT
        # Another message of the conversation may have gone past the question, or a restart has lost it.
        if not state.next or not answers.keys() <= {one.id for one in state.interrupts}:
            raise Failed("the graph does not wait for this answer any more")
        return None if stopped else Command(resume=answers)

    async def _again(self, error: ValueError, config: dict[str, Any], held: _Held) -> Pause:
        from langgraph import errors

        is_invalid_resume: Callable[[BaseException], bool] | None = getattr(errors, "is_invalid_resume", None)
        if is_invalid_resume is None or not is_invalid_resume(error):
            raise error
        state = await self._graph.aget_state(config)
        return pause_for(state.interrupts, msgspec.to_builtins(held), "The last answer does not fit.")


def _is_said(value: Any, turn: GraphTurn) -> bool:
    """True when there is nothing to add to what has been streamed."""
    from langchain_core.messages import BaseMessage

    if isinstance(value, str):
        return turn.speech.paragraphs.ends_with(value)
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
        place = {"base64": base64.b64encode(part.raw).decode()} if part.raw is not None else {"url": part.url}
        name = {"extras": {"filename": part.filename}} if part.filename else {}
        content.append({**block, **place, **name})
    return content
