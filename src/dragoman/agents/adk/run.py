"""Runs ADK agents as agents of Dragoman."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
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
from dragoman.agents.adk.parts import TYPE, to_genai
from dragoman.agents.adk.remote.message import TASK_ID
from dragoman.agents.adk.replies import read_answers
from dragoman.agents.adk.turn import AdkTurn
from dragoman.dialects.negotiate import ADK_MARK, ADK_PROGRESS
from dragoman.engine.execute.outputs import Ask
from dragoman.engine.ports.agent import ForeignTasks, OutputMetadata
from dragoman.engine.ports.store import Scope
from dragoman.engine.session_id import session_id
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.model.part import Part

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

    from dragoman.agents.adk.text_stream import Output
    from dragoman.agents.offers import NamedSkill
    from dragoman.engine.execute.context import Context

# Key in the conversation's state of a session id that was chosen by the session service.
STATE = "dragoman.adk"
# Session ids that are safe everywhere: callers choose context ids, and some services use them in paths.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def session_of(runner: Runner, ctx: Context) -> Session:
    """Return the session of a conversation, creating it if needed.

    Its id is the context id, and it belongs to the authenticated caller. Without authentication the user id is
    `A2A_USER_<context>`. If the context id has other characters than letters, digits, `_` and `-`, or there are tenants
    that may use equal ids, the session id is a UUID derived from the context.
    """
    name = ctx.context_id if _PLAIN.fullmatch(ctx.context_id) and not ctx.tenant else ctx.session_id
    user = ctx.user.id if ctx.user is not None else f"A2A_USER_{name}"
    session_id: str = ctx.state.get(STATE, name)
    service, app = runner.session_service, runner.app_name
    # The runner reads the history itself. The events are needed here only to resume after a question.
    config = GetSessionConfig(num_recent_events=1) if ctx.resume is None else None
    existing = await service.get_session(app_name=app, user_id=user, session_id=session_id, config=config)
    if existing is not None:
        return existing
    session = await service.create_session(app_name=app, user_id=user, session_id=name)
    if session.id != name:
        ctx.state[STATE] = session.id
    return session


def plain_session_id(context_id: str) -> str:
    """Return a context id that is safe as a session id everywhere, else a UUID derived from it."""
    return context_id if _PLAIN.fullmatch(context_id) else session_id(Scope("", "", ""), context_id)


def runner_of(agent: object, app_name: str | None = None) -> Runner:
    """Return the runner itself, or a new one that keeps sessions, artifacts and memories in memory.

    Raises:
        ConfigError: the object is nothing that ADK runs, or a runner with another app name.
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
    """Return the base class of workflow nodes; ADK 1.x has none."""
    try:
        return (import_module("google.adk.workflow").BaseNode,)
    except (ImportError, AttributeError):
        return ()


_ESCALATED = "The agent has given up and needs somebody's help."
_MAX_METADATA = 4096


