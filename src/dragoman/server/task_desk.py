"""The desk of session tasks: it takes a text, answers soon, is asked again, and watches the time."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import structs

from dragoman.clock import timestamp, wait
from dragoman.dialects.session_tasks import task_json
from dragoman.engine.ports import Scope
from dragoman.engine.session_id import session_id
from dragoman.model.error import A2AError, TaskNotFound
from dragoman.model.ids import new_id
from dragoman.model.message import DEPTH, Message
from dragoman.model.operation import GetTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dragoman.clock import Clock, Timer
    from dragoman.dialects.session_tasks import AskedTask, Json
    from dragoman.engine.accept.quota import Lease
    from dragoman.engine.call import Call
    from dragoman.engine.operations import Service
    from dragoman.engine.ports import Bus
    from dragoman.server.invocation_guard import InvocationGuard

logger = logging.getLogger("dragoman.server")
T = TypeVar("T")
# How many tasks are known here, and how many go when there are more.
MOST, PRUNED = 1000, 100
# How long a caller waits to hear that the work has begun.
PATIENCE = 1.0
TIMED_OUT = "Task timed out"
# The first record of a task is the task itself; whatever comes after it is work, or the end.
_CREATED = 1


class Workshop(NamedTuple):
    """Where the tasks of one agent are done."""

    agent: str
    service: Service
    bus: Bus
    clock: Clock


class _Slip:
    """What the desk knows of one task."""

    def __init__(self, shop: Workshop, call: Call, task_id: str, created_ms: int, timeout_ms: int) -> None:
        self.shop = shop
        self.call = call
        self.scope = Scope(shop.agent, call.tenant, call.owner)
        self.task_id = task_id
        self.created_ms = self.changed_ms = created_ms
        self.timeout_ms = timeout_ms
        # What an agent answered that made no task of it.
        self.answered: Task | None = None
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False
        self.timer: Timer | None = None
        self.unfollow: Callable[[], None] | None = None

    def begin(self) -> None:
        """Let go of who waits for the work to begin."""
        if not self.begun.done():
            self.begun.set_result(None)

    def leave(self) -> None:
        """Neither listen nor count the time any more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.unfollow is not None:
            self.unfollow()
        self.timer = self.unfollow = None


