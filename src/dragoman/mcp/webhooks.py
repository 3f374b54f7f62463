"""Webhooks: which of them an agent serves itself, and what is posted for the others."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.client.connection import sleep
from dragoman.client.event import missed_events
from dragoman.dialects.v03.codec import event_to_03
from dragoman.mcp.tools.tool import ToolProblem, request_failed
from dragoman.model.error import (
    CannotConnect,
    DragomanError,
    InvalidParams,
    PushNotificationNotSupported,
    UnsupportedOperation,
)
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.ids import new_id
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import TaskPushNotificationConfig
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.net.exchange import HttpRequest, is_loopback, origin_of
from dragoman.net.sockets import SocketClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.client.client import Client
    from dragoman.client.event import Event
    from dragoman.clock import Clock
    from dragoman.mcp.peers import Peers
    from dragoman.mcp.registry import AgentRecord, Registry, TaskRecord, Webhook
    from dragoman.net.exchange import HttpClient, HttpResponse

logger = logging.getLogger("dragoman.mcp")
# What waits beyond these is dropped, the oldest first: a receiver that is away must not fill the memory.
MOST = 1000
MOST_BYTES = 16 * 1024 * 1024
AT_ONCE = 8
# Before the second try, and before the third and last.
PAUSES = (0.2, 1.0)
_SECONDS = 10.0
_ANSWER = 64 * 1024


class Outbox:
    """Brings events in the background: those of one task in order, those of several side by side.

    `check` is asked before each try whether the address may still be called, and raises ToolProblem when not.
    """

    def __init__(self, url: str, http: HttpClient, clock: Clock, check: Callable[[str], object]) -> None:
        self._url = url
        self._http = http
        self._clock = clock
        self._check = check
        # What waits, the oldest first, by a number that never comes again.
        self._bodies: dict[int, bytes] = {}
        self._size = 0
        self._count = 0
        # The numbers of each task, and the tasks nobody works on.
        self._lanes: dict[str, deque[int]] = {}
        self._ready: deque[str] = deque()
        self._dropped = 0
        self._is_failing = False
        self.workers: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many events nobody has begun to bring."""
        return len(self._bodies)

    def put(self, task_id: str, body: bytes) -> None:
        """Bring an event, after those of the same task."""
        self._count += 1
        self._bodies[self._count] = body
        self._size += len(body)
        lane = self._lanes.get(task_id)
        if lane is None:
            lane = self._lanes[task_id] = deque()
            self._ready.append(task_id)
        lane.append(self._count)
        self._make_room()
        if self._ready and len(self.workers) < AT_ONCE:
            worker = asyncio.create_task(self._work())
            self.workers.add(worker)
            worker.add_done_callback(self.workers.discard)

    def _make_room(self) -> None:
        while len(self._bodies) > 1 and (len(self._bodies) > MOST or self._size > MOST_BYTES):
            self._taken(next(iter(self._bodies)))
            if not self._dropped:
                logger.warning("the webhook at %s is too slow: the oldest events are dropped", origin_of(self._url))
            self._dropped += 1

    def _taken(self, number: int) -> bytes | None:
        """What waits under that number; None when it was dropped."""
        body = self._bodies.pop(number, None)
        if body is not None:
            self._size -= len(body)
        return body

    async def _work(self) -> None:
        while self._ready:
            task_id = self._ready.popleft()
            lane = self._lanes[task_id]
            body = self._taken(lane.popleft())
            try:
                if body is not None:
                    await self._bring(body)
            except Exception:
                logger.exception("an event could not be posted")
            # One at a time, then another task: a long stream does not hold up the others.
            if lane:
                self._ready.append(task_id)
            else:
                del self._lanes[task_id]
        if self._dropped and not self._bodies:
            logger.warning("the webhook at %s has missed %d events", origin_of(self._url), self._dropped)
            self._dropped = 0

    async def _bring(self, body: bytes) -> None:
        # The same for every try: a receiver can tell a repeat, where an answer was lost.
        headers = {"Content-Type": "application/json", "Idempotency-Key": new_id()}
        for pause in (*PAUSES, None):
            problem, may_pass = await self._tried(headers, body)
            if not problem:
                self._is_failing = False
                return
            if pause is None or not may_pass:
                # Of an address only the origin is logged: many have a secret in their path.
                level = logging.DEBUG if self._is_failing else logging.WARNING
                logger.log(level, "an event was not posted to the webhook at %s: %s", origin_of(self._url), problem)
                self._is_failing = True
                return
            await sleep(self._clock, pause)

    async def _tried(self, headers: dict[str, str], body: bytes) -> tuple[str, bool]:
        """What went wrong, if anything, and whether that may pass."""
        try:
            self._check(self._url)
            request = HttpRequest("POST", self._url, dict(headers), body, operation="Push", silence=_SECONDS)
            async with asyncio.timeout(_SECONDS):
                response = await self._http.send(request)
                await _dismiss(response)
        except ToolProblem:
            return "its address may not be called any more", False
        except TimeoutError:
            return "timeout", True
        except CannotConnect as error:
            return error.reason, True
        if 200 <= response.status < 300:
            return "", False
        return f"HTTP {response.status}", response.status >= 500


