"""One run of an agent: iterates its generator and turns outputs into events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.clock import sleep
from dragoman.engine.execute.context import agent_message, chosen_skill
from dragoman.engine.execute.context_calls import ForgottenAwait
from dragoman.engine.execute.outputs import Ask, Done, Reply, ResultWriter, json_of, parts_of, parts_of_all, plain_text
from dragoman.engine.execute.public_error import error_mark, public_error
from dragoman.engine.execute.traces import error_type
from dragoman.engine.handle import digest_of, new_handle
from dragoman.engine.journal.phase import Phase
from dragoman.engine.journal.replay import OpenQuestion
from dragoman.engine.journal.run_end import RunEnded
from dragoman.model.error import A2AError, Failed, InternalError, InvalidAgentResponse, Rejected, ServerError
from dragoman.model.json import encode
from dragoman.model.message import ANSWER_KEY, ERROR_KEY
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.engine.execute.artifact_stream import ArtifactStream
    from dragoman.engine.execute.context import Context
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.agent import Plan
    from dragoman.model.message import Message

logger = logging.getLogger("dragoman.engine")
# Skills that were warned about already: one warning each is enough.
_WARNED_SKILLS: set[str] = set()
# The longest text that `closing_message` repeats. The answer itself is in the artifacts.
MAX_CLOSING_TEXT = 64_000
# The pause between two tries to read the state of a conversation from a store that does not answer.
STATE_RETRY_SECONDS = 1


class Run:
    """One run of the agent's code for a task.

    Its start is durable before the agent's code is called, unless the run may be repeated after a crash or the store is
    not durable. The end of the generator completes the task and an exception fails it; a cancellation is raised where
    the generator waits. `attempt` counts the runs of a restartable task that was recovered after a crash; None for
    other runs. `new_context` is True for the first task of a conversation. `caller` is the quota key; None stands for
    the task's owner. `parent` is the trace context that the run belongs to, empty if that is none, and None for the
    current one; `link` is that of the task where it is another one: an answer has a trace of its own.
    """

    def __init__(
        self,
        runner: Runner,
        live: LiveTask,
        ctx: Context,
        plan: Plan,
        caller: str | None = None,
        *,
        new_context: bool = False,
        attempt: int | None = None,
        parent: dict[str, str] | None = None,
        link: dict[str, str] | None = None,
    ) -> None:
        self.live = live
        self.caller = caller
        self.parent = parent
        self.link = link
        self.attempt = attempt
        # What the agent has raised, by its name: the exception itself would keep all its frames.
        self.error = ""
        self.began_ms = 0  # when the agent's code was called, once it was
        self._runner = runner
        self._ctx: Context | None = ctx
        self._plan = plan
        self._new_context = new_context
        # That of a new conversation is empty; that of another is read when the run begins.
        self._context_state_before: bytes | None = b"{}" if new_context else None
        # A draft becomes a task when its reply takes too long.
        self._open_timer = None
        if live.phase.is_draft:
            self._open_timer = runner.tasks.clock.call_later(runner.settings.reply_within, live.open)

    @property
    def skill(self) -> str:
        """The skill that runs; empty when it is the agent as a whole, or not chosen yet."""
        return "" if self._ctx is None else chosen_skill(self._ctx)

    @property
    def message(self) -> Message | None:
        """The message that it handles; None while the run is unloaded."""
        return None if self._ctx is None else self._ctx.message

    def unload(self) -> None:
        """Free the context and the leases of a queued run; `_restore_context` rebuilds them from the store."""
        self._ctx = None
        self._runner.quota.suspend_leases(self.live)

    async def work(self) -> None:
        """Run until the task ends or pauses. What the agent raises ends the task and is not raised here.

        Raises:
            CancelledError: this asyncio task was canceled, as when the server stops.
            A2AError: an unloaded run could not be restored from the store.
        """
        live, attempt = self.live, self.attempt
        ctx = self._ctx
        if ctx is None:
            self._ctx = ctx = await self._restore_context()
        if attempt is not None:
            live.queue_note("attempt", str(attempt).encode())
        try:
            if not live.phase.has_ended:
                await self._execute(ctx)
        except asyncio.CancelledError:
            if live.journal.stopping and not live.phase.is_over and self.is_restartable:
                # The server stops: unlike a crash, that is not counted as an attempt.
                live.queue_note("attempt", str((attempt or 1) - 1).encode())
            raise
        finally:
            if self._open_timer is not None:
                self._open_timer.cancel()
        with contextlib.suppress(ServerError):
            await live.wait_durable()

    @property
    def is_restartable(self) -> bool:
        """True when the run may be repeated after a crash."""
        return self._runner.tasks.store.durable and may_restart(self._plan)

    @property
    def has_open_effect(self) -> bool:
        """True while the run calls a function with `ctx.once`."""
        return self._ctx is not None and self._ctx.has_open_effect

    async def _restore_context(self) -> Context:
        """Rebuild the context with the message read from the store."""
        live, runner = self.live, self._runner
        runner.quota.resume_leases(live)
        await runner.tasks.reload(live)
        history = await runner.tasks.run_history(live.row)
        metadata = history.request.metadata if history.request else None
        ctx = runner.build_context(live, history.call(live.row), live.folding.history[0], history, metadata)
        self._plan = runner.agent.plan(ctx)
        return ctx

    async def _execute(self, ctx: Context) -> None:
        live, plan = self.live, self._plan
        outputs: AsyncIterator[Any] | None = None
        try:
            if not await self._begin(ctx):
                return
            outputs = plan.run(ctx)
            await self._drive(ctx, outputs)
        except Rejected as error:
            self.error = error_type(error)
            self._end(State.REJECTED, _text_part(str(error)))
        except Failed as error:
            self.error = error_type(error)
            self._end(State.FAILED, _text_part(str(error)))
        except A2AError as error:
            self.error = error_type(error)
            self._fail(error)
        except BaseException as error:
            # Whatever an agent raises fails its task and never the server; that includes a CancelledError of its own.
            # When this asyncio task is canceled and the task has not ended, the server stops: recovery handles it.
            if isinstance(error, asyncio.CancelledError) and not live.phase.has_ended and _is_being_cancelled():
                raise
            # Not raised by the agent: the loop was closed.
            if isinstance(error, GeneratorExit) and _current_task() is not live.worker:
                raise
            self.error = error_type(error)
            self._end(State.FAILED, () if live.phase.has_ended else _text_part(self._log_and_describe(error)))
        finally:
            await _close(outputs)

    async def _begin(self, ctx: Context) -> bool:
        """Prepare the run and begin it. False when it is over before the agent's code is called."""
        live, plan, runner = self.live, self._plan, self._runner
        if plan.prepare is not None:
            if not live.durability.is_decided:  # nothing is prepared for a repeat
                await live.wait_accepted()
            await plan.prepare(ctx)
        if live.phase.has_ended:
            return False
        if live.phase is Phase.QUEUED and runner.is_retired:  # it has not begun, and is not to begin here any more
            await live.wait_accepted()
            live.lose()
            return False
        live.begin()
        self.began_ms = live.row.status_ms
        # WORKING must be durable before the agent's code runs, so that recovery knows it may have started. A
        # restartable run need not wait, nor one in a store that ends with the process. Tasks with plug-in rows
        # always wait: readers of those rows must see WORKING before any effect.
        # And so does a run that the store has not accepted yet: the message may be a repeat, or its context busy.
        must_wait = self.attempt is not None or live.has_rows or not live.durability.is_decided
        if must_wait or (runner.tasks.store.durable and not may_restart(plan)):
            await live.wait_durable()
        # Only now is it this run's turn: until then, another task of the conversation may change its state.
        if not self._new_context:
            await self._load_state(ctx)
        if live.journal.ownership.expired:
            await live.journal.wait_lease()
        return not live.phase.has_ended

    async def _load_state(self, ctx: Context) -> None:
        saved = await self._read_state()
        ctx.state.update(msgspec.json.decode(saved) if saved else {})
        self._context_state_before = msgspec.json.encode(ctx.state) if ctx.state else b"{}"

    async def _read_state(self) -> bytes | None:
        tasks, row = self._runner.tasks, self.live.row
        while True:
            try:
                return await tasks.store.context_state(row.scope, row.context_id)
            except ServerError:
                # A store that does not answer for a while must not fail a task that has begun.
                if self.live.phase.has_ended:
                    raise
            await sleep(tasks.clock, STATE_RETRY_SECONDS)

    async def _drive(self, ctx: Context, outputs: AsyncIterator[Any]) -> None:
        live = self.live
        writer: ResultWriter | None = None
        closing: tuple[Part, ...] | None = None
        async for value in outputs:
            if live.phase.has_ended:
                return
            if ctx.pending_calls is not None:
                ctx.pending_calls.check(value)
            if closing is not None and value is not None:
                raise InvalidAgentResponse(f"Done must be the last output: {type(value).__name__} followed it")
            if isinstance(value, Reply):
                self._reply(ctx, value, has_pending_text=writer is not None and writer.has_pending_text)
                return
            if live.phase.is_draft:
                live.open()
            if writer is None:
                writer = self._result_writer(ctx, is_first=value is not None)
            if isinstance(value, Ask):
                writer.pause()
                self._pause(value, ctx.artifact_stream)
                return
            if isinstance(value, Done):
                closing = parts_of_all(value.values)
                continue
            writer.write(value)
            if live.needs_drain:
                await live.drain()
        if not live.phase.has_ended:
            # A run without output may still have to close a text that was started before a pause.
            self._complete(ctx, writer or self._result_writer(ctx), closing or ())

    def _complete(self, ctx: Context, writer: ResultWriter, closing: tuple[Part, ...]) -> None:
        if ctx.pending_calls is not None:
            ctx.pending_calls.check()
        if self.live.phase.is_draft:
            self.live.open()
        if ctx.artifact_stream is not None:
            ctx.artifact_stream.close()
        writer.close()
        answer = self._repeated_answer() if self._runner.closing_message else ()
        message = self._message(closing or answer) if closing or answer else None
        metadata = None if ctx.next_status is None else ctx.next_status.metadata
        if not answer:
            self.live.status(State.COMPLETED, message, metadata=metadata, context_state=self._changed_context_state())
            return
        # Some clients read the answer from the history alone.
        kept = agent_message(self.live, answer) if closing or message is None else message
        self.live.status(
            State.COMPLETED,
            message,
            notes=(("message", encode(kept)),),
            history_message=kept,
            metadata=metadata,
            context_state=self._changed_context_state(),
        )

    def _result_writer(self, ctx: Context, *, is_first: bool = False) -> ResultWriter:
        if is_first and METRICS.on:
            ctx.record_output()
        name = ctx.skill or self._runner.agent.name
        return ResultWriter(self.live, f"{name}-result", restarted=ctx.restarted, hold=ctx.output_hold)

    def _reply(self, ctx: Context, reply: Reply, *, has_pending_text: bool) -> None:
        live = self.live
        if METRICS.on:
            ctx.record_output()
        message = agent_message(live, parts_of(reply.value))
        if live.phase.is_draft:
            live.finish_with_reply(msgspec.structs.replace(message, task_id=None))
        elif live.folding.artifact_count() or has_pending_text:
            raise InvalidAgentResponse("a Reply must be the only output")
        else:
            if not self._plan.replies:
                _warn_of_reply(ctx, ctx.skill or self._runner.agent.name)
            live.status(State.COMPLETED, message, context_state=self._changed_context_state())

    def _pause(self, ask: Ask, artifacts: ArtifactStream | None) -> None:
        metadata = None if ask.schema is None else {ANSWER_KEY: ask.schema}
        link, digest = self._login(ask) if ask.auth and not ask.forwards else ((), "")
        message = self._message((Part(text=ask.question), *link, *parts_of_all(ask.details)), metadata)
        state = State.AUTH_REQUIRED if ask.auth else State.INPUT_REQUIRED
        open_artifacts = () if artifacts is None else artifacts.open_ids
        question = OpenQuestion(ask.question, json_of(ask.ref), open_artifacts, digest, ask.forwards)
        body = msgspec.json.encode(question)
        self.live.status(
            state,
            message,
            notes=(("ask", body),),
            metadata=self._status_metadata(),
            context_state=self._changed_context_state(),
        )

    def _login(self, ask: Ask) -> tuple[tuple[Part, ...], str]:
        """Make the handle of a pause for a login. Returns its link and the digest of the handle: nothing else is kept.

        Raises:
            TypeError: `url` is neither text nor a plain function that returns some.
        """
        live = self.live
        handle = new_handle(live.row.scope.agent, live.row.id)
        url = ask.url(handle) if callable(ask.url) else ask.url
        if url is not None and not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"url= must be text, or a plain function that returns it, not {type(url).__name__}")
        if not callable(ask.url) and self._ctx is not None:
            self._ctx.log.warning(
                "the task waits for a login that nobody can report: app.resume takes a handle, which ask_auth gives to "
                "url= if that is a function, such as `url=lambda handle: f'https://...&state={handle}'`"
            )
        return () if url is None else (Part(url=plain_text(url)),), digest_of(handle)

    def _repeated_answer(self) -> tuple[Part, ...]:
        """The text of the artifacts as a closing message; nothing when they hold no text."""
        text = self.live.folding.task().text
        if len(text) > MAX_CLOSING_TEXT:
            text = f"{text[: MAX_CLOSING_TEXT - 1]}…"
        return (Part(text=text),) if text else ()

    def _fail(self, error: A2AError) -> None:
        """Fail the task with a protocol error, which a caller who has no task yet gets itself."""
        live = self.live
        if live.phase.has_ended:
            return
        if isinstance(error, RunEnded):  # recovery handles it, as any run that is interrupted
            raise asyncio.CancelledError from error
        public = public_error(error, live.row.id)
        if public is None:
            self._end(State.FAILED, _text_part(self._log_and_describe(error)))
            return
        if isinstance(error, (InternalError, InvalidAgentResponse)):
            logger.error("task %s failed", live.row.id, exc_info=error)
        metadata = {**(self._runner.failure_metadata or {}), ERROR_KEY: error_mark(public)}
        message = agent_message(live, (Part(text=public.message),), metadata)
        live.fail(public, message, context_state=self._changed_context_state())

    def _end(self, state: State, parts: tuple[Part, ...] = ()) -> None:
        live = self.live
        if live.phase.has_ended:
            return
        metadata = self._runner.failure_metadata if state is State.FAILED else None
        message = self._message(parts, metadata) if parts else None
        if live.phase.is_draft:
            live.open()
        live.status(state, message, metadata=self._status_metadata(), context_state=self._changed_context_state())

    def _message(self, parts: tuple[Part, ...], metadata: dict[str, Any] | None = None) -> Message:
        """Build the message of a question or an end; it has the id and the metadata that the agent gave it, if any."""
        message = agent_message(self.live, parts, metadata)
        own = None if self._ctx is None or self._ctx.next_status is None else self._ctx.next_status.message
        if own is None:
            return message
        metadata = {**(own.metadata or {}), **(metadata or {})} or None
        return msgspec.structs.replace(message, message_id=own.message_id, metadata=metadata)

    def _status_metadata(self) -> dict[str, Any] | None:
        """Return the metadata that the agent gave the status of its question or end, if any."""
        return None if self._ctx is None or self._ctx.next_status is None else self._ctx.next_status.metadata

    def _changed_context_state(self) -> bytes | None:
        """The encoded `ctx.state`; None when the run has not changed it, or it is not JSON."""
        ctx = self._ctx
        if ctx is None or self._context_state_before is None:
            return None
        if not ctx.state and self._context_state_before == b"{}":
            return None
        try:
            after = msgspec.json.encode(json_of(ctx.state))
        except (TypeError, ValueError, RecursionError) as error:
            ctx.log.warning("ctx.state is not JSON and was not saved: %s", error)
            return None
        return after if after != self._context_state_before else None

    def _log_and_describe(self, error: BaseException) -> str:
        if self._ctx is not None and self._ctx.pending_calls is not None:
            try:
                self._ctx.pending_calls.check(error)
            except ForgottenAwait as forgotten:  # the likely cause
                error = forgotten
        reference = secrets.token_hex(3)
        logger.error("task %s failed, reference %s", self.live.row.id, reference, exc_info=error)
        if self._runner.settings.show_errors:
            if isinstance(error, ForgottenAwait):
                return str(error)
            return f"execution failed: {type(error).__name__}: {error} (reference {reference})"
        return f"execution failed: Internal error, reference {reference}"


def _text_part(text: str) -> tuple[Part, ...]:
    # Exception texts may contain lone surrogates, such as undecodable bytes of a file name.
    return (Part(text=text.encode(errors="replace").decode()),)


def _warn_of_reply(ctx: Context, name: str) -> None:
    if name not in _WARNED_SKILLS:
        _WARNED_SKILLS.add(name)
        ctx.log.warning(
            "`%s` returned a Reply but does not declare it: its callers get a task. "
            "Declare it with `@agent.skill(replies=True)`, `-> Reply`, or `Agent(run=..., replies=True)`",
            name,
        )


def may_restart(plan: Plan) -> bool:
    """True when the run may be repeated after a crash."""
    return plan.restarts() if callable(plan.restarts) else plan.restarts


def _is_being_cancelled() -> bool:
    worker = asyncio.current_task()
    return worker is not None and worker.cancelling() > 0


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # the loop was closed
        return None


async def _close(outputs: AsyncIterator[Any] | None) -> None:
    close = getattr(outputs, "aclose", None)
    if close is not None:
        try:
            await close()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except RunEnded as error:
            logger.debug("%s", error)
        except BaseException:
            logger.exception("an agent raised an exception while its generator was being closed")
