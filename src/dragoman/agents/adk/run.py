"""ADK's agents as the `run` of an agent of ours."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from google.adk.agents.run_config import (
    RunConfig,
    StreamingMode,  # pyright: ignore[reportPrivateImportUsage]
)
from google.genai import types

from dragoman.agents.adk.calls import Open, question_of
from dragoman.agents.adk.offers import description_of, offers_of
from dragoman.agents.adk.parts import TYPE, to_genai
from dragoman.agents.adk.replies import answered
from dragoman.agents.adk.runner import runner_of
from dragoman.agents.adk.sessions import session_of
from dragoman.agents.adk.turn import Turn
from dragoman.engine.outputs import Ask
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.model.part import Part

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

    from dragoman.agents.process.offer import ProgramSkill
    from dragoman.engine.context import Context

_GAVE_UP = "The agent has given up and needs somebody's help."


class AdkRuns:
    """Runs every message in the session of its conversation. See `Bridge`.

    It takes an agent, a workflow or an App, for which sessions, artifacts and memories are kept in memory, or a
    Runner. Text is streamed as the model writes it. Long-running tools, confirmations and requests for credentials
    pause the task. Tool calls and the code a model runs are told with `show_tools`, as artifacts named "tool"; thoughts
    with `show_thoughts`, as progress.

    An agent that escalates has ended its work and the task is completed: that is how loops are left. With
    `escalate="input"` it waits for the caller's help instead.

    Raises:
        ConfigError: it is nothing that ADK runs, or `escalate` is something else.
    """

    def __init__(
        self,
        agent_or_runner: object,
        *,
        app_name: str | None = None,
        show_tools: bool = False,
        show_thoughts: bool = False,
        escalate: Literal["complete", "input"] = "complete",
    ) -> None:
        if escalate not in ("complete", "input"):
            raise ConfigError('escalate: say "complete" or "input"')
        self.runner = runner_of(agent_or_runner, app_name)
        self._is_ours = self.runner is not agent_or_runner
        self._root: Any = self.runner.agent
        self._show_tools = show_tools
        self._show_thoughts = show_thoughts
        self._escalate = escalate
        self._can_abort = "abort_signal" in inspect.signature(self.runner.run_async).parameters

    @property
    def name(self) -> str:
        """See `Bridge.name`."""
        return str(self._root.name)

    @property
    def description(self) -> str:
        """See `Bridge.description`."""
        return description_of(self._root)

    def offers(self) -> tuple[ProgramSkill, ...]:
        """See `Bridge.offers`."""
        return offers_of(self._root)

    async def close(self) -> None:
        """Let go of toolsets and plugins. A runner that was given is its owner's to close."""
        if self._is_ours:
            await self.runner.close()

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Give a message to the agent, or the answers that it waits for, and pass on what it says.

        Raises:
            Failed: the agent says what went wrong, or has forgotten what it asked.
            Rejected: there is nothing in the message.
        """
        session = await session_of(self.runner, ctx)
        content = _content(ctx, session)
        if isinstance(content, Ask):
            yield content
            return
        turn = Turn(self.runner, session, ctx, show_tools=self._show_tools, show_thoughts=self._show_thoughts)
        abort = asyncio.Event()
        async with aclosing(self._events(session, content, ctx, abort)) as events:
            try:
                async for event in events:
                    for output in await turn.heard(event):
                        yield output
                    await turn.show(event)
            except BaseException:
                # Canceled, or closed: nothing that it has begun is to go on.
                abort.set()
                raise
        for output in turn.end():
            yield output
        if turn.error is not None:
            raise Failed(turn.error)
        if turn.calls:
            yield _asked(Open(tuple(turn.calls.values())))
        elif turn.escalated and self._escalate == "input":
            yield Ask(_GAVE_UP)

    def _events(
        self, session: Session, content: types.Content, ctx: Context, abort: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        options: dict[str, Any] = {"abort_signal": abort} if self._can_abort else {}
        config: dict[str, Any] = {"streaming_mode": StreamingMode.SSE}
        if "custom_metadata" in RunConfig.model_fields:
            config["custom_metadata"] = {"a2a_metadata": ctx.metadata}
        return self.runner.run_async(
            user_id=session.user_id,
            session_id=session.id,
            new_message=content,
            run_config=RunConfig(**config),
            **options,
        )


def _content(ctx: Context, session: Session) -> types.Content | Ask:
    """What the agent is told, or what the caller must be asked once more."""
    ref: Any = ctx.resume.ref if ctx.resume is not None else None
    if ref is None:
        # Models do not take parts with nothing in them.
        told = [to_genai(_untyped(part)) for part in ctx.message.parts if part.text != ""]
        if not told:
            raise Rejected("there is nothing in the message")
        return types.Content(role="user", parts=told)
    waiting = msgspec.convert(ref, Open)
    made = {call.id: dict(call.args or {}) for call in _calls(session) if call.id}
    if not all(call.id in made for call in waiting.calls):
        raise Failed("the agent has forgotten what it asked for: its sessions did not outlast a restart")
    waiting, why = answered(waiting, ctx.message, made)
    if why:
        return _asked(waiting, f"{why} ")
    names = {call.id: call.name for call in waiting.calls}
    parts = [
        types.Part(function_response=types.FunctionResponse(id=key, name=names[key], response=response))
        for key, response in waiting.given.items()
    ]
    # Files may stand beside answers; ADK does not take texts there.
    return types.Content(role="user", parts=[*parts, *(to_genai(part) for part in ctx.message.files)])


def _untyped(part: Part) -> Part:
    """What a caller says as data. It is not the caller who calls tools, and nobody has asked for a result."""
    metadata = part.metadata or {}
    if TYPE not in metadata:
        return part
    rest = {key: value for key, value in metadata.items() if key != TYPE}
    return msgspec.structs.replace(part, metadata=rest or None)


def _calls(session: Session) -> Iterator[types.FunctionCall]:
    for event in session.events:
        if event.author != "user":
            yield from event.get_function_calls()


def _asked(waiting: Open, why: str = "") -> Ask:
    calls = waiting.missing
    return Ask(
        why + question_of(calls),
        ref=msgspec.to_builtins(waiting),
        auth=any(call.kind == "credential" for call in calls),
        details=tuple(part for call in calls for part in call.details()),
    )
