"""The tools that send messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import mcp_types as types

from dragoman.mcp.asking import Asking
from dragoman.mcp.attachments import files_of
from dragoman.mcp.problem import ToolProblem
from dragoman.mcp.tool import Answer
from dragoman.model.error import DragomanError

if TYPE_CHECKING:
    from dragoman.mcp.call import Call
    from dragoman.mcp.desk import Desk
    from dragoman.mcp.errand import Errand
    from dragoman.mcp.record import AgentRecord, TaskRecord

STARTED = "Task started. Use subscribe_to_task for streaming updates."


class MessageTools:
    """send_message and send_streaming_message."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asking = Asking(desk)
        self._farewells: set[asyncio.Task[None]] = set()

    async def send(self, call: Call) -> Answer | types.InputRequiredResult:
        """Send a message and wait for what comes of it, for a while."""
        answered = await self._asking.resumed(call)
        if answered is not None:
            return await self._waited(call, *answered)
        record = await self._desk.peers.known(call.text("agent_id"))
        task = self._task(call, record)
        message = self._message(call, record)
        errand = self._desk.errands.new(task).send(self._desk.peers.client(record), **message)
        return await self._waited(call, record, errand)

    async def stream(self, call: Call) -> Answer:
        """Send a message and give the task's id at once."""
        desk = self._desk
        record = await desk.peers.known(call.text("agent_id"))
        task = self._task(call, record)
        stream = desk.peers.client(record).stream(**self._message(call, record))
        errand = desk.errands.new(task).stream(stream)
        await errand.known(desk.options.id_seconds)
        if errand.problem:
            raise ToolProblem(errand.problem)
        return Answer(
            {
                "task_id": desk.registry.shown_id(errand.record),
                "status": {"state": "working"},
                "streaming": True,
                "message": STARTED,
                "agent_id": record.agent_id,
            }
        )

    async def _waited(self, call: Call, record: AgentRecord, errand: Errand) -> Answer | types.InputRequiredResult:
        seconds = float(call.get("wait_seconds", self._desk.options.wait_seconds))
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                await errand.settled(left, lambda errand: self._tell(call, errand))
                if errand.problem:
                    raise ToolProblem(errand.problem)
                asked = await self._asking.ask(call, record, errand)
            except asyncio.CancelledError:
                self._aborted(call, record, errand)
                raise
            if asked is None:
                return self._desk.answer(record, errand)
            if isinstance(asked, types.InputRequiredResult):
                return asked
            errand = asked

    async def _tell(self, call: Call, errand: Errand) -> None:
        task = errand.record.task
        state = "" if task is None else self._desk.state(task)
        note = task.status.message.text if task is not None and task.status.message is not None else ""
        await call.progress(f"{state}: {note or errand.text[-200:]}" if note or errand.text else state)

    def _aborted(self, call: Call, record: AgentRecord, errand: Errand) -> None:
        """The host has given up. A time limit of a host must not end the work, unless that was asked for."""
        if call.get("cancel_on_abort", False):
            farewell = asyncio.create_task(self._cancel(record, errand))
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)

    async def _cancel(self, record: AgentRecord, errand: Errand) -> None:
        await errand.known(10)
        task_id = errand.record.remote_id
        if task_id is not None:
            try:
                task = await self._desk.peers.client(record).cancel_task(task_id)
            except DragomanError:
                return
            self._desk.registry.learn(errand.record, task)

    def _task(self, call: Call, record: AgentRecord) -> TaskRecord:
        """What is remembered of the task this message belongs to."""
        task_id = call.get("task_id")
        known = self._desk.registry.task(task_id) if task_id else None
        return known if known is not None else self._desk.registry.begin(record.agent_id)

    def _message(self, call: Call, record: AgentRecord) -> dict[str, Any]:
        task_id = call.get("task_id")
        known = self._desk.registry.task(task_id) if task_id else None
        if known is not None:
            task_id = known.remote_id or task_id
        skill = call.get("skill_id")
        return {
            "text": call.text("text"),
            "data": call.get("data"),
            "files": files_of(call.get("files", [])),
            "task": known.task if known is not None and known.task is not None else task_id,
            "context": call.get("context_id") if not task_id else None,
            "metadata": {"skillId": skill} if skill else None,
            "push": self._desk.push_for(record),
        }