async def _dismiss(response: HttpResponse) -> None:
    try:
        with suppress(DragomanError):
            await response.read(_ANSWER)
    finally:
        await response.close()


STATUS = "status_update"
ARTIFACT = "artifact_update"
# What an agent answers that does not take a webhook, whatever its card says. Ours says InvalidParams to an address
# that it may not call.
REFUSALS = (PushNotificationNotSupported, UnsupportedOperation, InvalidParams)
# On leaving, so long is waited for what is still on its way.
LAST_SECONDS = 2.0
_AGREE_SECONDS = 20.0
_AT_ONCE = 8
_MOST_WATCHED = 10_000
Update = StatusUpdate | ArtifactUpdate


class _Watched:
    """One task: what of it has been told, and the webhooks its agent posts to."""

    __slots__ = ("is_over", "served", "told")

    def __init__(self, served: set[str]) -> None:
        self.served = served
        # Folded, and not asked of the event: putting the task together each time would cost more, the longer it is.
        self.told: Folding | None = None
        self.is_over = False

    def take(self, event: Event) -> list[Update]:
        """What an event changes. Of a whole task that is what was not told before; a remark changes nothing."""
        raw = event.raw
        if isinstance(raw, Message):
            return []
        told = self.told
        if isinstance(raw, Task):
            self.told = Folding(raw)
            nothing = Task(raw.id, raw.context_id, TaskStatus(State.UNSPECIFIED))
            found = [missed.event for missed in missed_events(nothing if told is None else told.task(), raw)]
            return [each for each in found if isinstance(each, (StatusUpdate, ArtifactUpdate))]
        if told is None:
            told = self.told = Folding(Task(raw.task_id, raw.context_id, TaskStatus(State.UNSPECIFIED)))
        told.apply(raw)
        return [raw]


