"""A remote agent as a tool of a local one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from dragoman.agents.adk.parts import to_genai
from dragoman.agents.adk.remote.call import Gone, RemoteCall, plain
from dragoman.agents.adk.remote.events import file_name, kept
from dragoman.agents.adk.remote.message import CONTEXT_ID, STATE, TASK_ID, Outgoing, state_key
from dragoman.model.error import DragomanError
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from dragoman.agents.adk.remote.connection import RemoteLine
    from dragoman.model.message import Message

REQUEST = "request"


class RemoteTool(BaseTool):
    """Asks a remote agent. All calls of a session are one conversation, and the next answers an open question."""

    def __init__(self, line: RemoteLine, *, name: str, key: str, description: str, described: bool) -> None:
        super().__init__(name=name, description=description)
        self._line = line
        self._key = key
        self._described = described
        # Calls that a model makes at once would each begin a conversation of its own.
        self._turns: WeakValueDictionary[tuple[str, asyncio.AbstractEventLoop], asyncio.Lock] = WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_turns"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turns=WeakValueDictionary())

    def _get_declaration(self) -> types.FunctionDeclaration:
        request = types.Schema(type=types.Type.STRING, description="What to ask, in words.")
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters=types.Schema(type=types.Type.OBJECT, properties={REQUEST: request}, required=[REQUEST]),
        )

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Tell the model of the tool, in the words of the agent's card where it can be read."""
        if not self._described:
            with suppress(DragomanError):
                self.description = await self._line.description() or self.description
                self._described = True
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Ask; give the answer as `result`, with names of files, or the question or error instead of it.

        What an earlier question came to without an answer is beside it as `earlier`.
        """
        here = (tool_context.session.id, asyncio.get_running_loop())
        turn = self._turns.setdefault(here, asyncio.Lock())
        async with turn:
            place: dict[str, Any] = tool_context.state.get(state_key(self._key)) or {}
            said = Part(text=str(args.get(REQUEST) or ""))
            outgoing = Outgoing((said,), place.get("context_id"), place.get("task_id"))
            call = RemoteCall(self._line, outgoing)
            try:
                before = await call.before()
                if before is not None and before.state.final:
                    # It went on without an answer, and this may be about something else.
                    call.begin_anew()
                answer = await call.send()
            except Gone as error:
                self._keep(tool_context, {CONTEXT_ID: error.context_id, STATE: State.FAILED.value})
                return {"error": f"send failed: {plain(error)}"}
            except DragomanError as error:
                return {"error": f"send failed: {plain(error)}"}
            finally:
                await call.leave()
            task_id = answer.id if isinstance(answer, Task) else answer.task_id
            metadata = {CONTEXT_ID: answer.context_id, TASK_ID: task_id, STATE: answer.state.value}
            self._keep(tool_context, metadata)
        made = await _result(answer, tool_context)
        if before is not None and before.state is State.COMPLETED and before.text:
            made["earlier"] = before.text
        return made

    def _keep(self, tool_context: ToolContext, metadata: dict[str, Any]) -> None:
        for key, value in kept(tool_context.state, self._key, metadata).items():
            tool_context.state[key] = value


async def _result(answer: Task | Message, tool_context: ToolContext) -> dict[str, Any]:
    if answer.state.waiting:
        return {"question": answer.question or "input required", "status": "waiting for an answer: call again with it"}
    if answer.state is not State.COMPLETED:
        return {"error": answer.error or f"remote agent: {answer.state.name.lower()}"}
    made: dict[str, Any] = {}
    data = [part.data for part in answer.parts if part.kind == "data"]
    if answer.text or not answer.parts:
        made["result"] = answer.text
        if data:
            made["data"] = data
    elif data:
        made["result"] = data[0] if len(data) == 1 else data
    names: list[str] = []
    for part in answer.files:
        name = part.url or file_name(part, "file")
        if part.raw is not None:
            # Without a service there is nowhere to put it, and bytes are nothing a model can read here.
            with suppress(ValueError):
                await tool_context.save_artifact(name, to_genai(part))
        names.append(name)
    if names:
        made["files"] = names
    return made
