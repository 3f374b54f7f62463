"""The spans of runs, and their place in the trace of their task. Nothing of this is called while tracing is off."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dragoman.model.error import DragomanError, InternalError, ServerError
from dragoman.model.json import encode
from dragoman.model.state import State
from dragoman.telemetry.spans import SHOWS_CONTENT, TRACING

if TYPE_CHECKING:
    from collections.abc import Generator

    from dragoman.engine.execute.run import Run
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.store import TaskRow
    from dragoman.telemetry.spans import Span, Value

# The longest text of messages in a span, in bytes of JSON.
MAX_CONTENT = 8192
# The error of a run that the server has ended because it stops, or because another process has its task.
INTERRUPTED = "INTERRUPTED"


async def run_in_span(run: Run, agent: str, *, content: bool) -> None:
    """Do the work of a run inside a span that is current in the agent's code. Raises what `Run.work` raises.

    A run that is restarted has the trace context that was stored with its task as its parent. With `content`, the span
    has the text of the message and of the answer.
    """
    live = run.live
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": live.row.context_id,
        "a2a.task.id": live.row.id,
    }
    if run.attempt is not None:
        attributes["dragoman.attempt"] = run.attempt
    span = TRACING.start(
        f"invoke_agent {agent}",
        "internal",
        attributes,
        parent=run.parent or None,
        root=run.parent is not None and not run.parent,
        links=(run.link,) if run.link else (),
    )
    span.make_current()
    SHOWS_CONTENT.set(content)
    try:
        if span.recording and content and run.message is not None:
            with _contained():
                span.set("gen_ai.input.messages", written_message("user", run.message.text))
        await run.work()
    finally:
        if span.recording:
            with _contained():
                _describe_end(run, span, content)
        span.end()


@contextmanager
def _contained() -> Generator[None]:
    """Report an exception of what describes a run: the run itself goes on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - it is reported there
        TRACING.report(error)


def _describe_end(run: Run, span: Span, content: bool) -> None:
    live = run.live
    if run.skill:
        span.set("dragoman.skill", run.skill)
    if live.outcome.reply is None:
        span.set("a2a.task.state", live.row.state.value)
        if live.row.state is State.FAILED:
            span.fail(run.error or InternalError.reason)
        elif not (live.row.state.final or live.row.state.waiting):
            span.fail(INTERRUPTED)
    if content:
        answer = live.outcome.reply if live.outcome.reply is not None else live.folding.task()
        span.set("gen_ai.output.messages", written_message("assistant", answer.text))


def error_type(error: BaseException) -> str:
    """Return the name of what an agent has raised: the reason of an error of Dragoman, else its class."""
    return str(error.reason) if isinstance(error, DragomanError) else type(error).__name__


def written_message(role: str, text: str) -> str:
    """Return a message as JSON, in the form of OpenTelemetry's conventions, with as much of its text as fits."""

    def written(excerpt: str) -> str:
        message: dict[str, Any] = {"role": role, "parts": [{"type": "text", "content": excerpt}]}
        return encode([message]).decode()

    whole = written(text)
    if len(whole.encode()) <= MAX_CONTENT:
        return whole
    # A character takes six bytes at most, as an escape in JSON.
    excerpt = text[:MAX_CONTENT]
    while len(written(f"{excerpt}…").encode()) > MAX_CONTENT:
        excerpt = excerpt[: len(excerpt) * 7 // 8]
    return written(f"{excerpt}…")


async def link_to_task(tasks: Tasks, row: TaskRow) -> None:
    """Link the current span, that of a message to an existing task, to the trace of that task."""
    if not TRACING.is_recording():
        return
    try:
        history = await tasks.run_history(row)
        context = history.call(row).trace
    except Exception as error:  # noqa: BLE001 - the message has been accepted, whatever can be read now
        if not isinstance(error, ServerError):
            TRACING.report(error)
        return
    if context:
        TRACING.link_current(context)