class AdkRuns:
    """Runs each message in the ADK session of its conversation. Implements `Bridge`.

    It takes an agent, a workflow or an App, for which sessions, artifacts and memories are kept in memory, or a Runner.
    Text is streamed as the model writes it. Long-running tools, confirmations and credential requests pause the task.
    With `show_tools`, tool calls and executed code are sent as artifacts named "tool"; with `show_thoughts`, thoughts
    are sent as progress.

    A waiting task keeps waiting when another message arrives in its conversation: that message is a new task, whose
    model sees the waiting tool as pending. Calls of a task that has ended are canceled.

    An agent that escalates has finished, and the task is completed: that is how loops end. With `escalate="input"` the
    task waits for the caller's help instead.

    Raises:
        ConfigError: the object is nothing that ADK runs, or `escalate` is invalid.
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
        """Metadata that ADK's clients expect on tasks, on progress and on the reason of a failure."""
        return OutputMetadata(ADK_MARK, progress=ADK_PROGRESS, failure={"adk_error_code": "FAILED"})

    @property
    def name(self) -> str:
        return str(self._root.name)

    @property
    def description(self) -> str:
        return description_of(self._root)

    def offers(self) -> tuple[NamedSkill, ...]:
        return offers_of(self._root)

    @property
    def foreign(self) -> ForeignTasks | None:
        """The tasks of remote agents in the tree; None when there are no such agents."""
        agents = _tree(self._root) if isinstance(self._root, BaseAgent) else ()
        is_remote = any(_has_ended(each) is not None for each in agents)
        return ForeignTasks(f"adk {self.name}", self.has_moved) if is_remote else None

    async def close(self) -> None:
        """Close toolsets and plugins. A runner that was passed in is left to its owner."""
        if self._owns_runner:
            await self.runner.close()

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Run the agent on the message, or resume it with the answers in it, and yield its outputs.

        Raises:
            Failed: the agent reports an error, does not continue after an answer, or its session has been lost.
            Rejected: the message is empty.
        """
        session = await session_of(self.runner, ctx)
        key = SessionKey(session.user_id, session.id)
        pending = _pending_calls(ctx, session)
        if pending is not None and not ctx.message.parts:
            # No message of the caller: the remote task has ended by itself, and its agent says with what.
            pending = msgspec.structs.replace(pending, answers={call.id: {"result": ""} for call in pending.calls})
        elif pending is not None:
            arguments = {call_id: args for call_id, (_, args) in _calls_by_id(session).items()}
            pending, problem = read_answers(pending, ctx.message, arguments)
            if problem:
                yield _ask_for(pending, f"{problem} ")
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
                        raise Failed("the agent did not continue after every answer: it had already ended")
                for output in turn.finish():
                    yield output
                if turn.error is not None:
                    raise Failed(turn.error)
            except BaseException:
                # Failed, canceled or closed: its pending calls will not be answered.
                await self._unanswered.cancel(key, (*(pending.calls if pending else ()), *turn.calls.values()))
                raise
        if turn.calls:
            calls = tuple(turn.calls.values())
            self._unanswered.note_waiting(ctx, calls)
            yield _ask_for(PendingCalls(calls, user=key.user, session=key.session), more=tuple(turn.details))
        elif turn.escalated and self._escalate == "input":
            yield Ask(_ESCALATED)

    async def canceled(self, ref: Any) -> None:
        """Cancel the pending calls of a canceled task, so that its conversation can continue."""
        pending = msgspec.convert(ref, PendingCalls) if ref is not None else None
        if pending is not None and pending.session:
            await self._unanswered.cancel(SessionKey(pending.user, pending.session), pending.calls)

    async def has_moved(self, ref: Any) -> bool:
        """Tell whether a task has ended that a remote agent in the tree waits with, as after a login elsewhere.

        Raises:
            DragomanError: the remote agent refused, or cannot be reached.
        """
        pending = msgspec.convert(ref, PendingCalls) if ref is not None else None
        if pending is None or [call.kind for call in pending.calls] != ["question"]:
            return False
        session = await self.runner.session_service.get_session(
            app_name=self.runner.app_name, user_id=pending.user, session_id=pending.session
        )
        event, _ = ({} if session is None else _calls_by_id(session)).get(pending.calls[0].id, (None, None))
        if event is None or not isinstance(self._root, BaseAgent):
            return False
        has_ended, task_id = _has_ended(self._root.find_agent(event.author)), (event.custom_metadata or {}).get(TASK_ID)
        # Another question is not asked by itself: only the agent's own turn could.
        return has_ended is not None and task_id is not None and await has_ended(task_id)

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
                # Canceled or closed: nothing that the agent has started may continue.
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
        """Yield the answers as messages: ADK resumes one agent per message, in one of its invocations."""
        calls_by_id = _calls_by_id(session)
        groups: dict[Any, list[types.Part]] = {}
        for call in pending.calls:
            event, _ = calls_by_id[call.id]
            # A workflow takes all answers at once and assigns them itself.
            key = (event.author, event.invocation_id) if isinstance(self._root, BaseAgent) else None
            response = types.FunctionResponse(id=call.id, name=call.name, response=pending.answers[call.id])
            groups.setdefault(key, []).append(types.Part(function_response=response))
        # ADK accepts files next to function responses, but no text.
        files = [to_genai(part) for part in ctx.message.files]
        for parts in groups.values():
            yield types.Content(role="user", parts=[*parts, *files])


def _tree(agent: BaseAgent) -> Iterator[BaseAgent]:
    yield agent
    for each in agent.sub_agents:
        yield from _tree(each)


def _has_ended(agent: BaseAgent | None) -> Callable[[str], Awaitable[bool]] | None:
    """Return the method of a `RemoteAgent`, without importing that: agents of ADK alone need no client."""
    return getattr(agent, "_has_ended", None) if hasattr(type(agent), "_has_ended") else None


def _message(ctx: Context) -> types.Content:
    # Models reject empty parts.
    parts = [to_genai(_without_adk_type(part)) for part in ctx.message.parts if part.text != ""]
    if not parts:
        raise Rejected("there is nothing in the message")
    return types.Content(role="user", parts=parts)


def _pending_calls(ctx: Context, session: Session) -> PendingCalls | None:
    """Return the calls that the task has waited for; None in a first run, or if it has only asked for help."""
    ref: Any = ctx.resume.ref if ctx.resume is not None else None
    if ref is None:
        return None
    pending, calls_by_id = msgspec.convert(ref, PendingCalls), _calls_by_id(session)
    if not all(call.id in calls_by_id for call in pending.calls):
        raise Failed("the agent has forgotten what it asked for: its sessions did not outlast a restart")
    return pending


def _custom_metadata(ctx: Context) -> dict[str, Any]:
    """Return the request's metadata for ADK, which stores it with every event; empty if it is too large."""
    size = len(msgspec.json.encode(ctx.metadata, enc_hook=str))
    if size > _MAX_METADATA:
        ctx.log.warning("the request's metadata is not passed on: %d bytes are too many for every event", size)
        return {}
    return {"a2a_metadata": ctx.metadata}


def _without_adk_type(part: Part) -> Part:
    """Return a caller's part as plain data: callers must not forge tool calls or unrequested responses."""
    metadata = part.metadata or {}
    if TYPE not in metadata:
        return part
    rest = {key: value for key, value in metadata.items() if key != TYPE}
    return msgspec.structs.replace(part, metadata=rest or None)


def _calls_by_id(session: Session) -> dict[str, tuple[Event, dict[str, Any]]]:
    """Return the calls of a session by id: the event of each call, and all of its arguments."""
    return {
        call.id: (event, dict(call.args or {}))
        for event in session.events
        if event.author != "user"
        for call in event.get_function_calls()
        if call.id
    }


def _ask_for(pending: PendingCalls, prefix: str = "", more: tuple[Part, ...] = ()) -> Ask:
    calls = pending.missing
    return Ask(
        prefix + question_of(calls),
        ref=msgspec.to_builtins(pending),
        auth=any(call.auth for call in calls),
        details=(*details_of(calls), *more),
        forwards=True,
    )
