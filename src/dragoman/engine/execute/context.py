"""The context object that agents get as `ctx`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

import msgspec

from dragoman.engine.execute.artifact_stream import ArtifactStream
from dragoman.engine.execute.context_calls import ContextCalls, must_be_awaited
from dragoman.engine.execute.outputs import LoginUrl, json_of, parts_of_all
from dragoman.engine.execute.threads import in_thread
from dragoman.engine.journal.replay import AnsweredQuestion
from dragoman.engine.journal.run_end import RunEnd, RunEnded, journaled_end, run_end
from dragoman.engine.locks import KeyedLocks
from dragoman.engine.session_id import session_id
from dragoman.model.error import ConfigError, Failed
from dragoman.model.event import ArtifactUpdate
from dragoman.model.ids import new_id
from dragoman.model.message import PROGRESS_KEY, Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from dragoman.clock import Clock
    from dragoman.engine.call import CallContext
    from dragoman.engine.journal.live import LiveTask
    from dragoman.model.user import User

T = TypeVar("T")
logger = logging.getLogger("dragoman.agent")


class AgentStatus(NamedTuple):
    """The message of a status, as an agent that writes its own has written it, and the metadata of that status."""

    message: Message | None
    metadata: dict[str, Any] | None


class AskHandler(Protocol):
    """Implements `ctx.ask` for agents that start again from the top after a pause."""

    @property
    def replaying(self) -> bool:
        """True while the run repeats code whose outputs were journaled before the last answer."""
        ...

    def check_goes_on(self) -> None:
        """Raise what has paused the task, if something has."""
        ...

    async def ask(self, question: str, expected_type: Any, choices: Sequence[Any] | None) -> Any:
        """Return the answer, or pause the task."""
        ...

    async def ask_auth(self, text: str, url: LoginUrl) -> Any:
        """Return the data the task was resumed with, or pause it."""
        ...


class Context:
    """The `ctx` of a run: its message, task, caller and conversation, and the methods to ask, report and send."""

    def __init__(
        self,
        live: LiveTask,
        call: CallContext,
        message: Message,
        *,
        clock: Clock,
        metadata: dict[str, Any] | None = None,
        first_metadata: dict[str, Any] | None = None,
        answers: tuple[AnsweredQuestion, ...] = (),
        state: dict[str, Any] | None = None,
        once: dict[str, Any] | None = None,
        in_doubt: frozenset[str] = frozenset(),
        followups: tuple[Message, ...] = (),
        progress_metadata: dict[str, Any] | None = None,
        restarted: bool = False,
        open_artifacts: tuple[str, ...] = (),
    ) -> None:
        self._live = live
        self._call = call
        # When the message came of a caller who waits for the first output; 0 once there is some, or if nobody does.
        self._waiting_since = call.arrived
        self._once = once if once is not None else {}
        self._in_doubt = in_doubt
        self._once_locks: KeyedLocks | None = None
        self._effects = 0  # calls of `once` that have started and whose result is not durable yet
        self._followups = followups
        self.clock = clock
        self.message = message
        self.metadata: dict[str, Any] = {**(message.metadata or {}), **(metadata or {})}
        # The message that created the task, and its metadata: they choose the skill, whatever later messages say.
        self.first_message = live.folding.history[0] if live.folding.history else message
        self.first_metadata: dict[str, Any] = {**(self.first_message.metadata or {}), **(first_metadata or {})}
        self.answers = answers
        self.restarted = restarted
        self.state: dict[str, Any] = state if state is not None else {}
        self.skill = ""
        # How long a chunk of text may be held back, in seconds, until it is known whether it is the last.
        self.output_hold = 0.0
        self.progress_metadata = progress_metadata
        # What an agent that writes its own statuses says next: the run's question or end keeps its id and metadata.
        self.next_status: AgentStatus | None = None
        self.ask_handler: AskHandler | None = None
        self.pending_calls: ContextCalls | None = None
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self.artifact_stream = ArtifactStream(live, open_artifacts) if open_artifacts else None

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The agent's logger; its records carry `task` and `context`."""
        if self._log is None:
            self._log = logging.LoggerAdapter(logger, {"task": self._live.row.id, "context": self._live.row.context_id})
        return self._log

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._live.row.id

    @property
    def context_id(self) -> str:
        """The conversation's id."""
        return self._live.row.context_id

    @property
    def session_id(self) -> str:
        """A UUID for the conversation, unique also when callers choose the same context id."""
        return session_id(self._live.row.scope, self._live.row.context_id)

    @property
    def user(self) -> User | None:
        """The authenticated caller, or None."""
        return self._call.user

    @property
    def tenant(self) -> str:
        """The tenant of the request, or an empty string."""
        return self._call.tenant

    @property
    def extensions(self) -> frozenset[str]:
        """The protocol extensions this request activated."""
        return self._call.extensions

    @property
    def asks(self) -> bool:
        """False when the caller cannot be asked for missing arguments."""
        return self._call.asks

    @property
    def latest(self) -> Message:
        """The newest message of the caller: the last answer or follow-up, else the message that created the task.

        It is the same wherever the run is: one that starts again from the top after an answer sees that answer from
        its first line on.
        """
        history = self._live.folding.history
        return next((message for message in reversed(history) if message.role is not Role.AGENT), self.message)

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text

    @property
    def data(self) -> Any:
        """The value of the message's first data part, or None."""
        return self.message.data

    @property
    def files(self) -> list[Part]:
        """The files of the message."""
        return self.message.files

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation of this task so far: its messages without those of `progress`."""
        return tuple([message for message in self._live.folding.history if not message.is_progress])

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts of this task so far."""
        return self._live.folding.task().artifacts

    @property
    def resume(self) -> AnsweredQuestion | None:
        """The last question and its answer when this run continues after a pause, else None."""
        return self.answers[-1] if self.answers else None

    @property
    def cancelled(self) -> bool:
        """True once this run's output is ignored: the task was ended or the server stops. Threads should poll it."""
        return self._live.phase.is_over

    @property
    def has_open_effect(self) -> bool:
        """True while a call of `once` is under way: if the run stopped now, nobody could know whether it happened."""
        return self._effects > 0

    @property
    def _drops_output(self) -> bool:
        """True when the run is over, or repeats what is in the journal already."""
        return self._live.phase.is_over or (self.ask_handler is not None and self.ask_handler.replaying)

    # -- actions ---------------------------------------------------------------------------------------------------

    @overload
    async def ask(self, question: str) -> str: ...
    @overload
    async def ask(self, question: str, type: type[T], choices: Sequence[T] | None = None) -> T: ...
    @overload
    async def ask(self, question: str, *, choices: Sequence[T]) -> T: ...
    @must_be_awaited
    async def ask(self, question: str, type: Any = str, choices: Sequence[Any] | None = None) -> Any:
        """Pause in input-required until the caller answers; ask again when the answer does not fit the type.

        Raises:
            ConfigError: in a low-level `run`, which pauses with `yield Ask(...)` instead.
        """
        return await self._require_ask_handler().ask(question, type, choices)

    @must_be_awaited
    async def ask_auth(self, text: str, url: LoginUrl = None) -> Any:
        """Pause in auth-required until `app.resume` continues the task, and return the data that it brings.

        `url` is the link of the login, or a function that makes it of the handle of this pause, which `app.resume`
        takes: `url=lambda handle: f"https://login.example.com/?state={handle}"`. Messages of the caller are kept, and
        answer nothing.

        Raises:
            ConfigError: in a low-level `run`, which pauses with `yield Ask(..., auth=True)` instead.
        """
        return await self._require_ask_handler().ask_auth(text, url)

    def _require_ask_handler(self) -> AskHandler:
        if self.ask_handler is None:
            raise ConfigError("a low-level run pauses with `yield Ask(question, ref=...)`, not with ctx.ask")
        return self.ask_handler

    @must_be_awaited
    async def once(self, key: str, fn: Callable[..., Any], *args: Any, retry: bool = False) -> Any:
        """Call `fn` at most once per task, however often the run starts again, and return its JSON result.

        A note that the call starts is durable before `fn` is called. When the process ends before the result is
        durable, nobody can know whether the effect happened: a later run fails and says so, or calls `fn` again with
        `retry=True`, which is for idempotent effects. A call that raises counts as not having happened.

        Code that cleans up may still run when its run does not go on in this process: it was lost, the server stops, or
        the task waits for an answer. Then nothing is called, because the next run does it. After a cancel that is
        stored it may be called.

        Raises:
            Failed: the call was started in an earlier process, and may or may not have happened.
            TypeError: the result has no JSON form.
            ServerError: the note cannot be stored, or the run does not go on here: `fn` was not called.
        """
        if self._once_locks is None:
            self._once_locks = KeyedLocks()
        async with self._once_locks.hold(key):
            if key in self._once:
                return self._once[key]
            if key in self._in_doubt and not retry:
                raise Failed(describe_in_doubt(frozenset((key,))))
            self._effects += 1
            try:
                self._once[key] = await self._call_once(key, fn, *args, retry=retry)
            finally:
                self._effects -= 1
            return self._once[key]

    async def _check_may_act(self, key: str) -> None:
        """Raise RunEnded, or what has paused the task, unless the run goes on here or its task has ended for good."""
        if self.ask_handler is not None:
            self.ask_handler.check_goes_on()
        self.check_runs_here(key)
        if run_end(self._live) is not None and await self.journaled_end() is None:
            raise _run_over(key, run_end(self._live) or RunEnd.LOST, self.task_id)

    async def _call_once(self, key: str, fn: Callable[..., Any], *args: Any, retry: bool) -> Any:
        await self._check_may_act(key)
        if not self._live.phase.has_ended:
            if not retry:
                await self._live.note("begun", key.encode())
            await self._live.journal.wait_lease()
            await self._check_may_act(key)  # what was waited for takes time
        try:
            result = await _call(fn, *args)
        except asyncio.CancelledError:
            raise
        except BaseException:
            if not self._live.phase.is_over:
                self._live.queue_note("once", msgspec.json.encode({"key": key}))
            raise
        body = msgspec.json.encode({"key": key, "value": json_of(result)})
        if not self._live.phase.has_ended:
            await self._live.note("once", body)
        return msgspec.json.decode(body)["value"]

    @must_be_awaited
    async def progress(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Send a progress message to the caller, as a WORKING status. The last 50 stay in the task's history."""
        if self._drops_output:
            return
        progress = {key: value for key, value in (("done", done), ("total", total)) if value is not None}
        parts = (Part(text=text, metadata=self.progress_metadata),)
        message = agent_message(self._live, parts, {PROGRESS_KEY: progress or True})
        self._live.status(State.WORKING, message, metadata=progress or None)
        await self._live.drain()

    async def update_status(self, message: Message | None, metadata: dict[str, Any] | None = None) -> None:
        """Send a message as progress, with its own id, or the metadata alone; for agents that write their statuses."""
        if self._drops_output:
            return
        if message is not None:
            marked = {**(message.metadata or {}), PROGRESS_KEY: True}
            message = Message(message.message_id, Role.AGENT, message.parts, self.context_id, self.task_id, marked)
        self._live.status(State.WORKING, message, metadata=metadata)
        await self._live.drain()

    @must_be_awaited
    async def artifact(
        self, *values: Any, name: str | None = None, id: str | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Send a complete artifact besides the run's outputs.

        Raises:
            TypeError: a value has no JSON form.
            OSError: a file cannot be read.
        """
        if self._drops_output:
            return
        parts = parts_of_all(values)
        number = self._live.artifact_number()
        await self.update_artifact(Artifact(id or f"artifact-{number}", parts, name, metadata=metadata))

    async def update_artifact(
        self,
        artifact: Artifact,
        *,
        append: bool = False,
        last_chunk: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Send an artifact, or a chunk of one; for agents that manage their own artifacts.

        It is sent as given, except that a streamed text ends as the caller reads it.
        """
        if self._drops_output:
            return
        if METRICS.on:
            self.record_output()
        if last_chunk and not append and not self._live.folding.has_artifact(artifact.artifact_id):
            # New and complete: nothing is streamed.
            self._live.emit(ArtifactUpdate(self.task_id, self.context_id, artifact, append, last_chunk, metadata))
        else:
            if self.artifact_stream is None:
                self.artifact_stream = ArtifactStream(self._live)
            self.artifact_stream.write(artifact, append=append, last_chunk=last_chunk, metadata=metadata)
        await self._live.drain()

    async def journaled_end(self) -> State | None:
        """Return the final state that the journal has for the task; None while it may go on somewhere; for bridges.

        What a run has begun elsewhere may be canceled when this is CANCELED or FAILED, and only then: a run also ends
        when its process stops or has lost the task, and then the next run follows what this one has begun.
        """
        return await journaled_end(self._live)

    def on_failed(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call back if the store has refused a write and the task is failed later, when the run is over; for bridges.

        The callback raises nothing.
        """
        self._live.set_on_failed(callback)

    def check_runs_here(self, key: str) -> None:
        """Raise ServerError when an effect must be left to the next run; any thread may ask.

        A run that was lost or has ended passes: what the journal says about it decides.
        """
        end = run_end(self._live)
        if end not in (None, RunEnd.ENDED, RunEnd.LOST):
            raise _run_over(key, end, self.task_id)

    def record_output(self) -> None:
        """Record how long a caller who streams has waited for the first output of the run. Does nothing after that."""
        since, self._waiting_since = self._waiting_since, 0.0
        if since:
            METRICS.first_tokens.observe(perf_counter() - since, (self._live.row.scope.agent, chosen_skill(self)))

    def open_task(self) -> None:
        """Make a task of a message that might be answered without one, before there is any output; for bridges."""
        self._live.open()

    async def messages(self) -> AsyncIterator[Message]:
        """Yield the follow-up messages that the caller sends while the task works. Ends with the run."""
        live = self._live
        while not live.phase.is_over:
            if live.follow_ups:
                yield live.follow_ups.pop()
            else:
                await live.follow_ups.wait()

    def replay_followups(self) -> None:
        """Make `messages` yield the follow-ups of earlier runs again, for an agent that starts again from the top."""
        if self._followups:
            self._live.follow_ups.add_before(self._followups)
            self._followups = ()


async def _call(fn: Callable[..., Any], *args: Any) -> Any:
    if inspect.iscoroutinefunction(fn):
        return await fn(*args)
    result = await in_thread(fn, *args)
    return await result if inspect.isawaitable(result) else result


def _run_over(key: str, end: RunEnd, task_id: str) -> RunEnded:
    return RunEnded(f"`{key}` was not called: {end.value}", taskId=task_id)


def describe_in_doubt(effects: frozenset[str]) -> str:
    """Build the error text for `once` calls that were started when the process ended."""
    names = ", ".join(f"`{key}`" for key in sorted(effects))
    return f"{names} may or may not have happened: the server stopped in the middle of it"


def agent_message(live: LiveTask, parts: tuple[Part, ...], metadata: dict[str, Any] | None = None) -> Message:
    """Build a message from the agent within a task."""
    return Message(new_id(), Role.AGENT, parts, live.row.context_id, live.row.id, metadata)


def chosen_skill(ctx: Context) -> str:
    """Return the skill that the message has chosen; empty when it is the agent as a whole that runs."""
    # Bridges to other agents and executors use a name of their own there.
    return "" if (skill := ctx.skill)[:9] == "dragoman." else skill
