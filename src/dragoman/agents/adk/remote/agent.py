"""A remote A2A agent as an agent of Google ADK, and as a tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.run_config import StreamingMode  # pyright: ignore[reportPrivateImportUsage] - its home in 1.x
from google.adk.tools.base_tool import BaseTool
from google.genai import types
from pydantic import PrivateAttr

from dragoman.agents.adk.parts import parts_of_content, to_genai
from dragoman.agents.adk.remote.call import RemoteCall, RemoteClients, TaskLost, public_message
from dragoman.agents.adk.remote.events import RemoteEvents, file_name, state_changes
from dragoman.agents.adk.remote.message import (
    CONTEXT_ID,
    STATE,
    TASK_ID,
    OutgoingMessage,
    node_content,
    outgoing_message,
    state_key,
)
from dragoman.client.options import ClientOptions
from dragoman.model.error import ConfigError, DragomanError
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from dragoman.model.message import Message

REQUEST = "request"


class RemoteTool(BaseTool):
    """An ADK tool that sends requests to a remote agent.

    All calls of a session are one conversation; if the last one ended with a question, the next call answers it.
    """

    def __init__(self, clients: RemoteClients, *, name: str, key: str, description: str, has_description: bool) -> None:
        super().__init__(name=name, description=description)
        self._clients = clients
        self._key = key
        self._has_description = has_description
        # Parallel calls of a model would otherwise each start a conversation.
        self._locks: WeakValueDictionary[tuple[str, asyncio.AbstractEventLoop], asyncio.Lock] = WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_locks"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _locks=WeakValueDictionary())

    def _get_declaration(self) -> types.FunctionDeclaration:
        request = types.Schema(type=types.Type.STRING, description="What to ask, in words.")
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters=types.Schema(type=types.Type.OBJECT, properties={REQUEST: request}, required=[REQUEST]),
        )

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tool to the model, with the description of the agent's card if it can be read."""
        if not self._has_description:
            with suppress(DragomanError):
                self.description = await self._clients.description() or self.description
                self._has_description = True
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Send a request; return the answer as `result` with names of files, or a `question` or an `error`.

        If the task of an earlier question has completed without an answer, its text is returned as `earlier`.
        """
        key = (tool_context.session.id, asyncio.get_running_loop())
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            saved: dict[str, Any] = tool_context.state.get(state_key(self._key)) or {}
            request = Part(text=str(args.get(REQUEST) or ""))
            outgoing = OutgoingMessage((request,), saved.get("context_id"), saved.get("task_id"))
            call = RemoteCall(self._clients, outgoing)
            try:
                earlier = await call.current_task()
                if earlier is not None and earlier.state.final:
                    # It continued without an answer, and this request may be about something else.
                    call.start_new_task()
                answer = await call.send()
            except TaskLost as error:
                self._save_state(tool_context, {CONTEXT_ID: error.context_id, STATE: State.FAILED.value})
                return {"error": f"send failed: {public_message(error)}"}
            except DragomanError as error:
                return {"error": f"send failed: {public_message(error)}"}
            finally:
                await call.cancel_unfinished()
            task_id = answer.id if isinstance(answer, Task) else answer.task_id
            metadata = {CONTEXT_ID: answer.context_id, TASK_ID: task_id, STATE: answer.state.value}
            self._save_state(tool_context, metadata)
        result = await _tool_result(answer, tool_context)
        if earlier is not None and earlier.state is State.COMPLETED and earlier.text:
            result["earlier"] = earlier.text
        return result

    def _save_state(self, tool_context: ToolContext, metadata: dict[str, Any]) -> None:
        for key, value in state_changes(tool_context.state, self._key, metadata).items():
            tool_context.state[key] = value


async def _tool_result(answer: Task | Message, tool_context: ToolContext) -> dict[str, Any]:
    if answer.state.waiting:
        return {"question": answer.question or "input required", "status": "waiting for an answer: call again with it"}
    if answer.state is not State.COMPLETED:
        return {"error": answer.error or f"remote agent: {answer.state.name.lower()}"}
    result: dict[str, Any] = {}
    data = [part.data for part in answer.parts if part.kind == "data"]
    if answer.text or not answer.parts:
        result["result"] = answer.text
        if data:
            result["data"] = data
    elif data:
        result["result"] = data[0] if len(data) == 1 else data
    names: list[str] = []
    for part in answer.files:
        name = part.url or file_name(part, "file")
        if part.raw is not None:
            # Without an artifact service the file cannot be stored, and a model cannot read bytes here.
            with suppress(ValueError):
                await tool_context.save_artifact(name, to_genai(part))
        names.append(name)
    if names:
        result["files"] = names
    return result


_CLIENT_OPTIONS = frozenset(ClientOptions.__struct_fields__) - {"target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAgentConfig:
    """What a `RemoteAgent` calls, as a value. `client_opts` are options of `Client`, such as `auth`."""

    name: str
    url: object = None
    description: str | None = None
    agent_card: object = None
    client_opts: Mapping[str, Any] = field(default_factory=dict[str, Any])


class RemoteAgent(BaseAgent):
    """A remote A2A agent as an ADK agent: a sub-agent, a step of a sequence, a node of a workflow, or a tool.

    `url` is any target of `Client`: an address, a card, or an Agent or ASGI app in this process. With `agent_card`
    nothing is fetched: the agent is called where its card says. Options of `Client`, such as `auth` and `headers`, and
    of ADK's agents, such as `before_agent_callback`, are accepted by name. Without `description`, the card's is used;
    it is read with the first answer, or by `await agent.learn()`. A `RemoteAgent.Config` is the same as one value:
    `RemoteAgent(config)`.

    All turns of a session are one conversation. A question of the remote task becomes a long-running call; the response
    to that call, or the user's next message, goes to the task. With `StreamingMode.SSE` the answer is streamed. If the
    local run is canceled, so is the remote task, unless it waits for an answer.

    A copy, also a deep or a pickled one, calls the same target over a connection of its own. Tasks of an Agent in this
    process live on the event loop of their run. If each turn has its own loop, as with the synchronous `Runner.run`, a
    question cannot be answered, and the answer fails with an error that says so. Serve the agent and use its address,
    or use `run_async`.

    Raises:
        ConfigError: there is no name or no target, or an option is invalid.
        BadCard: the given card cannot be read.
    """

    if TYPE_CHECKING:
        Config = RemoteAgentConfig

    _clients: RemoteClients = PrivateAttr()
    _has_description: bool = PrivateAttr(default=False)

    def __init__(
        self,
        config: RemoteAgentConfig | None = None,
        *,
        name: str = "",
        url: object = None,
        description: str | None = None,
        agent_card: object = None,
        auth: object = None,
        **options: Any,
    ) -> None:
        if config is not None:
            name, url, description = name or config.name, url or config.url, description or config.description
            agent_card, options = agent_card or config.agent_card, {**config.client_opts, **options}
            auth = options.pop("auth", None) if auth is None else auth
        target = url if agent_card is None else agent_card
        if not name:
            raise ConfigError("a RemoteAgent needs name=, or a RemoteAgent.Config")
        if target is None:
            raise ConfigError("a RemoteAgent needs url=: an address, a card, an Agent or an ASGI app")
        client_options = {key: options.pop(key) for key in _CLIENT_OPTIONS & options.keys()}
        clients = RemoteClients(ClientOptions(target, auth=auth, **client_options))
        card_description = description or clients.static_description
        if "rerun_on_resume" in type(self).model_fields:
            # In a workflow the user's answer is sent to the remote agent; it is not the output of the node.
            options.setdefault("rerun_on_resume", True)
        super().__init__(name=name, description=card_description or f"The remote agent {name}.", **options)
        self._clients = clients
        self._has_description = card_description is not None

    # -- running -------------------------------------------------------------------------------------------------------

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        outgoing = outgoing_message(ctx, self.name)
        if outgoing is None:
            yield RemoteEvents(ctx, self.name).error("no user content in invocation context")
            return
        call = RemoteCall(self._clients, outgoing)
        try:
            async with aclosing(self._turn(ctx, call)) as events:
                async for event in events:
                    yield event
        except DragomanError as error:
            lost = error if isinstance(error, TaskLost) else None
            yield RemoteEvents(ctx, self.name).error(f"send failed: {public_message(error)}", lost)
        finally:
            await call.cancel_unfinished()

    async def _turn(self, ctx: InvocationContext, call: RemoteCall) -> AsyncGenerator[Event, None]:
        task = await call.current_task()
        if task is not None and task.state.final and not call.is_answer:
            # It continued without an answer, and the user has sent something new. Its result is reported anyway.
            if task.state is State.COMPLETED:
                for event in await RemoteEvents(ctx, self.name).unsent_events(task):
                    yield event
            call.start_new_task()
            task = None
        if task is not None and task.state.final:
            # The answer comes too late: the result of the task is reported instead.
            remote_events, result = RemoteEvents(ctx, self.name), task
        elif ctx.run_config is not None and ctx.run_config.streaming_mode is StreamingMode.SSE:
            remote_events, stream = RemoteEvents(ctx, self.name, task), call.stream()
            try:
                async with aclosing(call.events(stream)) as client_events:
                    async for each in client_events:
                        for event in await remote_events.take(each):
                            yield event
            except DragomanError:
                # Keep what has arrived before the error.
                for event in await remote_events.unsent_events_of(stream):
                    yield event
                raise
            result = stream.result
        else:
            remote_events, result = RemoteEvents(ctx, self.name, task), await call.send()
        if not self._has_description:
            with suppress(DragomanError):
                await self.learn()
        for event in await remote_events.close(result):
            yield event

    async def _run_impl(self, *, ctx: Any, node_input: Any) -> AsyncGenerator[Any, None]:
        """Run as a node of a workflow: its input is the message, and the agent's answer is its output."""
        here: InvocationContext = ctx.get_invocation_context()
        if node_input is not None:
            here = here.model_copy(update={"user_content": node_content(node_input)})
        parts: list[Part] = []
        promoted = False
        async with aclosing(self.run_async(here)) as events:
            async for event in events:
                ctx.event_author = self.name
                event.node_info.path = event.node_info.path or ctx.node_path
                if not event.partial and not promoted:
                    parts.extend(_answer_parts(event))
                    promoted = _is_answer(event) and bool(parts)
                    if promoted:
                        _put_output(event, parts)
                yield event

    # -- tool, description, close --------------------------------------------------------------------------------------

    def as_tool(self, name: str | None = None, description: str | None = None) -> RemoteTool:
        """Return the agent as a tool. All of its calls are one conversation, tracked in the session's state."""
        return RemoteTool(
            self._clients,
            name=name or self.name,
            key=self.name,
            description=description or self.description,
            has_description=description is not None or self._has_description,
        )

    async def learn(self) -> None:
        """Read the card now and use its description, unless one was given.

        Raises:
            CannotConnect: the agent does not answer.
            BadCard: its card cannot be read.
        """
        card_description = await self._clients.description()
        if not self._has_description:
            self.description, self._has_description = card_description or self.description, True

    async def _has_ended(self, task_id: str) -> bool:
        """Tell whether a task of the remote agent has ended. Raises DragomanError if it cannot be read."""
        return (await self._clients.client().get_task(task_id)).state.final

    async def close(self) -> None:
        """Close the connection. Remote tasks continue, except those of an agent in this process."""
        await self._clients.close()


def _answer_parts(event: Event) -> list[Part]:
    return [part for part in parts_of_content(event.content) if not (part.metadata or {}).get("adk_thought")]


def _is_answer(event: Event) -> bool:
    """Return True for the last event of a successful turn, and for an event that a callback returns in its place."""
    if event.error_code or event.long_running_tool_ids:
        return False
    return bool(event.turn_complete) or STATE not in (event.custom_metadata or {})


def _put_output(event: Any, parts: list[Part]) -> None:
    texts = [part.text for part in parts if part.text is not None]
    if texts:
        event.output = "".join(texts)
    elif len(parts) == 1 and parts[0].kind == "data":
        event.output = parts[0].data
    # For files, the content of the event is the output.
    event.node_info.message_as_output = True


# Not in the class: pydantic takes a class of this name there for its own settings.
setattr(RemoteAgent, "Config", RemoteAgentConfig)  # noqa: B010 - the name is declared for type checkers only
