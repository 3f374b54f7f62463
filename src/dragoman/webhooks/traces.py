"""The span of one delivery to a webhook, linked to the trace of its task. Not called while tracing is off."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.engine.execute.traces import error_type
from dragoman.engine.journal.replay import read_run_history
from dragoman.model.error import ServerError, TimedOut
from dragoman.telemetry import trace
from dragoman.telemetry.spans import TRACING
from dragoman.webhooks.request import post

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.net.exchange import HttpClient, HttpRequest
    from dragoman.telemetry.spans import Value


async def post_in_span(
    http: HttpClient, request: HttpRequest, seconds: float, store: Store, row: TaskRow
) -> tuple[int, str]:
    """Post an event of a task as `post` does, in a span with a trace of its own. The request carries its context.

    A delivery may be made days after the request that created the task: so it is linked to that, and not below it.
    Raises what `post` raises.
    """
    parts = urlsplit(request.url)
    # Not the path: many webhook URLs have a secret there.
    attributes: dict[str, Value] = {
        "a2a.task.id": row.id,
        "gen_ai.agent.name": row.scope.agent,
        "gen_ai.conversation.id": row.context_id,
        "server.address": parts.hostname or "",
    }
    task_trace = await _trace_of_task(store, row)
    span = TRACING.start(
        "deliver webhook", "producer", attributes, root=True, links=(task_trace,) if task_trace else ()
    )
    try:
        with span.current():
            if span.traceparent:  # else what is current is that of a caller, with baggage: nothing for strangers
                trace.inject(request.headers)
            status, retry_after = await post(http, request, seconds)
        span.set("http.response.status_code", status)
        if not 200 <= status < 300:
            span.fail(str(status))
    except BaseException as error:
        span.fail(TimedOut.reason if isinstance(error, TimeoutError) else error_type(error))
        raise
    finally:
        span.end()
    return status, retry_after


async def _trace_of_task(store: Store, row: TaskRow) -> dict[str, str] | None:
    """Read the trace context that was stored with a task; None without one, or while the store does not answer."""
    try:
        return read_run_history(await store.notes(row.number)).call(row).trace or None
    except ServerError:
        return None
    except Exception as error:  # noqa: BLE001 - it is reported there, and the event is delivered
        TRACING.report(error)
        return None
