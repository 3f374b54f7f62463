"""Schedules runs: one at a time per conversation, unless the agent allows more."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from msgspec import structs

from dragoman.engine.execute.containment import RunOwner, find_run_owner, set_run_owner
from dragoman.engine.execute.context import Context
from dragoman.engine.execute.run import Run
from dragoman.engine.execute.run_log import RunLog
from dragoman.engine.execute.run_log import logger as run_logger
from dragoman.engine.execute.traces import run_in_span
from dragoman.engine.journal.live import Form
from dragoman.engine.journal.phase import Phase
from dragoman.engine.quota import caller_of
from dragoman.model.user import User
from dragoman.telemetry import trace
from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.telemetry.loop import RunningSkill
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context as ContextVariables

    from dragoman.engine.call import CallContext, Closing
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.replay import RunHistory
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.agent import Plan, Runnable
    from dragoman.engine.ports.store import TaskRow, Verdict
    from dragoman.engine.quota import Quota
    from dragoman.engine.settings import EngineSettings
    from dragoman.model.message import Message
    from dragoman.model.task import Task

logger = logging.getLogger("dragoman.engine")
# How long canceled runs may take to clean up when the server stops.
CANCEL_GRACE_SECONDS = 3
# In metrics, the state of a run whose answer was a message without a task.
REPLIED = "REPLIED"


class Runner:
    """Starts and queues the runs of one agent's tasks. Runs of one conversation are serialized unless `parallel`.

    `on_paused` is called when a run has paused its task, and `on_broken` when one is over because the store has refused
    a write.
    """

    def __init__(
        self,
        agent: Runnable,
        tasks: Tasks,
        quota: Quota,
        settings: EngineSettings,
        on_paused: Callable[[TaskRow], None] | None = None,
        on_broken: Callable[[LiveTask], None] | None = None,
    ) -> None:
        self.agent = agent
        self.tasks = tasks
        self.quota = quota
        self.settings = settings
        self.is_retired = False  # nothing begins here any more
        self._on_paused = on_paused
        self._on_broken = on_broken
        self.run_log = RunLog(agent.name, tasks.clock)
        self._parallel = agent.parallel
        self._shared = tasks.ownership.shared
        self._pinned = tasks.journal.pins
        # Runs that wait for their turn, each with the context variables of the request that has started it.
        self._queues: dict[tuple[object, str], deque[tuple[Run, ContextVariables]]] = {}
        self._workers: dict[asyncio.Task[None], Run] = {}
        # None: as the caller who creates the task reads it.
        closing = agent.closing if settings.closing == "auto" else settings.closing
        self._closing: Closing | None = None if closing == "auto" else closing
        self.closing_message = agent.closing_message or settings.closing_message
        metadata = agent.output_metadata
        self._progress_metadata = None if metadata is None else metadata.progress or None
        self.failure_metadata = None if metadata is None else metadata.failure or None

    def __len__(self) -> int:
        """The number of runs that are executing now."""
        return len(self._workers)

    def hide_unfinished(self, task: Task) -> Task:
        """Return a task as who polls it sees it: with `closing_message`, without artifacts as long as it is at work.

        Clients that only read an answer once it is whole may keep the first artifact they see.
        """
        is_hidden = self.closing_message and not (task.state.final or task.state.waiting)
        return structs.replace(task, artifacts=()) if is_hidden else task

    def build_context(
        self,
        live: LiveTask,
        call: CallContext,
        message: Message,
        history: RunHistory,
        metadata: dict[str, Any] | None,
        *,
        answer: Message | None = None,
        restarted: bool = False,
    ) -> Context:
        """Build the context of a run from what is stored about its task; `answer` is one that is not stored yet."""
        first_call = history.call(live.row)
        closing, text_only = self._closing or first_call.closing, self.settings.data_as_text or first_call.text_only
        if text_only or closing != live.form.closing:
            live.set_form(Form(closing, text_only))
        return Context(
            live,
            call,
            message,
            clock=self.tasks.clock,
            metadata=metadata,
            first_metadata=history.request.metadata if history.request else None,
            progress_metadata=self._progress_metadata or first_call.progress_metadata,
            answers=history.answered_questions(answer),
            once=history.once,
            in_doubt=history.in_doubt,
            followups=history.followups,
            restarted=restarted,
            open_artifacts=history.questions[-1].open_artifacts if history.questions else (),
        )

    def build_first_context(
        self, live: LiveTask, call: CallContext, message: Message, metadata: dict[str, Any] | None
    ) -> Context:
        """Build the context of the first run of a new task, which has no history yet."""
        closing, text_only = self._closing or call.closing, self.settings.data_as_text or call.text_only
        if text_only or closing != live.form.closing:
            live.set_form(Form(closing, text_only))
        return Context(
            live,
            call,
            message,
            clock=self.tasks.clock,
            metadata=metadata,
            first_metadata=metadata,
            progress_metadata=self._progress_metadata or call.progress_metadata,
        )

    def create(
        self,
        live: LiveTask,
        ctx: Context,
        plan: Plan,
        *,
        new_context: bool,
        draft: bool,
        caller: str,
        parent: dict[str, str] | None = None,
    ) -> Verdict | None:
        """Write a new task and start or queue its run. When it starts at once, WORKING is in the same write.

        `parent` is the trace context of the request, if it is to be kept. In a store that other processes share, a task
        that cannot run here is left in the store for any of them. Returns what the store says of the task: nothing
        starts for a duplicate.
        """
        if self._shared:
            if not self.may_run_here(new_context=new_context):
                return live.create(queued=True)
            if draft:
                verdict = live.write_draft()
            else:
                verdict = live.create(starts=(self._parallel or new_context) and plan.prepare is None)
            self._start(Run(self, live, ctx, plan, caller, new_context=new_context, parent=parent))
            return verdict
        starts_now = self._parallel or (live.row.scope, live.row.context_id) not in self._queues
        verdict = live.write_draft() if draft else live.create(starts=starts_now and plan.prepare is None)
        if verdict is None or not verdict.duplicate_of:
            if draft and starts_now and plan.prepare is None:
                live.begin()
            self._enqueue(Run(self, live, ctx, plan, caller, new_context=new_context, parent=parent), starts_now)
        return verdict

    def begin(
        self,
        live: LiveTask,
        ctx: Context,
        plan: Plan,
        *,
        attempt: int | None = None,
        caller: str | None = None,
        parent: dict[str, str] | None = None,
        link: dict[str, str] | None = None,
    ) -> None:
        """Start or queue a run of an existing task. `attempt` counts the starts of a restartable run.

        `parent` and `link` are trace contexts: of the request, or of the task when it is restarted; and of the task
        when the request is another one.
        """
        run = Run(self, live, ctx, plan, caller, attempt=attempt, parent=parent, link=link)
        if self._shared:  # the store decides when it begins
            self._start(run)
            return
        starts_now = self._parallel or (live.row.scope, live.row.context_id) not in self._queues
        self._enqueue(run, starts_now)
        if starts_now and plan.prepare is None:
            live.begin()

    def may_run_here(self, *, new_context: bool = False) -> bool:
        """False when a run is left to other processes: here are too many, or its session may be elsewhere."""
        ownership = self.tasks.ownership
        if ownership.free_runs <= 0 or ownership.expired:
            return False
        return new_context or not self._pinned or ownership.is_home

    def runs(self) -> Iterator[Run]:
        """The runs that are executing now."""
        return iter(self._workers.values())

    def find(self, worker: asyncio.Task[Any]) -> RunningSkill | None:
        """Return the skill that an asyncio task runs; None when it runs none. Any thread may ask."""
        run = self._workers.get(worker)
        if run is not None:
            return RunningSkill(self.agent.name, run.skill, run.live.row.id)
        owner = find_run_owner(worker)  # of a task that a run has created
        return None if owner is None else RunningSkill(owner.agent, owner.skill, owner.task)

    def _start(self, run: Run) -> None:
        live = run.live
        self.tasks.add(live)
        self._spawn((live.row.scope, live.row.context_id), run, copy_context())

    def _enqueue(self, run: Run, starts_now: bool) -> None:
        live = run.live
        key = (live.row.scope, live.row.context_id)
        self.tasks.add(live)
        if starts_now:
            self._queues.setdefault(key, deque())
            self._spawn(key, run, copy_context())
        else:
            context = copy_context()
            if LOG_CONTEXT.on:  # a request is large, and may wait for hours
                context.run(LOG_CONTEXT.request.set, None)
            self._queues[key].append((run, context))
            if self.tasks.store.durable:
                live.unload(run.unload)

    def _spawn(self, key: tuple[object, str], run: Run, context: ContextVariables) -> None:
        # Bypass the loop's task factory, which contains exceptions of agents: a run does that itself.
        scope, caller = run.live.row.scope, run.caller
        if caller is None:
            caller = caller_of(User(scope.owner)) if scope.owner else ""
        context.run(set_run_owner, RunOwner(scope.agent, caller, run.live.row.id, run.live.row.context_id, ref(run)))
        if LOG_CONTEXT.on:
            context.run(LOG_CONTEXT.request.set, None)
        if run.parent is not None:
            context.run(trace.restore, run.parent)
        is_traced = TRACING.on and (run.parent is not None or not context.run(TRACING.is_unsampled))
        content = self.settings.otel_content
        work = run_in_span(run, self.agent.name, content=content) if is_traced else run.work()
        worker = asyncio.Task(work, loop=asyncio.get_running_loop(), context=context)
        run.live.attach(worker)
        self._workers[worker] = run
        self.tasks.ownership.count_run(1)
        # A callback, because a run that is canceled before it starts executes none of its code.
        worker.add_done_callback(partial(self._on_done, key, run), context=context)

    def _on_done(self, key: tuple[object, str], run: Run, worker: asyncio.Task[None]) -> None:
        live = run.live
        self._workers.pop(worker, None)
        self.tasks.ownership.count_run(-1)
        if not worker.cancelled() and (error := worker.exception()) is not None:
            logger.error("the run of task %s raised an exception", live.row.id, exc_info=error)
        self._release(live)
        if self._on_paused is not None and live.row.state.waiting and not live.phase.is_broken:
            self._on_paused(live.row)
        if run_logger.isEnabledFor(logging.INFO):
            self.run_log.add(run)
        if METRICS.on and ((state := live.row.state).final or state.waiting or live.outcome.reply is not None):
            # As the journal and the log of tasks have it, to the millisecond; the clock may have been set back.
            began, ended = run.began_ms, live.row.status_ms
            seconds = (ended - began) / 1000 if ended > began > 0 else 0.0
            outcome = state if live.outcome.reply is None else REPLIED
            METRICS.tasks.observe(seconds, (self.agent.name, run.skill, outcome))
        queue = self._queues.get(key)
        while queue:
            run, context = queue.popleft()
            if not run.live.phase.has_ended:
                self._spawn(key, run, context)
                return
            self._release(run.live)
        self._queues.pop(key, None)

    def _release(self, live: LiveTask) -> None:
        self.quota.end_run(live)
        self.tasks.release(live)
        if live.phase is Phase.REFUSED and self._on_broken is not None:
            self._on_broken(live)

    def retire(self) -> None:
        """Begin nothing more. What has not begun is left to other processes."""
        self.is_retired = True

    async def interrupt(self, seconds: float) -> None:
        """Drop the queued runs and cancel the others, which had so many seconds to end."""
        self.run_log.flush()
        waiting = [run.live for queue in self._queues.values() for run, _ in queue]
        self._queues.clear()
        if self._workers and seconds > 0:
            noun = "task was" if len(self._workers) == 1 else "tasks were"
            logger.warning("%d %s still running after %g s and will be interrupted", len(self._workers), noun, seconds)
        for live in waiting:
            self._release(live)
        self.tasks.journal.stop()
        for worker, run in list(self._workers.items()):
            if self._shared and not run.live.phase.is_over:
                run.live.lose()  # it cancels the run, and whoever waits for the task goes on from its journal
            else:
                worker.cancel()
        await self.wait_idle(CANCEL_GRACE_SECONDS)
        if self._workers:
            logger.error(
                "the code of %d canceled %s does not stop: the next start recovers the tasks",
                len(self._workers),
                "task" if len(self._workers) == 1 else "tasks",
            )

    async def wait_idle(self, seconds: float) -> None:
        """Wait until no run is executing or queued, at most so many seconds."""
        timeout: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.tasks.clock.call_later(seconds, lambda: timeout.done() or timeout.set_result(None))
        try:
            while self._workers and not timeout.done():
                await asyncio.wait((*self._workers, timeout), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            timeout.cancel()
