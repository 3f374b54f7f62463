"""ADK's agents as the `run` of an agent of ours."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.run_config import (
    RunConfig,
    StreamingMode,  # pyright: ignore[reportPrivateImportUsage] - its home in 1.x
)
from google.adk.apps.app import App
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from dragoman.agents.adk.calls import PendingCalls, SessionKey, UnansweredCalls, details_of, question_of
from dragoman.agents.adk.offers import description_of, offers_of
from dragoman.agents.adk.parts import THOUGHT, TYPE, to_genai
from dragoman.agents.adk.replies import read_answers
from dragoman.agents.adk.turn import AdkTurn
from dragoman.engine.execute.outputs import Ask, OutputMetadata
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.model.part import Part

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

    from dragoman.agents.adk.text_stream import Output
    from dragoman.agents.offers import NamedSkill
    from dragoman.engine.execute.context import Context

# Where the name of a session is kept whose service has chosen another than ours.
STATE = "dragoman.adk"
# What every service takes for a name. Callers choose those of their contexts, and some services make paths of them.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def session_of(runner: Runner, ctx: Context) -> Session:
    """Find the session of a conversation, or create it.

    It has the conversation's id and belongs to the authenticated caller. Where nobody is authenticated, the
    conversation stands for its caller: `A2A_USER_<context>`. Where a context is not named in plain letters, or there
    are tenants that may use the same names, the session's id is a UUID that stands for the context.
    """
    name = ctx.context_id if _PLAIN.fullmatch(ctx.context_id) and not ctx.tenant else ctx.session_id
    user = ctx.user.id if ctx.user is not None else f"A2A_USER_{name}"
    session_id: str = ctx.state.get(STATE, name)
    service, app = runner.session_service, runner.app_name
    # What was said is read by the runner. Here it is only of interest whether something was asked.
    config = GetSessionConfig(num_recent_events=1) if ctx.resume is None else None
    existing = await service.get_session(app_name=app, user_id=user, session_id=session_id, config=config)
    if existing is not None:
        return existing
    session = await service.create_session(app_name=app, user_id=user, session_id=name)
    if session.id != name:
        ctx.state[STATE] = session.id
    return session


def runner_of(agent: object, app_name: str | None = None) -> Runner:
    """The runner itself, or one that keeps sessions, artifacts and memories in memory.

    Raises:
        ConfigError: it is nothing that ADK runs, or a runner of another name.
    """
    if isinstance(agent, Runner):
        if app_name not in (None, agent.app_name):
            raise ConfigError(f"app_name: the runner is already called `{agent.app_name}`")
        return agent
    try:
        return _new_runner(agent, app_name)
    except ValueError as error:
        raise ConfigError(f"ADK cannot run this: {error}") from error


def _new_runner(agent: object, app_name: str | None) -> Runner:
    if isinstance(agent, App):
        return InMemoryRunner(app=agent) if app_name is None else InMemoryRunner(app=agent, app_name=app_name)
    if isinstance(agent, BaseAgent):
        return InMemoryRunner(agent=agent, app_name=app_name or agent.name)
    node: Any = agent
    if isinstance(node, _node_types()):
        return InMemoryRunner(node=node, app_name=app_name or node.name)
    raise ConfigError(f"an agent, a workflow, an App or a Runner of ADK is needed, and not {type(agent).__name__}")


def _node_types() -> tuple[type, ...]:
    """What a workflow is made of, itself included: 1.x has none."""
    try:
        return (import_module("google.adk.workflow").BaseNode,)
    except (ImportError, AttributeError):
        return ()


_ESCALATED = "The agent has given up and needs somebody's help."
_MOST_METADATA = 4096
# By this ADK's clients know that an answer is in the artifacts, and that what is said on the way is no part of it.
_EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"


class AdkRuns:
    """Runs every message in the session of its conversation. See `Bridge`.

    It takes an agent, a workflow or an App, for which sessions, artifacts and memories are kept in memory, or a
    Runner. Text is streamed as the model writes it. Long-running tools, confirmations and requests for credentials
    pause the task. Tool calls and the code a model runs are told with `show_tools`, as artifacts named "tool"; thoughts
    with `show_thoughts`, as progress.

    A task that waits goes on waiting when something else is said in its conversation: that is another task, to whose
    model a tool of the first is pending. What a task waited for that has ended is canceled.

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
        self._owns_runner = self.runner is not agent_or_runner
        self._root: Any = self.runner.agent
        self._show_tools = show_tools
        self._show_thoughts = show_thoughts
        self._escalate = escalate
        self._unanswered = UnansweredCalls(self.runner)
        self._can_abort = "abort_signal" in inspect.signature(self.runner.run_async).parameters

    @property
    def output_metadata(self) -> OutputMetadata:
        """What ADK's clients look for on tasks and on what is said on the way."""
        return OutputMetadata(task={_EXTENSION: {"adk_agent_executor_v2": True}}, progress={THOUGHT: True})

    @property
    def name(self) -> str:
        """See `Bridge.name`."""
        return str(self._root.name)

    @property
    def description(self) -> str:
        """See `Bridge.description`."""
        return description_of(self._root)

    def offers(self) -> tuple[NamedSkill, ...]:
        """See `Bridge.offers`."""
        return offers_of(self._root)

    async def close(self) -> None:
        """Let go of toolsets and plugins. A runner that was given is its owner's to close."""
        if self._owns_runner:
            await self.runner.close()

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Give a message to the agent, or the answers that it waits for, and pass on what it says.

        Raises:
            Failed: the agent says what went wrong, or has forgotten what it asked.
            Rejected: there is nothing in the message.
        """
        session = await session_of(self.runner, ctx)
        key = SessionKey(session.user_id, session.id)
        pending = _pending_calls(ctx, session)
        if pending is not None:
            pending, why = read_answers(
                pending, ctx.message, {key: args for key, (_, args) in _calls_by_id(session).items()}
            )
            if why:
                yield _ask_for(pending, f"{why} ")
                return
        await self._unanswered.answer_waiting(ctx, key)
        messages = [_message(ctx)] if pending is None else list(self._answers(pending, ctx, session))
        turn = AdkTurn(self.runner, session, ctx, show_tools=self._show_tools, show_thoughts=self._show_thoughts)
        async with self._unanswered.running(key):
            try:
                for message in messages:
                    events_before = turn.event_count
                    async with aclosing(self._outputs(session, message, ctx, turn)) as outputs:
                        async for output in outputs:
                            yield output
                    if turn.event_count == events_before and len(messages) > 1:
                        raise Failed("the agent has not gone on after all of the answers: it had ended before")
                for output in turn.finish():
                    yield output
                if turn.error is not None:
                    raise Failed(turn.error)
            except BaseException:
                # Failed, canceled, or closed: what it waits for now, or did before, is nobody's to answer any more.
                await self._unanswered.cancel(key, (*(pending.calls if pending else ()), *turn.calls.values()))
                raise
        if turn.calls:
            calls = tuple(turn.calls.values())
            self._unanswered.note_waiting(ctx, calls)
            yield _ask_for(PendingCalls(calls, user=key.user, session=key.session), more=tuple(turn.details))
        elif turn.escalated and self._escalate == "input":
            yield Ask(_ESCALATED)

    async def canceled(self, ref: Any) -> None:
        """A task was canceled while it waited: tell the session, so that the conversation can go on."""
        pending = msgspec.convert(ref, PendingCalls) if ref is not None else None
        if pending is not None and pending.session:
            await self._unanswered.cancel(SessionKey(pending.user, pending.session), pending.calls)

    async def _outputs(
        self, session: Session, message: types.Content, ctx: Context, turn: AdkTurn
    ) -> AsyncGenerator[Output, None]:
        abort = asyncio.Event()
        async with aclosing(self._events(session, message, ctx, abort)) as events:
            try:
                async for event in events:
                    for output in await turn.outputs_of(event):
                        yield output
                    await turn.publish(event)
            except BaseException:
                # Canceled, or closed: nothing that it has begun is to go on.
                abort.set()
                raise

    def _events(
        self, session: Session, content: types.Content, ctx: Context, abort: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        options: dict[str, Any] = {"abort_signal": abort} if self._can_abort else {}
        config: dict[str, Any] = {"streaming_mode": StreamingMode.SSE}
        if "custom_metadata" in RunConfig.model_fields:
            config["custom_metadata"] = _custom_metadata(ctx)
        return self.runner.run_async(
            user_id=session.user_id,
            session_id=session.id,
            new_message=content,
            run_config=RunConfig(**config),
            **options,
        )

    def _answers(self, pending: PendingCalls, ctx: Context, session: Session) -> Iterator[types.Content]:
        """The answers as messages: ADK goes on with one agent after a message, in one of its invocations."""
        calls_by_id = _calls_by_id(session)
        groups: dict[Any, list[types.Part]] = {}
        for call in pending.calls:
            event, _ = calls_by_id[call.id]
            # A workflow takes them all at once, and finds out what each of them is for.
            key = (event.author, event.invocation_id) if isinstance(self._root, BaseAgent) else None
            response = types.FunctionResponse(id=call.id, name=call.name, response=pending.answers[call.id])
            groups.setdefault(key, []).append(types.Part(function_response=response))
        # Files may stand beside answers; ADK does not take texts there.
        files = [to_genai(part) for part in ctx.message.files]
        for parts in groups.values():
            yield types.Content(role="user", parts=[*parts, *files])


def _message(ctx: Context) -> types.Content:
    # Models do not take parts with nothing in them.
    parts = [to_genai(_without_adk_type(part)) for part in ctx.message.parts if part.text != ""]
    if not parts:
        raise Rejected("there is nothing in the message")
    return types.Content(role="user", parts=parts)


def _pending_calls(ctx: Context, session: Session) -> PendingCalls | None:
    """What the task has waited for, unless this is its beginning or it has only asked for help."""
    ref: Any = ctx.resume.ref if ctx.resume is not None else None
    if ref is None:
        return None
    pending, calls_by_id = msgspec.convert(ref, PendingCalls), _calls_by_id(session)
    if not all(call.id in calls_by_id for call in pending.calls):
        raise Failed("the agent has forgotten what it asked for: its sessions did not outlast a restart")
    return pending


def _custom_metadata(ctx: Context) -> dict[str, Any]:
    """What a request says beside its message. ADK keeps it with every event, so it is little or nothing."""
    size = len(msgspec.json.encode(ctx.metadata, enc_hook=str))
    if size > _MOST_METADATA:
        ctx.log.warning("the request's metadata is not passed on: %d bytes are too many for every event", size)
        return {}
    return {"a2a_metadata": ctx.metadata}


def _without_adk_type(part: Part) -> Part:
    """What a caller says as data. It is not the caller who calls tools, and nobody has asked for a result."""
    metadata = part.metadata or {}
    if TYPE not in metadata:
        return part
    rest = {key: value for key, value in metadata.items() if key != TYPE}
    return msgspec.structs.replace(part, metadata=rest or None)


def _calls_by_id(session: Session) -> dict[str, tuple[Event, dict[str, Any]]]:
    """The calls of a session by their ids: the event that makes each, and all of its arguments."""
    return {
        call.id: (event, dict(call.args or {}))
        for event in session.events
        if event.author != "user"
        for call in event.get_function_calls()
        if call.id
    }


def _ask_for(pending: PendingCalls, why: str = "", more: tuple[Part, ...] = ()) -> Ask:
    calls = pending.missing
    return Ask(
        why + question_of(calls),
        ref=msgspec.to_builtins(pending),
        auth=any(call.auth for call in calls),
        details=(*details_of(calls), *more),
    )
