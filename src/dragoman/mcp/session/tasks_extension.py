"""The tasks extension of MCP: a host that knows it gets a task at once, and polls for what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
from mcp import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.clock import timestamp
from dragoman.mcp.session.elicitation import ANSWER
from dragoman.mcp.session.follower import question_key
from dragoman.mcp.tools.messages import start_message
from dragoman.mcp.tools.tasks import cancel_task
from dragoman.mcp.tools.tool import ToolError, ToolRequest
from dragoman.model.state import State

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import ServerRequestContext

    from dragoman.mcp.registry import AgentRecord
    from dragoman.mcp.session.follower import TaskFollower
    from dragoman.mcp.tools.context import ToolContext
    from dragoman.model.task import Task

EXTENSION = "io.modelcontextprotocol/tasks"
TTL_MS = 24 * 60 * 60 * 1000
POLL_MS = 1000
# Beyond these the oldest are forgotten; their tasks are not.
MAX_HANDLES = 1000
_MAX_NOTE = 300

Json = dict[str, Any]


class CreatedTask(types.Result):
    """What `send_message` gives in place of its result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str = "working"
    created_at: str
    last_updated_at: str
    ttl_ms: int = TTL_MS
    poll_interval_ms: int = POLL_MS


class TaskParams(types.RequestParams):
    """Which task is meant."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to what a task asks."""

    input_responses: types.InputResponses


class _TaskHandle:
    """A task of a host: the follower that is behind it now, and how it ended once it has."""

    def __init__(self, agent: AgentRecord, follower: TaskFollower, now: int) -> None:
        # Whoever has the id may ask and answer, so nobody must be able to guess it.
        self.id = secrets.token_urlsafe(24)
        self.agent = agent
        self.follower = follower
        self.created_ms = self.ended_ms = now
        self.end: Json | None = None
        # Polls and answers one after the other: two polls must not begin two followers.
        self.lock = asyncio.Lock()
        self._number = 0
        # The question that is open at the host, and the one whose answer the user has gone elsewhere to give.
        self._open_question = self._authorizing_question = ""

    @property
    def question_id(self) -> str | None:
        """The name of the question that is open at the host. None is used twice."""
        return f"{ANSWER}-{self._number}" if self._open_question else None

    def ask(self, task: Task) -> str:
        """The name for what a task asks."""
        if question_key(task) != self._open_question:
            self._open_question = question_key(task)
            self._number += 1
        return f"{ANSWER}-{self._number}"

    def continue_with(self, follower: TaskFollower) -> None:
        """The user has answered, or has gone elsewhere to allow something, or wants neither."""
        task = self.follower.record.task
        is_authorizing = task is not None and task.state is State.AUTH_REQUIRED and not follower.refusal
        self._authorizing_question = self._open_question if is_authorizing else ""
        self._open_question = ""
        self.follower = follower

    @property
    def has_answer(self) -> bool:
        """True when what is under way is an answer, not the first message."""
        return self._number > 0

    @property
    def has_news(self) -> bool:
        """True when there is something to tell that the host has not heard."""
        task = self.follower.record.task
        if task is None or self.follower.reply is not None or self.follower.refusal:
            return self.follower.reply is not None or task is not None
        return task.state.final or (
            task.state.waiting and question_key(task) not in (self._open_question, self._authorizing_question)
        )

    @property
    def is_authorizing(self) -> bool:
        """True when the agent still waits for what the user has gone to do."""
        task = self.follower.record.task
        return task is not None and question_key(task) == self._authorizing_question != ""

    @property
    def has_ended(self) -> bool:
        """True when nothing more comes of it, whether or not the host has heard."""
        task = self.follower.record.task
        return self.end is not None or self.follower.reply is not None or (task is not None and task.state.final)

    def finish(self, now: int, **outcome: Any) -> Json:
        """It has ended; what comes of the agent's task later is not its matter any more."""
        self.end, self.ended_ms = outcome, now
        return outcome


