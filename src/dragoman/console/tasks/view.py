"""What the console shows of tasks, and does with them.

An administrator sees the tasks of all owners, a user their own. The task of another is to a user as if there were none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.clock import timestamp
from dragoman.console.api import ANY, ApiRoute
from dragoman.console.tasks.journal import MAX_EVENTS, journal_page
from dragoman.console.tasks.row import read_body, row_json, stored_body, title_of
from dragoman.console.tasks.search import FoundPage, FoundTask, SearchQuery, cursor_text, find_page, parse_number
from dragoman.engine.journal.replay import JournalCompacted, Replay, read_run_history
from dragoman.engine.ports.store import PushState, ScopeFilter
from dragoman.model.error import InvalidParams, TaskNotFound, UnsupportedOperation
from dragoman.net.exchange import redact_url
from dragoman.telemetry.audit import Audit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.console.access import Viewer
    from dragoman.engine.execute.cancel import TaskCanceler
    from dragoman.engine.ports.store import Push, Store, StoredTask, TaskRow
    from dragoman.transports.http import Request

_MAX_GENERATION = 2**31
# Who an administrator is in the audit log who has the token of the console, and is no user.
_TOKEN_HOLDER = "console-token"  # noqa: S105


class TasksView:
    """Handlers of the API for tasks.

    `cancelers` are the agents that are served, each with the canceler of its tasks. `on_woken` is called when a webhook
    was woken, so that it is delivered soon.
    """

    def __init__(
        self,
        store: Store,
        cancelers: Mapping[str, TaskCanceler],
        *,
        on_woken: Callable[[], None] | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._store = store
        self._cancelers = cancelers
        self._on_woken = on_woken
        self._audit = audit or Audit()

    def routes(self) -> list[ApiRoute]:
        """Return the routes of the API for tasks."""
        return [
            ApiRoute("GET", ("tasks",), "viewer", self.list),
            ApiRoute("GET", ("tasks", ANY), "viewer", self.get),
            ApiRoute("GET", ("tasks", ANY, "journal"), "viewer", self.journal),
            ApiRoute("GET", ("tasks", ANY, "webhooks"), "viewer", self.webhooks),
            ApiRoute("POST", ("tasks", ANY, "webhooks", ANY, "retry"), "viewer", self.retry),
            ApiRoute("POST", ("tasks", ANY, "cancel"), "viewer", self.cancel),
        ]

    # -- lists ---------------------------------------------------------------------------------------------------------

    async def list(self, viewer: Viewer, request: Request, _: Sequence[str]) -> dict[str, Any]:
        """List the tasks that match the filters of the query.

        Raises:
            InvalidParams: a filter is none that there is.
            ServerError: the store cannot be read.
        """
        query = SearchQuery.parse(request.query, self._scopes(viewer))
        search = query.search
        page = await self._find_id(viewer, query) or await find_page(self._store, query, request.wait_for_turn)
        total: int | None = None
        if query.is_counted:
            counts = await self._store.counts(search.scopes)
            total = sum(counts.values()) if search.state is None else counts.get(search.state, 0)
        return {
            "tasks": [row_json(found.stored.row, found.title, viewer) for found in page.tasks],
            "next": cursor_text(page.after),
            "total": total,
            "examined": page.examined,
        }

    async def _find_id(self, viewer: Viewer, query: SearchQuery) -> FoundPage | None:
        """Find the one task whose id was typed; None when it is no id of a task that the filters select."""
        search = query.search
        if not query.text or search.after is not None:
            return None
        stored = await self._store.task(query.text)
        if stored is None or not self._scopes(viewer).matches(stored.row.scope) or not _selects(query, stored.row):
            return None
        return FoundPage([FoundTask(stored, await self._title(stored))], None, 1)

    def _scopes(self, viewer: Viewer) -> ScopeFilter:
        """The scopes that a viewer may see; without a user who is no administrator, none."""
        if viewer.admin:
            return ScopeFilter()
        if viewer.user is None:
            return ScopeFilter(())
        return ScopeFilter(tuple(self._cancelers), owner=viewer.user.id)

    # -- one task ------------------------------------------------------------------------------------------------------

    async def get(self, viewer: Viewer, request: Request, segments: Sequence[str]) -> dict[str, Any]:
        """Show a task as it is, or as it was at a generation.

        Raises:
            TaskNotFound: there is none, or the viewer may not see it.
            InvalidParams: the generation is none that can be shown.
            ServerError: the store cannot be read.
        """
        stored = await self._find(viewer, segments[1])
        row = stored.row
        oldest = 1 if await self._store.records(row.number, 0, 1) else row.generation
        generation = parse_number(request.query, "generation", row.generation, 0, _MAX_GENERATION)
        outside = InvalidParams(f"generation is a number from {oldest} to {row.generation}", field="generation")
        if not oldest <= generation <= row.generation:
            raise outside
        try:
            task = await Replay(self._store, stored, request.wait_for_turn).task(generation)
        except JournalCompacted:  # meanwhile
            raise outside from None
        return {
            "task": task,
            "row": row_json(row, await self._title(stored), viewer),
            "origin": row.origin,
            "traceId": await self._trace_id(row),
            "oldest": oldest,
            "newest": row.generation,
        }

    async def journal(self, viewer: Viewer, request: Request, segments: Sequence[str]) -> dict[str, Any]:
        """Show a page of a task's journal. Raises as `get` does."""
        stored = await self._find(viewer, segments[1])
        after = parse_number(request.query, "after", 0, 0, _MAX_GENERATION)
        limit = parse_number(request.query, "limit", MAX_EVENTS, 1, MAX_EVENTS)
        return await journal_page(self._store, stored, after, limit, request.wait_for_turn)

    async def cancel(self, viewer: Viewer, _: Request, segments: Sequence[str]) -> dict[str, Any]:
        """Cancel a task in the name of its owner; the audit log has who did.

        Raises:
            TaskNotFound: there is none, or the viewer may not see it.
            TaskNotCancelable: it has ended.
            UnsupportedOperation: its agent is not served here.
            ServerError: the store cannot take writes.
        """
        row = (await self._find(viewer, segments[1])).row
        canceler = self._cancelers.get(row.scope.agent)
        if canceler is None:
            raise UnsupportedOperation(f"the agent {row.scope.agent} is not served here: serve it to cancel its tasks")
        by = "" if viewer.user is not None and viewer.user.id == row.scope.owner else _name_of(viewer)
        canceled = await canceler.cancel(row.scope, row.id, by=by)
        return {"task": canceled[0]}

    # -- webhooks ------------------------------------------------------------------------------------------------------

    async def webhooks(self, viewer: Viewer, _: Request, segments: Sequence[str]) -> dict[str, Any]:
        """Show the webhooks of a task and their deliveries, without their secrets. Raises as `get` does."""
        row = (await self._find(viewer, segments[1])).row
        return {"webhooks": [_webhook_json(push, row) for push in await self._store.pushes(row.number)]}

    async def retry(self, viewer: Viewer, _: Request, segments: Sequence[str]) -> dict[str, Any]:
        """Deliver to a webhook again that fails or was given up; nothing changes for any other.

        Raises:
            TaskNotFound: there is no such task or webhook, or the viewer may not see it.
            ServerError: the store cannot take writes.
        """
        row, push_id = (await self._find(viewer, segments[1])).row, segments[3]
        if all(push.id != push_id for push in await self._store.pushes(row.number)):
            raise TaskNotFound(f"the task has no webhook {push_id}", taskId=row.id)
        if await self._store.wake_pushes(row.id, push_id):
            self._audit.record_change("webhooks-retried", by=_name_of(viewer), task=row.id, webhook=push_id, count="1")
            if self._on_woken is not None:
                self._on_woken()
        return {}

    # -- helpers -------------------------------------------------------------------------------------------------------

    async def _find(self, viewer: Viewer, task_id: str) -> StoredTask:
        stored = await self._store.task(task_id)
        if stored is None:
            raise TaskNotFound(taskId=task_id)
        scope = stored.row.scope
        if not self._scopes(viewer).matches(scope):
            user = "" if viewer.user is None else viewer.user.id
            self._audit.record_denial(scheme="owner", reason="not-yours", user=user, agent=scope.agent, task=task_id)
            raise TaskNotFound(taskId=task_id)
        return stored

    async def _title(self, stored: StoredTask) -> str:
        return title_of(read_body(stored, await stored_body(self._store, stored)))

    async def _trace_id(self, row: TaskRow) -> str | None:
        """The trace of the request that created a task; None when it was in none."""
        context = read_run_history(await self._store.notes(row.number)).call(row).trace or {}
        parts = context.get("traceparent", "").split("-")
        return parts[1] if len(parts) > 2 else None


def _selects(query: SearchQuery, row: TaskRow) -> bool:
    """True when the filters of a search select a task, whatever its words are."""
    search = query.search
    return (
        search.scopes.matches(row.scope)
        and search.context_id in (None, row.context_id)
        and search.state in (None, row.state)
        and (search.since_ms is None or row.status_ms >= search.since_ms)
        and (search.until_ms is None or row.status_ms < search.until_ms)
    )


def _name_of(viewer: Viewer) -> str:
    return _TOKEN_HOLDER if viewer.user is None else viewer.user.id


def _webhook_json(push: Push, row: TaskRow) -> dict[str, Any]:
    is_done = push.state is PushState.DONE
    return {
        "id": push.id,
        # Many receivers take their secret in the query.
        "url": redact_url(push.url),
        "state": push.state.name.lower(),
        "cursor": push.cursor,
        "owed": 0 if is_done else max(0, row.generation - push.cursor),
        "tries": push.tries,
        "due": timestamp(push.due_ms) if push.due_ms > 0 else None,
        "failingSince": timestamp(push.failing_ms) if push.failing_ms else None,
        "error": push.error or None,
        "created": timestamp(push.created_ms),
        "version": push.dialect,
    }
