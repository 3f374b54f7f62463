"""The tools about tasks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.mcp.tools.content import state_word, summary_shape
from dragoman.mcp.tools.tool import NOT_YET, Answer, ToolProblem, request_failed
from dragoman.model.error import DragomanError, TaskNotCancelable
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.mcp.registry import AgentRecord, TaskRecord
    from dragoman.mcp.session.follower import TaskFollower
    from dragoman.mcp.tools.context import ToolContext
    from dragoman.mcp.tools.tool import Call

SUBSCRIBED = "Subscribed to task events."
_AT_ONCE = 8
_LISTED = 50
_LIST_SECONDS = 10.0
_CANCEL_LOOKS = (0.05, 0.1, 0.2, 0.4, 0.8)


async def get_task(context: ToolContext, call: Call) -> Answer:
    """Ask the agent how a task is; where it cannot say, what is known here."""
    record, agent = await _found(context, call)
    if record.remote_id is not None:
        await _refresh(context, agent, record)
    if record.task is None:
        if record.problem:
            raise ToolProblem(record.problem)
        return Answer({"id": record.id, "status": {"state": "working"}, "agent_id": record.agent_id})
    return context.task(agent, record, call.get("history_length"))


async def list_tasks(context: ToolContext, call: Call) -> Answer:
    """What was begun here, the newest first, as the agents say it is now; or an agent's own list."""
    limit = call.get("limit", _LISTED)
    if call.get("agent_id") is not None:
        return await _list_remote(context, call, limit)
    records = context.registry.tasks()[:limit]
    await _refresh_all(context, [each for each in records if each.task is not None and not each.task.state.final])
    shown = [_summary(context, each) for each in records]
    return Answer({"tasks": shown}, listed=shown)


async def cancel_task(context: ToolContext, call: Call) -> Answer:
    """Cancel a task where it is worked on."""
    record, agent = await _found(context, call)
    task_id = record.remote_id
    if task_id is None and record.task is None:
        raise ToolProblem(record.problem or NOT_YET)
    if task_id is None:
        raise _not_cancelable(record)
    try:
        task = await context.ask_agent(agent, lambda client: client.cancel_task(task_id), _seconds(context))
    except ToolProblem as problem:
        if not isinstance(problem.__cause__, TaskNotCancelable):
            raise
        await _refresh(context, agent, record)
        raise _not_cancelable(record) from None
    if task.state is State.UNSPECIFIED:
        # It was taken without an error, and without a word about how the task is.
        known = record.task.context_id if record.task is not None else ""
        task = Task(task_id, known, TaskStatus(State.CANCELED))
    record = context.learn(record, _with_what_is_known(record, task))
    state = task.state
    for pause in _CANCEL_LOOKS:
        # Some agents answer before they have stopped.
        if state.final or record.task is None:
            break
        await asyncio.sleep(pause)
        await _refresh(context, agent, record)
        state = record.task.state
    return Answer({"task_id": context.registry.shown_id(record), "status": state_word(state)})


async def subscribe_to_task(context: ToolContext, call: Call) -> Answer:
    """Follow a task for a while, and give what has arrived."""
    record, agent = await _found(context, call)
    follower = context.followers.of(record)
    if follower is None and record.task is not None and record.task.state.waiting:
        await _refresh(context, agent, record)  # somebody else may have answered
    rests = record.task is not None and (record.task.state.final or record.task.state.waiting)
    if follower is None and record.remote_id is not None and not rests:
        follower = context.followers.new(record).follow(context.peers.client(agent))
    if follower is not None:
        seconds = float(call.get("wait_seconds", context.options.wait_seconds))
        await follower.wait(seconds, partial(_report, call))
        record = follower.record
        if follower.problem:
            await _refresh(context, agent, record)
            if follower.is_too_large and not record.problem:
                record.problem = follower.problem
    if record.task is None and record.problem:
        raise ToolProblem(record.problem)
    shown: dict[str, Any] = {
        "task_id": context.registry.shown_id(record),
        "subscription": "active",
        "current_state": "working" if record.task is None else state_word(record.task.state),
        "message": SUBSCRIBED,
        "events": 0 if follower is None else follower.events,
    }
    if record.task is None:
        return Answer(shown)
    whole = context.task(agent, record)
    for key in ("text", "question", "next_step", "source", "artifacts"):
        if key in whole.structured:
            shown[key] = whole.structured[key]
    return Answer(shown, content=whole.content)


