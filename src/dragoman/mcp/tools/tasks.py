"""The tools about tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.mcp.session.errand import TIMEOUT
from dragoman.mcp.tools.shapes import state_word, summary_shape
from dragoman.mcp.tools.tool import NOT_YET, Answer, ToolProblem, request_failed
from dragoman.model.error import DragomanError, TaskNotCancelable
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.mcp.registry import AgentRecord, TaskRecord
    from dragoman.mcp.session.errand import Errand
    from dragoman.mcp.tools.context import Desk
    from dragoman.mcp.tools.tool import Call

SUBSCRIBED = "Subscribed to task events."
_AT_ONCE = 8
_LISTED = 50
_LIST_SECONDS = 10.0
_CANCEL_LOOKS = (0.05, 0.1, 0.2, 0.4, 0.8)


class TaskTools:
    """get_task, list_tasks, cancel_task, subscribe_to_task."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get(self, call: Call) -> Answer:
        """Ask the agent how a task is; where it cannot say, what is known here."""
        record, agent = await self._found(call)
        if record.remote_id is not None:
            await self._refresh(agent, record)
        if record.task is None:
            if record.problem:
                raise ToolProblem(record.problem)
            return Answer({"id": record.id, "status": {"state": "working"}, "agent_id": record.agent_id})
        return self._desk.task(agent, record, call.get("history_length"))

    async def list(self, call: Call) -> Answer:
        """What was begun here, the newest first, as the agents say it is now; or an agent's own list."""
        limit = call.get("limit", _LISTED)
        if call.get("agent_id") is not None:
            return await self._remote(call, limit)
        records = self._desk.registry.tasks()[:limit]
        await self._refresh_all([each for each in records if each.task is not None and not each.task.state.final])
        shown = [self._summary(each) for each in records]
        return Answer({"tasks": shown}, listed=shown)

    async def cancel(self, call: Call) -> Answer:
        """Cancel a task where it is worked on."""
        record, agent = await self._found(call)
        if record.remote_id is None and record.task is None:
            raise ToolProblem(record.problem or NOT_YET)
        if record.remote_id is None:
            raise self._not_cancelable(record)
        try:
            async with asyncio.timeout(self._seconds):
                task = await self._desk.peers.client(agent).cancel_task(record.remote_id)
        except TaskNotCancelable:
            await self._refresh(agent, record)
            raise self._not_cancelable(record) from None
        except TimeoutError:
            raise ToolProblem(TIMEOUT) from None
        except DragomanError as error:
            raise request_failed(error) from error
        if task.state is State.UNSPECIFIED:
            # It was taken without an error, and without a word about how the task is.
            known = record.task.context_id if record.task is not None else ""
            task = Task(record.remote_id, known, TaskStatus(State.CANCELED))
        record = self._desk.learn(record, self._with_what_is_known(record, task))
        state = await self._after_cancel(agent, record, task.state)
        return Answer({"task_id": self._desk.registry.shown_id(record), "status": state_word(state)})

    async def subscribe(self, call: Call) -> Answer:
        """Follow a task for a while, and give what has arrived."""
        record, agent = await self._found(call)
        errand = self._desk.errands.of(record)
        if errand is None and record.task is not None and record.task.state.waiting:
            await self._refresh(agent, record)  # somebody else may have answered
        rests = record.task is not None and (record.task.state.final or record.task.state.waiting)
        if errand is None and record.remote_id is not None and not rests:
            errand = self._desk.errands.new(record).follow(self._desk.peers.client(agent))
        if errand is not None:
            seconds = float(call.get("wait_seconds", self._desk.options.wait_seconds))
            await errand.settled(seconds, lambda errand: self._tell(call, errand))
            record = errand.record
            if errand.problem:
                await self._refresh(agent, record)
                if errand.is_too_large and not record.problem:
                    record.problem = errand.problem
        if record.task is None and record.problem:
            raise ToolProblem(record.problem)
        return self._subscribed(agent, record, errand)

    async def _after_cancel(self, agent: AgentRecord, record: TaskRecord, state: State) -> State:
        """How the task is a little later: some agents answer before they have stopped."""
        for pause in _CANCEL_LOOKS:
            if state.final or record.task is None:
                break
            await asyncio.sleep(pause)
            await self._refresh(agent, record)
            state = record.task.state
        return state

    # -- parts ---------------------------------------------------------------------------------------------------------

    async def _found(self, call: Call) -> tuple[TaskRecord, AgentRecord]:
        record = self._desk.registry.must_task(call.text("task_id"))
        return record, await self._desk.peers.known(record.agent_id)

    async def _refresh(self, agent: AgentRecord, record: TaskRecord) -> None:
        if record.remote_id is None:
            return
        try:
            async with asyncio.timeout(self._seconds):
                task = await self._desk.peers.client(agent).get_task(record.remote_id)
        except TimeoutError:
            record.problem = TIMEOUT
        except ToolProblem as problem:
            record.problem = str(problem)
        except DragomanError as error:
            record.problem = str(request_failed(error))
        else:
            if not task.id:
                record.problem = "Request failed: the agent does not say how its task is"
            self._desk.learn(record, task, looked=True)

    @property
    def _seconds(self) -> float:
        """How long an agent may take to say something about a task: hosts do not wait longer."""
        return min(self._desk.options.answer_seconds, self._desk.options.wait_seconds)

    @staticmethod
    def _not_cancelable(record: TaskRecord) -> ToolProblem:
        state = "unknown" if record.task is None else state_word(record.task.state)
        return ToolProblem(f"Task cannot be canceled: it is {state}")

    @staticmethod
    def _with_what_is_known(record: TaskRecord, task: Task) -> Task:
        """Some agents answer a cancel with the state alone."""
        known = record.task
        if known is None or task.artifacts or task.history:
            return task
        return replace(task, artifacts=known.artifacts, history=known.history)

    async def _refresh_all(self, records: list[TaskRecord]) -> None:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(record: TaskRecord) -> None:
            async with room:
                agent = self._desk.registry.agents.get(record.agent_id)
                if agent is not None and self._desk.errands.of(record) is None:
                    await self._refresh(agent, record)

        # A list is wanted soon: who takes longer is shown as it was.
        looks = [asyncio.create_task(one(record)) for record in records]
        if looks:
            _, late = await asyncio.wait(looks, timeout=min(self._seconds, _LIST_SECONDS))
            for each in late:
                each.cancel()
            await asyncio.gather(*looks, return_exceptions=True)

    async def _remote(self, call: Call, limit: int) -> Answer:
        agent = await self._desk.peers.known(call.text("agent_id"))
        try:
            page = await self._desk.peers.page(agent, limit, call.get("page_token"))
        except DragomanError as error:
            raise request_failed(error) from error
        more = {"agent_id": agent.agent_id, "source": self._desk.source(agent)}
        shown = [{**summary_shape(task), **more} for task in page.tasks[:limit]]
        structured: dict[str, Any] = {"tasks": shown}
        if page.next_page_token:
            structured["next_page_token"] = page.next_page_token
        return Answer(structured, listed=shown)

    def _summary(self, record: TaskRecord) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": self._desk.registry.shown_id(record), "status": {"state": "working"}}
        if record.task is not None:
            shown |= {**summary_shape(record.task), "id": shown["id"]}
        elif record.problem:
            shown["status"] = {"state": "failed"}
        if record.problem:
            shown["problem"] = record.problem
        source = self._desk.source(self._desk.registry.agents.get(record.agent_id))
        return {**shown, "agent_id": record.agent_id, "source": source}

    async def _tell(self, call: Call, errand: Errand) -> None:
        task = errand.record.task
        if task is not None:
            note = task.status.message.text if task.status.message is not None else ""
            await call.progress(f"{state_word(task.state)}: {note or errand.text[-200:]}")

    def _subscribed(self, agent: AgentRecord, record: TaskRecord, errand: Errand | None) -> Answer:
        task = record.task
        shown: dict[str, Any] = {
            "task_id": self._desk.registry.shown_id(record),
            "subscription": "active",
            "current_state": "working" if task is None else state_word(task.state),
            "message": SUBSCRIBED,
            "events": 0 if errand is None else errand.events,
        }
        if task is None:
            return Answer(shown)
        whole = self._desk.task(agent, record)
        for key in ("text", "question", "next_step", "source", "artifacts"):
            if key in whole.structured:
                shown[key] = whole.structured[key]
        return Answer(shown, content=whole.content)
