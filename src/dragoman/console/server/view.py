"""The view of the server: nodes, what runs, the store, rates, and recent errors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.clock import timestamp
from dragoman.console.server.history import MetricsHistory
from dragoman.engine.execute.threads import in_thread, skill_threads
from dragoman.model.error import DragomanError
from dragoman.stores.administration import NodeReport, NodeStatus
from dragoman.telemetry.recent_errors import RecentErrors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from dragoman.clock import Clock
    from dragoman.console.access import Viewer
    from dragoman.engine.execute.run import Run
    from dragoman.engine.operations import Service
    from dragoman.model.state import State
    from dragoman.stores.administration import Administration
    from dragoman.telemetry.recent_errors import RecentError
    from dragoman.transports.http import Request
    from dragoman.webhooks.service import DeliveryService

MAX_RUNNING = 200
# A store that is looked at by several pages is not asked more often.
STORE_SECONDS = 5


class WatchedStore(NamedTuple):
    """The store of a server, for who watches it.

    `kind` is "memory", "sqlite", "postgresql", or "custom" for one that a program has brought along. `administration`
    is None for the first and the last, `counts` returns how many tasks are in each state, and `shared` says that
    several servers use it.
    """

    kind: str
    administration: Administration | None
    counts: Callable[[], Awaitable[Mapping[State, int]]]
    shared: bool = False


class _StoreFacts(NamedTuple):
    """What the administration of a store has said; `error` is why it could not."""

    size: int | None = None
    report: NodeReport | None = None
    error: str = ""


class ServerView:
    """`GET console/api/server`, for administrators. It begins with `start` and ends with `stop`.

    `node` is the name of this node, `version` is Dragoman's, `services` are the engines, one for each agent, and
    `delivery` is what delivers webhooks; None if there are none.
    """

    def __init__(
        self,
        store: WatchedStore,
        clock: Clock,
        *,
        node: str,
        version: str,
        services: Sequence[Service],
        delivery: DeliveryService | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._version = version
        self._services = services
        self._delivery = delivery
        self._agents = tuple(service.agent_name for service in services)
        self._errors = RecentErrors(self._agents)
        self._history = MetricsHistory(clock, self._agents, self._count_streams)
        self._started_ms = clock.now()
        self._facts = _StoreFacts()
        self._facts_ms: int | None = None

    def start(self) -> None:
        """Begin to keep errors, when the server starts. Idempotent."""
        self._started_ms = self._clock.now()
        self._errors.install()

    def stop(self) -> None:
        """Keep no more errors, and measure no more, when the server stops. Idempotent."""
        self._errors.remove()
        self._history.stop()

    async def show(self, viewer: Viewer, request: Request, segments: Sequence[str]) -> dict[str, Any]:
        """Return what the server does. A store that does not answer keeps nothing else from being shown."""
        now = self._clock.now()
        measured = self._history.look()
        facts = await self._ask_store()
        counts, error = await self._count_tasks()
        threads = skill_threads()
        runs = list(_runs(self._services))
        report = facts.report or self._own_report(len(runs), now)
        return {
            "node": {
                "name": self._node,
                "pid": os.getpid(),
                "version": self._version,
                "started": timestamp(self._started_ms),
                "uptime": (now - self._started_ms) / 1000,
            },
            "nodes": [_show_node(node) for node in report.nodes],
            "waiting": report.waiting,
            "findings": [finding._asdict() for finding in report.findings if finding.level != "ok"],
            "running": [_show_run(agent, run) for agent, run in runs[:MAX_RUNNING]],
            "runningTotal": len(runs),
            "streams": self._count_streams(),
            "threads": {"busy": threads.busy, "size": threads.max_threads},
            "webhooks": {
                "owed": 0 if self._delivery is None else self._delivery.owed_count,
                "late": 0 if self._delivery is None else len(self._delivery.late),
            },
            "store": {
                "kind": self._store.kind,
                "location": self._location(),
                "bytes": facts.size,
                "tasks": counts,
                "error": facts.error or error or None,
            },
            **measured,
            "errors": [_show_error(error) for error in self._errors.newest_first()],
        }

    def _count_streams(self) -> int:
        return sum(service.open_streams for service in self._services)

    def _location(self) -> str:
        administration = self._store.administration
        if administration is not None:
            return administration.location
        return "the memory of this process" if self._store.kind == "memory" else "a store of the program's own"

    async def _ask_store(self) -> _StoreFacts:
        """Ask the store for its size, and a shared one for its nodes, unless that was done just now."""
        now, administration = self._clock.now(), self._store.administration
        if administration is None:
            return self._facts
        if self._facts_ms is None or now - self._facts_ms >= 1000 * STORE_SECONDS:
            self._facts_ms = now  # first: others who ask meanwhile get what there was
            self._facts = await in_thread(self._read_facts, administration)
        return self._facts

    def _read_facts(self, administration: Administration) -> _StoreFacts:
        try:
            size = administration.size()
            # A file has one server, which is this one.
            return _StoreFacts(size, administration.nodes() if self._store.shared else None)
        except (DragomanError, OSError) as error:
            return _StoreFacts(error=str(error))

    async def _count_tasks(self) -> tuple[dict[str, int], str]:
        try:
            counts = await self._store.counts()
        except DragomanError as error:
            return {}, str(error)
        return {state.value: count for state, count in counts.items() if count}, ""

    def _own_report(self, running: int, now: int) -> NodeReport:
        """Return the report of this process alone: its store has no other, or does not say."""
        node = NodeStatus(
            self._node,
            "alive",
            self._version,
            self._agents,
            since_ms=self._started_ms,
            running=running,
            pid=os.getpid(),
        )
        return NodeReport((node,), None, ())


def _runs(services: Sequence[Service]) -> Iterator[tuple[str, Run]]:
    for service in services:
        for run in service.runner.runs():
            yield service.agent_name, run


def _show_run(agent: str, run: Run) -> dict[str, Any]:
    live = run.live
    return {
        "id": live.row.id,
        "agent": agent,
        "contextId": live.row.context_id,
        "skill": run.skill,
        "since": timestamp(run.began_ms) if run.began_ms else None,
    }


def _show_node(node: NodeStatus) -> dict[str, Any]:
    """Return a node without the fingerprints of its keys, which nobody needs who does not set them up."""
    return {
        "name": node.name,
        "state": node.state,
        "version": node.version,
        "agents": list(node.agents),
        "lease": node.lease,
        "age": round(node.age, 3),
        "since": timestamp(node.since_ms) if node.since_ms else None,
        "running": node.running,
        "claimed": node.claimed,
        "webhooks": node.webhooks,
        "tables": node.tables,
        "pid": node.pid,
    }


def _show_error(error: RecentError) -> dict[str, Any]:
    return {
        "at": timestamp(error.at_ms),
        "level": error.level,
        "reference": error.reference or None,
        "logger": error.logger,
        "message": error.message,
        "agent": error.agent or None,
        "task": error.task or None,
    }