class TaskDesk:
    """Hands out tasks of any agent, and answers for those it has handed out, to who has sent them.

    The tasks are the engine's, like all others; only which of them are known here is kept here, in memory. When there
    are more than `most`, the `pruned` oldest that have ended are forgotten, and none that goes on ever is.
    """

    def __init__(self, guard: InvocationGuard | None = None, *, most: int = MOST, pruned: int = PRUNED) -> None:
        self._guard = guard
        self._most = most
        self._pruned = pruned
        # In the order in which they came.
        self._slips: dict[str, _Slip] = {}
        self._errands: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many tasks are known here."""
        return len(self._slips)

    async def send(
        self, shop: Workshop, call: Call, asked: AskedTask, caller: str = "", lease: Lease | None = None
    ) -> Json:
        """Begin a task, and give it once the work has begun, has ended, or a second has passed.

        Only an agent that may answer without a task is waited for until it does.

        Raises:
            A2AError: the task cannot be accepted.
        """
        if self._guard is not None:
            # Whoever is known is known by name, and everybody else by where they call from.
            who = f"user {call.user.id}" if call.user else caller
            self._guard.admit(asked.source, asked.depth or 0, who)
        # A caller who leaves now must not leave a task behind whose time nobody watches.
        slip = await asyncio.shield(self._spawn(self._take(shop, call, asked, caller, lease)))
        await wait(shop.clock, slip.begun, PATIENCE)
        return await self._shown(slip)

    async def get(self, call: Call, task_id: str, agent: str | None = None) -> Json:
        """A task that was handed out here, to the same caller; with `agent`, only one of that agent.

        Raises:
            TaskNotFound: there is none.
        """
        slip = self._slips.get(task_id)
        if slip is None or slip.scope != Scope(agent or slip.shop.agent, call.tenant, call.owner):
            raise TaskNotFound
        try:
            return await self._shown(slip)
        except TaskNotFound:  # it has been swept away
            slip.leave()
            self._slips.pop(task_id, None)
            raise

    def clear(self) -> None:
        """Forget every task. What is at work goes on, and its time is not watched any more."""
        for slip in self._slips.values():
            slip.leave()
        self._slips.clear()

    async def close(self) -> None:
        """Forget everything, once what is being done is done. The engines have been closed."""
        self.clear()
        await asyncio.gather(*self._errands, return_exceptions=True)

    # -- taking ----------------------------------------------------------------------------------------------------

    async def _take(self, shop: Workshop, call: Call, asked: AskedTask, caller: str, lease: Lease | None) -> _Slip:
        call = structs.replace(call, asks=False)
        now = shop.clock.now()
        request = _request(asked)
        result = (await shop.service.send(call, request, caller, lease)).result
        if isinstance(result, Message):
            slip = _Slip(shop, call, new_id(), now, asked.timeout_ms)
            slip.answered = _answered(slip.task_id, request.message, result, shop.clock.now())
            slip.ended = True
            slip.begin()
            self._keep(slip)
            return slip
        slip = _Slip(shop, call, result.id, now, asked.timeout_ms)
        slip.unfollow = shop.bus.call(slip.task_id, partial(self._heard, slip))
        self._keep(slip)
        # Something may have happened before anybody listened.
        self._heard(slip, (await self._task(slip)).generation or _CREATED)
        return slip

    def _keep(self, slip: _Slip) -> None:
        self._slips[slip.task_id] = slip
        self._prune(slip)

    def _prune(self, newest: _Slip, least: int = 1) -> None:
        """Forget the oldest that have ended, where there are too many and at least so many of these."""
        if len(self._slips) > self._most:
            ended = (each.task_id for each in self._slips.values() if each.ended and each is not newest)
            old = tuple(islice(ended, self._pruned))
            for task_id in old if len(old) >= least else ():
                del self._slips[task_id]

    # -- watching --------------------------------------------------------------------------------------------------

    def _heard(self, slip: _Slip, generation: int) -> None:
        """A task has come further."""
        if slip.unfollow is None or generation <= _CREATED:
            return
        shop = slip.shop
        slip.changed_ms = shop.clock.now()
        if not shop.service.is_running(slip.task_id):
            slip.leave()
            self._spawn(self._settle(slip))
        elif slip.timer is None:
            slip.timer = shop.clock.call_later(slip.timeout_ms / 1000, partial(self._ring, slip))
        slip.begin()

    def _ring(self, slip: _Slip) -> None:
        """The time is up."""
        self._spawn(self._fail(slip, TIMED_OUT))

    async def _settle(self, slip: _Slip) -> None:
        """Look how a run has ended: one that asks is told that nobody answers."""
        try:
            task = await self._task(slip)
            if task.state.waiting:
                await self._fail(slip, f"the agent asks, and cannot be answered here: {task.question}")
        except A2AError as error:
            logger.warning("task %s cannot be read at its end: %s", slip.task_id, error)
        finally:
            slip.ended = True
            # Not one by one: who has just ended is to be asked for its result.
            self._prune(slip, self._pruned)

    async def _fail(self, slip: _Slip, text: str) -> None:
        try:
            await slip.shop.service.fail(slip.task_id, text)
        except A2AError as error:
            logger.warning("task %s cannot be failed (%s): %s", slip.task_id, text, error)

    def _spawn(self, errand: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._errands.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for it hears of it; when nobody does any more, nobody is to be told

    # -- showing ---------------------------------------------------------------------------------------------------

    async def _task(self, slip: _Slip) -> Task:
        if slip.answered is not None:
            return slip.answered
        result = (await slip.shop.service.get(slip.call, GetTaskRequest(slip.task_id))).result
        assert isinstance(result, Task)
        return result

    async def _shown(self, slip: _Slip) -> Json:
        task = await self._task(slip)
        session = session_id(slip.scope, task.context_id)
        return task_json(task, session_id=session, created_ms=slip.created_ms, changed_ms=slip.changed_ms)


def _request(asked: AskedTask) -> SendMessageRequest:
    said: dict[str, Any] = {"skillId": asked.skill, DEPTH: asked.depth}
    return SendMessageRequest(
        Message(new_id(), Role.USER, (Part(text=asked.message),)),
        SendMessageConfiguration(return_immediately=True),
        {name: value for name, value in said.items() if value is not None} or None,
    )


def _answered(task_id: str, asked: Message, answer: Message, now: int) -> Task:
    """A bare answer as the task it would have been."""
    status = TaskStatus(State.COMPLETED, answer, timestamp(now))
    return Task(task_id, answer.context_id or task_id, status, history=(asked,))