class Webhooks:
    """Posts what is observed of tasks, where their agent does not.

    An agent serves a webhook if its card says that it can, the webhook wants all events, and no other webhook goes
    along with the messages already. One on this machine is no use to an agent elsewhere.
    """

    def __init__(self, registry: Registry, peers: Peers, clock: Clock) -> None:
        self._registry = registry
        self._peers = peers
        self._clock = clock
        self._http = SocketClient()
        self._outboxes: dict[str, Outbox] = {}
        self._watched: dict[str, _Watched] = {}
        self._refusing: set[str] = set()
        self._closed = False

    async def close(self) -> None:
        """Finish, but not for long."""
        self._closed = True
        workers = [worker for outbox in self._outboxes.values() for worker in outbox.workers]
        if workers:
            _, late = await asyncio.wait(workers, timeout=LAST_SECONDS)
            for worker in late:
                worker.cancel()
            if late:
                left = len(late) + sum(outbox.waiting for outbox in self._outboxes.values())
                logger.warning("%d events were not posted before the end", left)
                await asyncio.wait(late)
        await self._http.close()

    # -- agents that post themselves -----------------------------------------------------------------------------------

    def for_agent(self, record: AgentRecord) -> TaskPushNotificationConfig | None:
        """The webhook to send along with a message, for an agent that posts its events itself."""
        hook = self._offered(record)
        return None if hook is None else TaskPushNotificationConfig(hook.webhook_url, hook.config_id)

    def is_served_by(self, agent: AgentRecord, hook: Webhook) -> bool:
        """True when the agent posts the events of new tasks to that webhook."""
        offered = self._offered(agent)
        return offered is not None and offered.config_id == hook.config_id

    def refused(self, agent_id: str) -> None:
        """An agent does not take a webhook: from now on its events are posted here."""
        if agent_id not in self._refusing:
            logger.info("%s takes no webhook: its events are posted from here", agent_id)
            self._refusing.add(agent_id)

    def _offered(self, agent: AgentRecord) -> Webhook | None:
        capabilities: dict[str, Any] = agent.card.get("capabilities", {})
        if agent.agent_id in self._refusing or capabilities.get("pushNotifications") is not True:
            return None
        is_here = is_loopback(agent.base_url)
        for hook in self._registry.hooks_of(agent.agent_id):
            if {STATUS, ARTIFACT} <= set(hook.events) and (is_here or not is_loopback(hook.webhook_url)):
                return hook
        return None

    async def configure(self, agent: AgentRecord, webhook_url: str, events: list[str]) -> tuple[Webhook, str]:
        """Create or change a webhook, also for the tasks that are under way; and what could not be done for those."""
        under_way = [
            record
            for record in self._registry.tasks()
            if record.agent_id == agent.agent_id and (record.task is None or not record.task.state.final)
        ]
        for record in under_way:
            self._watch(agent, record)  # who serves them was settled before this change
        hook = self._registry.hook(agent.agent_id, webhook_url, events)
        is_theirs = self.is_served_by(agent, hook)
        concerned = [
            record
            for record in under_way
            if record.remote_id is not None and (hook.config_id in self._watch(agent, record).served) is not is_theirs
        ]
        return hook, await self._agree(agent, hook, concerned, is_theirs) if concerned else ""

    async def _agree(self, agent: AgentRecord, hook: Webhook, records: Sequence[TaskRecord], is_theirs: bool) -> str:
        """Have the agent post, or post no more, the events of tasks that it works on. Gives what went wrong."""
        client = self._peers.client(agent)
        problems: list[str] = []
        room = asyncio.Semaphore(_AT_ONCE)
        end = asyncio.get_running_loop().time() + _AGREE_SECONDS

        async def one(record: TaskRecord) -> None:
            try:
                async with room, asyncio.timeout_at(end):
                    await _settle(client, record.remote_id or "", hook, is_theirs)
            except TimeoutError:
                problems.append("Request failed: timeout")
            except DragomanError as error:
                problems.append(str(request_failed(error)))
                if is_theirs and isinstance(error, REFUSALS):
                    self.refused(agent.agent_id)
            else:
                served = self._watch(agent, record).served
                served.add(hook.config_id) if is_theirs else served.discard(hook.config_id)

        await asyncio.gather(*(one(record) for record in records))
        if not problems:
            return ""
        instead = "this server posts what it sees of them" if is_theirs else "their agent may go on to post all events"
        return f"{len(problems)} of {len(records)} tasks under way stay as they were, {instead}. {problems[0]}"

    # -- posting -------------------------------------------------------------------------------------------------------

    def post(self, record: TaskRecord, event: Event) -> None:
        """Post an event to the webhooks that want it. Does not wait, raises nothing."""
        try:
            self._post(record, event)
        except Exception:
            logger.exception("an event of task %s could not be posted", record.id)

    def _post(self, record: TaskRecord, event: Event) -> None:
        hooks = self._registry.hooks_of(record.agent_id)
        agent = self._registry.agents.get(record.agent_id)
        if self._closed or not hooks or agent is None:
            return
        watched = self._watch(agent, record)
        if watched.is_over:
            return
        updates = watched.take(event)
        if event.state.final:
            watched.is_over, watched.told = True, None
        hooks = [hook for hook in hooks if hook.config_id not in watched.served]
        for update in updates if hooks else ():
            kind = STATUS if isinstance(update, StatusUpdate) else ARTIFACT
            body = _body(update, kind)
            for hook in hooks:
                if kind in hook.events:
                    self._outbox(hook).put(record.id, body)

    def _outbox(self, hook: Webhook) -> Outbox:
        outbox = self._outboxes.get(hook.config_id)
        if outbox is None:
            outbox = Outbox(hook.webhook_url, self._http, self._clock, self._peers.reach.check)
            self._outboxes[hook.config_id] = outbox
        return outbox

    def _watch(self, agent: AgentRecord, record: TaskRecord) -> _Watched:
        watched = self._watched.get(record.id)
        if watched is None:
            offered = self._offered(agent)
            watched = self._watched[record.id] = _Watched(set() if offered is None else {offered.config_id})
            if len(self._watched) > _MOST_WATCHED:
                del self._watched[next(iter(self._watched))]
        return watched


async def _settle(client: Client, task_id: str, hook: Webhook, is_theirs: bool) -> None:
    if is_theirs:
        await client.create_push_config(task_id, hook.webhook_url, id=hook.config_id)
    else:
        await client.delete_push_config(task_id, hook.config_id)


def _body(update: Update, kind: str) -> bytes:
    is_last = isinstance(update, StatusUpdate) and (update.status.state.final or update.status.state.waiting)
    # Not decoded to be encoded again: an artifact may be large.
    return b'{"event":"%s",%s' % (kind.encode(), encode(event_to_03(update, last=is_last))[1:])
