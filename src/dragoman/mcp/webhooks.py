"""Webhooks for agents' tasks: delegated to agents that support them, posted from here for the others."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from dragoman.client.event import missed_events
from dragoman.dialects.v03.codec import event_to_03
from dragoman.mcp.tools.tool import ToolError, request_failed
from dragoman.model.error import DragomanError, InvalidParams, PushNotificationNotSupported, UnsupportedOperation
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import TaskPushNotificationConfig
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.net.exchange import is_loopback
from dragoman.net.guard import AddressForbidden, AddressGuard
from dragoman.net.sockets import SocketClient
from dragoman.webhooks.memory import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.client.client import Client
    from dragoman.client.event import Event
    from dragoman.clock import Clock
    from dragoman.mcp.peers import ParsedAddress, Peers
    from dragoman.mcp.registry import AgentRecord, Registry, TaskRecord, Webhook

logger = logging.getLogger("dragoman.mcp")
STATUS = "status_update"
ARTIFACT = "artifact_update"
# The errors of agents that do not accept a webhook, whatever their card says. Ours answers InvalidParams to an
# address that it may not call.
REFUSALS = (PushNotificationNotSupported, UnsupportedOperation, InvalidParams)
# How many seconds `close` waits for pending deliveries.
CLOSE_SECONDS = 2.0
_RECONFIGURE_SECONDS = 20.0
_MAX_CONCURRENT = 8
_MAX_WATCHED = 10_000
Update = StatusUpdate | ArtifactUpdate
# Which addresses agents are given without being allowed. Names are not resolved: the agent is the one that connects.
_PUBLIC = AddressGuard()


class _WatchedTask:
    """The posting state of one task: what was posted, and the ids of the webhooks that its agent serves itself."""

    __slots__ = ("has_ended", "posted", "served_ids")

    def __init__(self, served_ids: set[str]) -> None:
        self.served_ids = served_ids
        # Folded here: reading the assembled task from each event would cost more, the longer the task is.
        self.posted: Folding | None = None
        self.has_ended = False

    def new_updates(self, event: Event) -> list[Update]:
        """Return the updates in an event. Of a whole task, that is what was not posted before; a message has none."""
        raw = event.raw
        if isinstance(raw, Message):
            return []
        posted = self.posted
        if isinstance(raw, Task):
            self.posted = Folding(raw)
            nothing = Task(raw.id, raw.context_id, TaskStatus(State.UNSPECIFIED))
            events = [missed.event for missed in missed_events(nothing if posted is None else posted.task(), raw)]
            return [each for each in events if isinstance(each, (StatusUpdate, ArtifactUpdate))]
        if posted is None:
            posted = self.posted = Folding(Task(raw.task_id, raw.context_id, TaskStatus(State.UNSPECIFIED)))
        posted.apply(raw)
        return [raw]


class Webhooks:
    """Posts the events of tasks to webhooks that their agent does not serve itself.

    An agent serves a webhook if its card declares push notifications, the webhook subscribes to all events, and no
    other webhook is sent with the messages already. A webhook on this machine is useless to an agent elsewhere.
    This server posts only to addresses that it may call; an agent is also given other public ones.
    """

    def __init__(self, registry: Registry, peers: Peers, clock: Clock) -> None:
        self._registry = registry
        self._peers = peers
        self._clock = clock
        self._http = SocketClient()
        self._deliveries: dict[str, MemoryDelivery] = {}
        self._watched: dict[str, _WatchedTask] = {}
        self._refusing_agents: set[str] = set()
        self._closed = False

    async def close(self) -> None:
        """Wait briefly for pending deliveries, and close."""
        self._closed = True
        undelivered = sum(await asyncio.gather(*(each.close(CLOSE_SECONDS) for each in self._deliveries.values())))
        if undelivered:
            logger.warning("%d events were not posted before the end", undelivered)
        await self._http.close()

    # -- agents that post themselves -----------------------------------------------------------------------------------

    def push_config(self, record: AgentRecord) -> TaskPushNotificationConfig | None:
        """Return the webhook to send with a message, for an agent that posts its events itself."""
        hook = self._agent_webhook(record)
        return None if hook is None else TaskPushNotificationConfig(hook.webhook_url, hook.config_id)

    def is_served_by(self, agent: AgentRecord, hook: Webhook) -> bool:
        """True when the agent itself posts the events of new tasks to that webhook."""
        webhook = self._agent_webhook(agent)
        return webhook is not None and webhook.config_id == hook.config_id

    def note_refusal(self, agent_id: str) -> None:
        """Record that an agent does not accept webhooks: from now on its events are posted from here."""
        if agent_id not in self._refusing_agents:
            logger.info("%s takes no webhook: its events are posted from here", agent_id)
            self._refusing_agents.add(agent_id)

    def check_address(self, agent: AgentRecord, webhook_url: str, events: list[str]) -> ParsedAddress:
        """Check that events may be posted to an address, by this server or by the agent.

        Raises:
            ToolError: the address is malformed, or this server would have to post there and may not.
        """
        address = self._peers.policy.examine(webhook_url)
        reason = "" if address.is_allowed else self._reason_to_post(agent, address, events)
        if reason:
            raise ToolError(
                f"{address.host} may not be called: this server would have to post there, because {reason}. "
                f"Ask the user to start the server with --allow {address.host}"
            )
        return address

    def _reason_to_post(self, agent: AgentRecord, address: ParsedAddress, events: list[str]) -> str:
        """Return why the agent cannot be given a webhook that this server may not call; "" if it can."""
        if agent.agent_id in self._refusing_agents:
            return "the agent has refused webhooks"
        if not _posts_itself(agent):
            return "the agent posts nothing itself"
        if not _wants_all(events):
            return "the agent itself would post all events"
        if not _is_public(address):
            return "agents are given public https addresses only"
        current = self._agent_webhook(agent)
        if current is not None and current.webhook_url != address.url and not self._is_allowed(current.webhook_url):
            return "the agent is given one webhook, and posts to another already"
        return ""

    def _agent_webhook(self, agent: AgentRecord) -> Webhook | None:
        if agent.agent_id in self._refusing_agents or not _posts_itself(agent):
            return None
        is_here = is_loopback(agent.base_url)
        hooks = [
            hook
            for hook in self._registry.webhooks_of(agent.agent_id)
            if _wants_all(hook.events) and (is_here or not is_loopback(hook.webhook_url))
        ]
        # First those that nobody else can serve.
        return min(hooks, key=lambda hook: self._is_allowed(hook.webhook_url), default=None)

    async def configure(self, agent: AgentRecord, webhook_url: str, events: list[str]) -> tuple[Webhook, str]:
        """Create or change a webhook, also for running tasks.

        Returns it with a note about tasks where that failed; the note is empty when there are none.
        """
        active = [
            record
            for record in self._registry.tasks()
            if record.agent_id == agent.agent_id and (record.task is None or not record.task.state.final)
        ]
        for record in active:
            self._watch(agent, record)  # record who serves them before this change takes effect
        hook = self._registry.put_webhook(agent.agent_id, webhook_url, events)
        by_agent = self.is_served_by(agent, hook)
        affected = [
            record
            for record in active
            if record.remote_id is not None
            and (hook.config_id in self._watch(agent, record).served_ids) is not by_agent
        ]
        return hook, await self._reconfigure(agent, hook, affected, by_agent) if affected else ""

    async def _reconfigure(
        self, agent: AgentRecord, hook: Webhook, records: Sequence[TaskRecord], by_agent: bool
    ) -> str:
        """Make the agent start or stop posting the events of running tasks. Returns a note about failures."""
        client = self._peers.client(agent)
        problems: list[str] = []
        slots = asyncio.Semaphore(_MAX_CONCURRENT)
        deadline = asyncio.get_running_loop().time() + _RECONFIGURE_SECONDS

        async def one(record: TaskRecord) -> None:
            try:
                async with slots, asyncio.timeout_at(deadline):
                    await _configure_task(client, record.remote_id or "", hook, by_agent)
            except TimeoutError:
                problems.append("Request failed: timeout")
            except DragomanError as error:
                problems.append(str(request_failed(error)))
                if by_agent and isinstance(error, REFUSALS):
                    self.note_refusal(agent.agent_id)
            else:
                served = self._watch(agent, record).served_ids
                served.add(hook.config_id) if by_agent else served.discard(hook.config_id)

        await asyncio.gather(*(one(record) for record in records))
        if not problems:
            return ""
        consequence = (
            "this server posts what it sees of them" if by_agent else "their agent may go on to post all events"
        )
        return f"{len(problems)} of {len(records)} tasks under way stay as they were, {consequence}. {problems[0]}"

    # -- posting -------------------------------------------------------------------------------------------------------

    def post(self, record: TaskRecord, event: Event) -> None:
        """Queue an event for the webhooks that subscribe to it. Does not wait and never raises."""
        try:
            self._post(record, event)
        except Exception:
            logger.exception("an event of task %s could not be posted", record.id)

    def _post(self, record: TaskRecord, event: Event) -> None:
        hooks = self._registry.webhooks_of(record.agent_id)
        agent = self._registry.agents.get(record.agent_id)
        if self._closed or not hooks or agent is None:
            return
        watched = self._watch(agent, record)
        if watched.has_ended:
            return
        updates = watched.new_updates(event)
        if event.state.final:
            watched.has_ended, watched.posted = True, None
        hooks = [hook for hook in hooks if hook.config_id not in watched.served_ids]
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
            self._peers.policy.check(url)
        except ToolError:
            return False
        return True

    def _watch(self, agent: AgentRecord, record: TaskRecord) -> _WatchedTask:
        watched = self._watched.get(record.id)
        if watched is None:
            webhook = self._agent_webhook(agent)
            watched = self._watched[record.id] = _WatchedTask(set() if webhook is None else {webhook.config_id})
            if len(self._watched) > _MAX_WATCHED:
                del self._watched[next(iter(self._watched))]
        return watched


def _is_public(address: ParsedAddress) -> bool:
    """True for https addresses that are, or may be, on the internet."""
    try:
        _PUBLIC.check_url(address.url)
    except AddressForbidden:
        return False
    # A name of one label is looked up in the local network.
    return address.url.lower().startswith("https:") and any(each in address.host for each in ".:")


def _posts_itself(agent: AgentRecord) -> bool:
    capabilities: dict[str, Any] = agent.card.get("capabilities", {})
    return capabilities.get("pushNotifications") is True


def _wants_all(events: Sequence[str]) -> bool:
    return {STATUS, ARTIFACT} <= set(events)


async def _configure_task(client: Client, task_id: str, hook: Webhook, by_agent: bool) -> None:
    if by_agent:
        await client.create_push_config(task_id, hook.webhook_url, id=hook.config_id)
    else:
        await client.delete_push_config(task_id, hook.config_id)


def _body(update: Update, kind: str) -> bytes:
    is_last = isinstance(update, StatusUpdate) and (update.status.state.final or update.status.state.waiting)
    # Spliced into the encoded event instead of encoding it twice: an artifact may be large.
    return b'{"event":"%s",%s' % (kind.encode(), encode(event_to_03(update, last=is_last))[1:])