# -- parts -------------------------------------------------------------------------------------------------------------


async def _found(context: ToolContext, call: Call) -> tuple[TaskRecord, AgentRecord]:
    record = context.registry.must_task(call.text("task_id"))
    return record, await context.peers.known(record.agent_id)


async def _refresh(context: ToolContext, agent: AgentRecord, record: TaskRecord) -> None:
    task_id = record.remote_id
    if task_id is None:
        return
    try:
        task = await context.ask_agent(agent, lambda client: client.get_task(task_id), _seconds(context))
    except ToolProblem as problem:
        record.problem = str(problem)
    else:
        if not task.id:
            record.problem = "Request failed: the agent does not say how its task is"
        context.learn(record, task, looked=True)


def _seconds(context: ToolContext) -> float:
    """How long an agent may take to say something about a task: hosts do not wait longer."""
    return min(context.options.answer_seconds, context.options.wait_seconds)


def _not_cancelable(record: TaskRecord) -> ToolProblem:
    state = "unknown" if record.task is None else state_word(record.task.state)
    return ToolProblem(f"Task cannot be canceled: it is {state}")


def _with_what_is_known(record: TaskRecord, task: Task) -> Task:
    """Some agents answer a cancel with the state alone."""
    known = record.task
    if known is None or task.artifacts or task.history:
        return task
    return replace(task, artifacts=known.artifacts, history=known.history)


async def _refresh_all(context: ToolContext, records: list[TaskRecord]) -> None:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(record: TaskRecord) -> None:
        async with room:
            agent = context.registry.agents.get(record.agent_id)
            if agent is not None and context.followers.of(record) is None:
                await _refresh(context, agent, record)

    # A list is wanted soon: who takes longer is shown as it was.
    looks = [asyncio.create_task(one(record)) for record in records]
    if looks:
        _, late = await asyncio.wait(looks, timeout=min(_seconds(context), _LIST_SECONDS))
        for each in late:
            each.cancel()
        await asyncio.gather(*looks, return_exceptions=True)


async def _list_remote(context: ToolContext, call: Call, limit: int) -> Answer:
    agent = await context.peers.known(call.text("agent_id"))
    try:
        page = await context.peers.page(agent, limit, call.get("page_token"))
    except DragomanError as error:
        raise request_failed(error) from error
    more = {"agent_id": agent.agent_id, "source": context.source(agent)}
    shown = [{**summary_shape(task), **more} for task in page.tasks[:limit]]
    structured: dict[str, Any] = {"tasks": shown}
    if page.next_page_token:
        structured["next_page_token"] = page.next_page_token
    return Answer(structured, listed=shown)


def _summary(context: ToolContext, record: TaskRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": context.registry.shown_id(record), "status": {"state": "working"}}
    if record.task is not None:
        shown |= {**summary_shape(record.task), "id": shown["id"]}
    elif record.problem:
        shown["status"] = {"state": "failed"}
    if record.problem:
        shown["problem"] = record.problem
    source = context.source(context.registry.agents.get(record.agent_id))
    return {**shown, "agent_id": record.agent_id, "source": source}


async def _report(call: Call, follower: TaskFollower) -> None:
    task = follower.record.task
    if task is not None:
        note = task.status.message.text if task.status.message is not None else ""
        await call.progress(f"{state_word(task.state)}: {note or follower.text[-200:]}")
