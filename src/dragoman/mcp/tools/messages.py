"""The tools that send messages."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any

import mcp_types as types

from dragoman.mcp.session.elicitation import Asking
from dragoman.mcp.tools.tool import NOT_YET, Answer, ToolProblem
from dragoman.model.error import DragomanError
from dragoman.model.part import Part

if TYPE_CHECKING:
    from dragoman.mcp.registry import AgentRecord, TaskRecord
    from dragoman.mcp.session.errand import Errand
    from dragoman.mcp.tools.context import Desk
    from dragoman.mcp.tools.tool import Call
    from dragoman.model.task import Task


def files_of(files: list[dict[str, Any]]) -> list[Part]:
    """The files as parts of a message. Raises ToolProblem when one has neither bytes nor a uri."""
    return [_file(file, number) for number, file in enumerate(files)]


def _file(file: dict[str, Any], number: int) -> Part:
    name, kind = file.get("name"), file.get("mime_type")
    held, uri = file.get("bytes"), file.get("uri")
    if isinstance(held, str) and not uri:
        try:
            raw = base64.b64decode(held, validate=True)
        except (binascii.Error, ValueError):
            raise ToolProblem(f"Invalid params: files[{number}].bytes is not base64") from None
        return Part(raw=raw, filename=name, media_type=kind)
    if isinstance(uri, str) and not held and uri.startswith(("http://", "https://")):
        return Part(url=uri, filename=name, media_type=kind)
    raise ToolProblem(f"Invalid params: files[{number}] needs bytes (base64) or an http uri, one of them")


STARTED = "Task started. Use subscribe_to_task for streaming updates."


class MessageTools:
    """send_message and send_streaming_message."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asking = Asking(desk)

    async def send(self, call: Call) -> Answer | types.InputRequiredResult:
        """Send a message and wait for what comes of it, for a while."""
        return await self._waited(call, *await self.begin(call))

    async def begin(self, call: Call) -> tuple[AgentRecord, Errand]:
        """Send a message, or go on with one: to whom, and what is under way. Raises ToolProblem."""
        answered = await self._asking.resumed(call)
        if answered is not None:
            return answered
        record = await self._desk.peers.known(call.text("agent_id"))
        message = self._message(call, record)
        task = self._task(call, record)  # after what may be wrong with the message
        return record, self._desk.errands.new(task).send(self._desk.peers.client(record), **message)

    async def stream(self, call: Call) -> Answer:
        """Send a message and give the task's id at once."""
        desk = self._desk
        record = await desk.peers.known(call.text("agent_id"))
        client, message = desk.peers.client(record), self._message(call, record)
        task = self._task(call, record)
        plain: dict[str, Any] = {**message, "push": None}
        errand = desk.errands.new(task).stream(client.stream(**message), again=lambda: client.stream(**plain))
        await errand.known(desk.options.id_seconds)
        if errand.problem and not errand.taken:
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
                if errand.problem and not errand.taken:
                    raise ToolProblem(errand.problem)
                asked = await self._asking.ask(call, record, errand)
                deadline = asyncio.get_running_loop().time() + seconds  # however long the user took
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
            self._desk.errands.farewell(self._cancel(record, errand))

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
        """What is remembered of the task this message belongs to; of a mere message there was none to go on with."""
        known = self._known(call, record)
        if known is not None and known.remote_id is not None:
            return known
        return self._desk.registry.begin(record.agent_id)

    def _known(self, call: Call, record: AgentRecord) -> TaskRecord | None:
        """The task that a message is to go on with, if it is known here. Raises ToolProblem."""
        task_id = call.get("task_id")
        known = self._desk.registry.task(task_id) if task_id else None
        if known is None:
            return None
        if known.agent_id != record.agent_id:
            raise ToolProblem(f"Task {task_id} is not one of this agent's: its agent_id is {known.agent_id}")
        if known.remote_id is None and known.task is None:
            raise ToolProblem(known.problem or NOT_YET)
        return known

    def _message(self, call: Call, record: AgentRecord) -> dict[str, Any]:
        task_id, context = call.get("task_id"), call.get("context_id")
        known = self._known(call, record)
        task: Task | str | None = task_id
        if known is not None and known.task is not None:
            # What was answered by a mere message goes on as a conversation.
            task, context = (known.task, None) if known.remote_id else (None, known.task.context_id or None)
        skill = call.get("skill_id")
        return {
            "text": call.text("text"),
            "data": call.get("data"),
            "files": files_of(call.get("files", [])),
            "task": task,
            "context": context if task is None else None,
            "metadata": {"skillId": skill} if skill else None,
            "push": self._desk.push_for(record),
        }
