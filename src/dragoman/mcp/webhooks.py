"""Webhooks: which of them an agent serves itself, and what is posted for the others."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from dragoman.client.event import missed_events
from dragoman.dialects.v03.codec import event_to_03
from dragoman.mcp.tools.tool import ToolProblem, request_failed
from dragoman.model.error import DragomanError, InvalidParams, PushNotificationNotSupported, UnsupportedOperation
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import TaskPushNotificationConfig
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.net.exchange import is_loopback
from dragoman.net.sockets import SocketClient
from dragoman.webhooks.memory import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.client.client import Client
    from dragoman.client.event import Event
    from dragoman.clock import Clock
    from dragoman.mcp.peers import Peers
    from dragoman.mcp.registry import AgentRecord, Registry, TaskRecord, Webhook

logger = logging.getLogger("dragoman.mcp")
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
        self._deliveries: dict[str, MemoryDelivery] = {}
        self._watched: dict[str, _Watched] = {}
        self._refusing: set[str] = set()
        self._closed = False

    async def close(self) -> None:
        """Finish, but not for long."""
        self._closed = True
        left = sum(await asyncio.gather(*(each.close(LAST_SECONDS) for each in self._deliveries.values())))
        if left:
            logger.warning("%d events were not posted before the end", left)
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
                    self._delivery(hook).put(record.id, body)

    def _delivery(self, hook: Webhook) -> MemoryDelivery:
        delivery = self._deliveries.get(hook.config_id)
        if delivery is None:
            delivery = MemoryDelivery(hook.webhook_url, self._http, self._clock, self._is_allowed)
            self._deliveries[hook.config_id] = delivery
        return delivery

    def _is_allowed(self, url: str) -> bool:
        try:
            self._peers.reach.check(url)
        except ToolProblem:
            return False
        return True

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