class McpTasks:
    """The tasks of hosts. They are kept in memory: after a restart, `get_task` still knows the agents' tasks."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._clock = context.clock
        self._handles: dict[str, _TaskHandle] = {}

    def add_to(self, server: Server[Any]) -> None:
        """Advertise the extension and serve its methods."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def is_supported(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """True when this very request says that the host knows tasks."""
        capabilities = ctx.session.client_capabilities
        extensions = None if capabilities is None else capabilities.extensions
        return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in (extensions or {})

    async def send(self, request: ToolRequest) -> CreatedTask:
        """Send a message, and give a task at once. Raises ToolError."""
        agent, follower = await start_message(self._context, request)
        handle = _TaskHandle(agent, follower, self._clock.now())
        self._handles[handle.id] = handle
        self._evict()
        moment = timestamp(handle.created_ms)
        return CreatedTask(task_id=handle.id, created_at=moment, last_updated_at=moment)

    # -- what hosts ask ------------------------------------------------------------------------------------------------

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Json:
        handle = self._find_handle(ctx, params)
        async with handle.lock:
            state = handle.end if handle.end is not None else await self._current_state(ctx, handle)
        changed = handle.ended_ms if handle.end is not None else handle.follower.record.changed_ms
        return {
            "taskId": handle.id,
            "createdAt": timestamp(handle.created_ms),
            "lastUpdatedAt": timestamp(max(handle.created_ms, changed)),
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
            **state,
        }

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: UpdateParams) -> Json:
        handle = self._find_handle(ctx, params)
        async with handle.lock:
            # Answers to nothing that is asked are passed over.
            answer = params.input_responses.get(handle.question_id or "")
            if handle.end is None and handle.question_id and isinstance(answer, types.ElicitResult):
                self._apply_answer(ctx, handle, answer)
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Json:
        handle = self._find_handle(ctx, params)
        if handle.end is None:
            self._context.followers.finish_later(self._cancel_remote(ctx, handle.follower))
        return {}

    def _find_handle(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> _TaskHandle:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not self.is_supported(ctx):
            needed: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            text = f"This method is for hosts that declare the extension {EXTENSION}"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, text, needed)
        headers: Any = getattr(ctx.request, "headers", None)
        header_id = None if headers is None else headers.get(MCP_NAME_HEADER)
        if header_id is not None and decode_header_value(header_id) != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, f"{MCP_NAME_HEADER} is not the taskId of the request")
        self._evict()
        handle = self._handles.get(params.task_id)
        if handle is None:
            raise MCPError(types.INVALID_PARAMS, "Task not found: it never was, or is too old")
        return handle

    # -- how a task is -------------------------------------------------------------------------------------------------

    async def _current_state(self, ctx: ServerRequestContext[Any, Any], handle: _TaskHandle) -> Json:
        if not handle.follower.is_done:
            return _working_state(handle.follower)
        problem = handle.follower.problem
        if problem and not handle.follower.is_accepted and not await self._answer_came_too_late(handle):
            return self._fail(handle, problem)
        if not handle.has_news:
            # It goes on although nobody follows it, as after a broken connection; or others may have answered.
            was_waiting = _is_waiting(handle.follower.record.task)
            problem = await self._refresh(handle)
            if problem and not was_waiting:
                return self._fail(handle, problem)
            if handle.is_authorizing or not handle.follower.is_done:
                return _working_state(handle.follower)
        task = handle.follower.record.task
        if task is not None and task.state.waiting:
            params = self._context.elicitation.open_question(_send_request(ctx), handle.agent, handle.follower)
            if params is not None:
                request = types.ElicitRequest(params=params)
                payload = request.model_dump(by_alias=True, mode="json", exclude_none=True)
                return {"status": "input_required", "inputRequests": {handle.ask(task): payload}}
        if task is not None and task.state is State.CANCELED:
            return handle.finish(self._clock.now(), status="cancelled")
        # A task that asks what nobody can be asked is shown as it is: the model that called is told what to do.
        return self._complete(handle)

    def _complete(self, handle: _TaskHandle) -> Json:
        result = self._context.message_result(handle.agent, handle.follower).to_mcp()
        payload = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return handle.finish(self._clock.now(), status="completed", result=payload)

    def _fail(self, handle: _TaskHandle, problem: str) -> Json:
        error = {"code": types.INTERNAL_ERROR, "message": problem}
        return handle.finish(self._clock.now(), status="failed", statusMessage=problem, error=error)

    async def _answer_came_too_late(self, handle: _TaskHandle) -> bool:
        """True when an answer was not taken because the task has ended: then that end counts."""
        return handle.has_answer and not await self._refresh(handle) and handle.has_ended

    async def _refresh(self, handle: _TaskHandle) -> str:
        """Ask the agent how its task is, and follow it again where it goes on. Gives what is wrong, if anything."""
        follower = handle.follower
        record = follower.record
        if record.remote_id is None:
            return follower.problem or "Request failed: the agent has not answered"
        task_id, context = record.remote_id, self._context
        try:
            seconds = context.options.answer_seconds
            task = await context.call_agent(handle.agent, lambda client: client.get_task(task_id), seconds)
        except ToolError as problem:
            return str(problem)
        record = context.registry.update_task(record, task, may_be_stale=True)
        handle.follower = context.followers.new(record)
        if not (_is_waiting(record.task) or handle.has_ended):
            handle.follower.follow(context.peers.client(handle.agent))
        return ""

    # -- what a host does ----------------------------------------------------------------------------------------------

    def _apply_answer(
        self, ctx: ServerRequestContext[Any, Any], handle: _TaskHandle, answer: types.ElicitResult
    ) -> None:
        context, record = self._context, handle.follower.record
        params = context.elicitation.open_question(_send_request(ctx), handle.agent, handle.follower)
        # One that is not open any more has nothing to answer.
        if params is not None and context.registry.task(record.id) is record and context.followers.get(record) is None:
            handle.continue_with(context.elicitation.continue_task(handle.agent, record, answer))

    async def _cancel_remote(self, ctx: ServerRequestContext[Any, Any], follower: TaskFollower) -> None:
        """Cancel it where it is worked on. That this cannot be done, or is too late, is no problem of the host."""
        await follower.wait_for_id(self._context.options.answer_seconds)
        params = types.CallToolRequestParams(name="cancel_task", arguments={"task_id": follower.record.id})
        with contextlib.suppress(ToolError):
            await cancel_task(self._context, ToolRequest(ctx, params))

    def _evict(self) -> None:
        """Forget what is too old. The agents' tasks stay known under their own ids."""
        oldest = self._clock.now() - TTL_MS
        while self._handles:
            first = next(iter(self._handles.values()))
            if first.created_ms >= oldest:
                break
            del self._handles[first.id]
        while len(self._handles) > MAX_HANDLES:
            ended = (each for each in self._handles.values() if each.has_ended)
            del self._handles[next(ended, next(iter(self._handles.values()))).id]


def _send_request(ctx: ServerRequestContext[Any, Any]) -> ToolRequest:
    """The call that a host which knows no tasks would make."""
    return ToolRequest(ctx, types.CallToolRequestParams(name="send_message"))


def _is_waiting(task: Task | None) -> bool:
    return task is not None and task.state.waiting


def _working_state(follower: TaskFollower) -> Json:
    task = follower.record.task
    message = None if task is None else task.status.message
    note = "" if message is None else " ".join(message.text.split())
    state = {"status": "working"}
    return {**state, "statusMessage": note[:_MAX_NOTE]} if note else state
