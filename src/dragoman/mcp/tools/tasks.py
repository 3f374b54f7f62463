"""The tools for tasks: read, list, cancel and follow."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.mcp.tools.content import state_name, task_summary_to_json
from dragoman.mcp.tools.tool import NOT_YET, ToolError, ToolResult, request_failed
from dragoman.model.error import DragomanError, TaskNotCancelable
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.mcp.registry import AgentRecord, TaskRecord
    from dragoman.mcp.session.follower import TaskFollower
    from dragoman.mcp.tools.context import ToolContext
    from dragoman.mcp.tools.tool import ToolInvocation

SUBSCRIBED = "Subscribed to task events."
_MAX_CONCURRENT = 8
# How many tasks a list shows in full when it has no limit, and how many an agent is asked for.
_DETAILED = 50
_LIST_SECONDS = 10.0
_CANCEL_POLLS = (0.05, 0.1, 0.2, 0.4, 0.8)


async def get_task(context: ToolContext, request: ToolInvocation) -> ToolResult:
    """Read a task from its agent; if that fails, return its last known state."""
    record, agent = await _find_task_and_agent(context, request)
    if record.remote_id is not None:
        await _refresh(context, agent, record)
    if record.task is None:
        if record.problem:
            raise ToolError(record.problem)
        return ToolResult({"id": record.id, "status": {"state": "working"}, "agent_id": record.agent_id})
    return context.task_result(agent, record, request.get("history_length"))


async def list_tasks(context: ToolContext, request: ToolInvocation) -> ToolResult:
    """List the tasks started here, newest first; or an agent's own list.

    Those asked for are refreshed from their agents and have their texts; without a limit, only the newest.
    """
    limit = request.get("limit")
    if request.get("agent_id") is not None:
        return await _list_remote(context, request, limit or _DETAILED)
    records = context.registry.tasks()
    detailed, others = records[: limit or _DETAILED], records[_DETAILED:] if limit is None else []
    await _refresh_all(context, [each for each in detailed if each.task is not None and not each.task.state.final])
    summaries = [_summary(context, each) for each in detailed] + [_brief_summary(context, each) for each in others]
    return ToolResult({"tasks": summaries}, items=summaries)


async def cancel_task(context: ToolContext, request: ToolInvocation) -> ToolResult:
    """Cancel a task at its agent."""
    record, agent = await _find_task_and_agent(context, request)
    task_id = record.remote_id
    if task_id is None and record.task is None:
        raise ToolError(record.problem or NOT_YET)
    if task_id is None:
        raise _not_cancelable(record)
    try:
        task = await context.call_agent(agent, lambda client: client.cancel_task(task_id), _seconds(context))
    except ToolError as problem:
        if not isinstance(problem.__cause__, TaskNotCancelable):
            raise
        await _refresh(context, agent, record)
        raise _not_cancelable(record) from None
    if task.state is State.UNSPECIFIED:
        # The agent accepted the request without reporting the task's state.
        context_id = record.task.context_id if record.task is not None else ""
        task = Task(task_id, context_id, TaskStatus(State.CANCELED))
    record = context.update_task(record, _fill_from_record(record, task))
    state = task.state
    for pause in _CANCEL_POLLS:
        # Some agents respond before the task has stopped.
        if state.final or record.task is None:
            break
        await asyncio.sleep(pause)
        await _refresh(context, agent, record)
        state = record.task.state
    return ToolResult({"task_id": context.registry.public_id(record), "status": state_name(state)})


async def subscribe_to_task(context: ToolContext, request: ToolInvocation) -> ToolResult:
    """Follow a task for up to `wait_seconds`, and return what has arrived."""
    record, agent = await _find_task_and_agent(context, request)
    follower = context.followers.get(record)
    if follower is None and record.task is not None and record.task.state.waiting:
        await _refresh(context, agent, record)  # the question may have been answered elsewhere
    is_settled = record.task is not None and (record.task.state.final or record.task.state.waiting)
    if follower is None and record.remote_id is not None and not is_settled:
        follower = context.followers.new(record).follow(context.peers.client(agent))
    if follower is not None:
        seconds = float(request.get("wait_seconds", context.options.wait_seconds))
        await follower.wait(seconds, partial(_report, request))
        record = follower.record
        if follower.problem:
            await _refresh(context, agent, record)
            if follower.is_too_large and not record.problem:
                record.problem = follower.problem
    if record.task is None and record.problem:
        raise ToolError(record.problem)
    structured: dict[str, Any] = {
        "task_id": context.registry.public_id(record),
        "subscription": "active",
        "current_state": "working" if record.task is None else state_name(record.task.state),
        "message": SUBSCRIBED,
        "events": 0 if follower is None else follower.events,
    }
    if record.task is None:
        return ToolResult(structured)
    full = context.task_result(agent, record)
    for key in ("text", "question", "next_step", "source", "artifacts"):
        if key in full.structured:
            structured[key] = full.structured[key]
    return ToolResult(structured, content=full.content)


# -- helpers -----------------------------------------------------------------------------------------------------------


async def _find_task_and_agent(context: ToolContext, request: ToolInvocation) -> tuple[TaskRecord, AgentRecord]:
    """Find a task that was started here; with `agent_id`, any task that this agent shows to us."""
    task_id = request.require_text("task_id")
    if request.get("agent_id") is None:
        record = context.registry.require_task(task_id)
        return record, await context.peers.find_agent(record.agent_id)
    agent = await context.peers.find_agent(request.require_text("agent_id"))
    record = context.registry.task_of(agent.agent_id, task_id)
    if record is None:
        # Read first: a task that is not there leaves no record.
        task = await context.call_agent(agent, lambda client: client.get_task(task_id), _seconds(context))
        if task.id != task_id:
            raise ToolError(f"Task not found: {task_id}")
        record = context.registry.update_task(context.registry.start_task(agent.agent_id), task)
    return record, agent


async def _refresh(context: ToolContext, agent: AgentRecord, record: TaskRecord) -> None:
    task_id = record.remote_id
    if task_id is None:
        return
    try:
        task = await context.call_agent(agent, lambda client: client.get_task(task_id), _seconds(context))
    except ToolError as problem:
        record.problem = str(problem)
    else:
        if not task.id:
            record.problem = "Request failed: the agent does not say how its task is"
        context.update_task(record, task, may_be_stale=True)


def _seconds(context: ToolContext) -> float:
    """Return the timeout for reading a task: hosts do not wait longer than `wait_seconds`."""
    return min(context.options.answer_seconds, context.options.wait_seconds)


def _not_cancelable(record: TaskRecord) -> ToolError:
    state = "unknown" if record.task is None else state_name(record.task.state)
    return ToolError(f"Task cannot be canceled: it is {state}")


def _fill_from_record(record: TaskRecord, task: Task) -> Task:
    """Add the known artifacts and history: some agents answer a cancel with the state alone."""
    previous = record.task
    if previous is None or task.artifacts or task.history:
        return task
    return replace(task, artifacts=previous.artifacts, history=previous.history)


async def _refresh_all(context: ToolContext, records: list[TaskRecord]) -> None:
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def one(record: TaskRecord) -> None:
        async with slots:
            agent = context.registry.agents.get(record.agent_id)
            if agent is not None and context.followers.get(record) is None:
                await _refresh(context, agent, record)

    # A list must return soon: tasks whose agents are slow are shown as last known.
    refreshes = [asyncio.create_task(one(record)) for record in records]
    if refreshes:
        _, late = await asyncio.wait(refreshes, timeout=min(_seconds(context), _LIST_SECONDS))
        for each in late:
            each.cancel()
        await asyncio.gather(*refreshes, return_exceptions=True)


async def _list_remote(context: ToolContext, request: ToolInvocation, limit: int) -> ToolResult:
    agent = await context.peers.find_agent(request.require_text("agent_id"))
    try:
        page = await context.peers.list_tasks(agent, limit, request.get("page_token"))
    except DragomanError as error:
        raise request_failed(error) from error
    more = {"agent_id": agent.agent_id, "source": context.attribution(agent)}
    summaries = [{**task_summary_to_json(task), **more} for task in page.tasks[:limit]]
    structured: dict[str, Any] = {"tasks": summaries}
    if page.next_page_token:
        structured["next_page_token"] = page.next_page_token
    return ToolResult(structured, items=summaries)


def _summary(context: ToolContext, record: TaskRecord) -> dict[str, Any]:
    summary = _brief_summary(context, record)
    if record.task is not None:
        summary |= {**task_summary_to_json(record.task), "id": summary["id"]}
    if record.problem:
        summary["problem"] = record.problem
    summary["source"] = context.attribution(context.registry.agents.get(record.agent_id))
    return summary


def _brief_summary(context: ToolContext, record: TaskRecord) -> dict[str, Any]:
    begun = "failed" if record.problem else "working"
    state = begun if record.task is None else state_name(record.task.state)
    return {"id": context.registry.public_id(record), "status": {"state": state}, "agent_id": record.agent_id}


async def _report(request: ToolInvocation, follower: TaskFollower) -> None:
    task = follower.record.task
    if task is not None:
        note = task.status.message.text if task.status.message is not None else ""
        await request.report_progress(f"{state_name(task.state)}: {note or follower.answer_tail[-200:]}")
