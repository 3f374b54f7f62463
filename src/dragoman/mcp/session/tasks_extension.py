"""The tasks extension of MCP: a host that supports it gets a task at once and polls for the result."""

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
from dragoman.mcp.tools.tool import ToolError, ToolInvocation
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
# Beyond this number the oldest handles are evicted; the agents' tasks stay registered.
MAX_HANDLES = 1000
_MAX_NOTE = 300

Json = dict[str, Any]


class CreatedTask(types.Result):
    """The result of `send_message` for a host that supports tasks."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str = "working"
    created_at: str
    last_updated_at: str
    ttl_ms: int = TTL_MS
    poll_interval_ms: int = POLL_MS


class TaskParams(types.RequestParams):
    """The parameters of tasks/get and tasks/cancel."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of tasks/update: answers to open questions."""

    input_responses: types.InputResponses


class _TaskHandle:
    """A task of a host: its current follower, its open question and, at the end, its outcome."""

    def __init__(self, agent: AgentRecord, follower: TaskFollower, now: int) -> None:
        # The id is the only authorization to poll and answer, so it must be unguessable.
        self.id = secrets.token_urlsafe(24)
        self.agent = agent
        self.follower = follower
        self.created_ms = self.ended_ms = now
        self.outcome: Json | None = None
        # Serializes polls and answers: two polls must not start two followers.
        self.lock = asyncio.Lock()
        self._number = 0
        # The question that is open at the host, and the one for which the user is authorizing elsewhere.
        self._open_question = self._authorizing_question = ""

    @property
    def question_id(self) -> str | None:
        """The id of the question that is open at the host, or None. Ids are not reused."""
        return f"{ANSWER}-{self._number}" if self._open_question else None

    def ask(self, task: Task) -> str:
        """Open the question of a task, if it is not open already, and return its id."""
        if question_key(task) != self._open_question:
            self._open_question = question_key(task)
            self._number += 1
        return f"{ANSWER}-{self._number}"

    def continue_with(self, follower: TaskFollower) -> None:
        """Close the question after the user has answered, refused, or gone elsewhere to authorize something."""
        task = self.follower.record.task
        is_authorizing = task is not None and task.state is State.AUTH_REQUIRED and not follower.refusal
        self._authorizing_question = self._open_question if is_authorizing else ""
        self._open_question = ""
        self.follower = follower

    @property
    def has_answer(self) -> bool:
        """True when the current follower sends an answer, not the first message."""
        return self._number > 0

    @property
    def has_news(self) -> bool:
        """True when there is something to report that the host has not received."""
        task = self.follower.record.task
        if task is None or self.follower.reply is not None or self.follower.refusal:
            return self.follower.reply is not None or task is not None
        return task.state.final or (
            task.state.waiting and question_key(task) not in (self._open_question, self._authorizing_question)
        )

    @property
    def is_authorizing(self) -> bool:
        """True while the agent still waits for the user's authorization elsewhere."""
        task = self.follower.record.task
        return task is not None and question_key(task) == self._authorizing_question != ""

    @property
    def has_ended(self) -> bool:
        """True when the task has ended, whether or not the host has been told."""
        task = self.follower.record.task
        return self.outcome is not None or self.follower.reply is not None or (task is not None and task.state.final)

    def finish(self, now: int, **outcome: Any) -> Json:
        """Store the outcome; later changes of the agent's task no longer affect it."""
        self.outcome, self.ended_ms = outcome, now
        return outcome


class McpTasks:
    """The tasks of hosts, in memory only: after a restart, the tool `get_task` still knows the agents' tasks."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._clock = context.clock
        self._handles: dict[str, _TaskHandle] = {}

    def add_to(self, server: Server[Any]) -> None:
        """Advertise the extension and register its methods."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def is_supported(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """True when this request declares that the host supports tasks."""
        capabilities = ctx.session.client_capabilities
        extensions = None if capabilities is None else capabilities.extensions
        return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in (extensions or {})

    async def send(self, request: ToolInvocation) -> CreatedTask:
        """Send a message and return a task at once. Raises ToolError."""
        agent, follower = await start_message(self._context, request)
        handle = _TaskHandle(agent, follower, self._clock.now())
        self._handles[handle.id] = handle
        self._evict()
        moment = timestamp(handle.created_ms)
        return CreatedTask(task_id=handle.id, created_at=moment, last_updated_at=moment)

    # -- methods -------------------------------------------------------------------------------------------------------

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Json:
        handle = self._find_handle(ctx, params)
        async with handle.lock:
            state = handle.outcome if handle.outcome is not None else await self._current_state(ctx, handle)
        changed = handle.ended_ms if handle.outcome is not None else handle.follower.record.changed_ms
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
            # Answers to questions that are not open are ignored.
            answer = params.input_responses.get(handle.question_id or "")
            if handle.outcome is None and handle.question_id and isinstance(answer, types.ElicitResult):
                self._apply_answer(ctx, handle, answer)
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Json:
        handle = self._find_handle(ctx, params)
        if handle.outcome is None:
            self._context.followers.run_in_background(self._cancel_remote(ctx, handle.follower))
        return {}

    def _find_handle(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> _TaskHandle:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not self.is_supported(ctx):
            required: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            text = f"This method is for hosts that declare the extension {EXTENSION}"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, text, required)
        headers: Any = getattr(ctx.request, "headers", None)
        header_id = None if headers is None else headers.get(MCP_NAME_HEADER)
        if header_id is not None and decode_header_value(header_id) != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, f"{MCP_NAME_HEADER} is not the taskId of the request")
        self._evict()
        handle = self._handles.get(params.task_id)
        if handle is None:
            raise MCPError(types.INVALID_PARAMS, "Task not found: it does not exist, or is too old")
        return handle

    # -- the state of a task -------------------------------------------------------------------------------------------

    async def _current_state(self, ctx: ServerRequestContext[Any, Any], handle: _TaskHandle) -> Json:
        if not handle.follower.is_done:
            return _working_state(handle.follower)
        problem = handle.follower.problem
        if problem and not handle.follower.is_accepted and not await self._is_late_answer(handle):
            return self._fail(handle, problem)
        if not handle.has_news:
            # The task may continue unfollowed, as after a broken connection, or its question was answered elsewhere.
            was_waiting = _is_waiting(handle.follower.record.task)
            problem = await self._refresh(handle)
            if problem and not was_waiting:
                return self._fail(handle, problem)
            if handle.is_authorizing or not handle.follower.is_done:
                return _working_state(handle.follower)
        task = handle.follower.record.task
        if task is not None and task.state.waiting:
            params = self._context.elicitation.open_question(_send_message_call(ctx), handle.agent, handle.follower)
            if params is not None:
                request = types.ElicitRequest(params=params)
                payload = request.model_dump(by_alias=True, mode="json", exclude_none=True)
                return {"status": "input_required", "inputRequests": {handle.ask(task): payload}}
        if task is not None and task.state is State.CANCELED:
            return handle.finish(self._clock.now(), status="cancelled")
        # A question that cannot be elicited is returned as a result, which tells the calling model what to do.
        return self._complete(handle)

    def _complete(self, handle: _TaskHandle) -> Json:
        result = self._context.message_result(handle.agent, handle.follower).to_mcp()
        payload = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return handle.finish(self._clock.now(), status="completed", result=payload)

    def _fail(self, handle: _TaskHandle, problem: str) -> Json:
        error = {"code": types.INTERNAL_ERROR, "message": problem}
        return handle.finish(self._clock.now(), status="failed", statusMessage=problem, error=error)

    async def _is_late_answer(self, handle: _TaskHandle) -> bool:
        """True when an answer was rejected because the task had already ended: then its end is reported."""
        return handle.has_answer and not await self._refresh(handle) and handle.has_ended

    async def _refresh(self, handle: _TaskHandle) -> str:
        """Read the task from its agent, and follow it again if it is running. Returns the problem, or an empty text."""
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

    # -- answers and cancellation --------------------------------------------------------------------------------------

    def _apply_answer(
        self, ctx: ServerRequestContext[Any, Any], handle: _TaskHandle, answer: types.ElicitResult
    ) -> None:
        context, record = self._context, handle.follower.record
        params = context.elicitation.open_question(_send_message_call(ctx), handle.agent, handle.follower)
        # The question may have been answered elsewhere meanwhile.
        if params is not None and context.registry.task(record.id) is record and context.followers.get(record) is None:
            handle.continue_with(context.elicitation.continue_task(handle.agent, record, answer))

    async def _cancel_remote(self, ctx: ServerRequestContext[Any, Any], follower: TaskFollower) -> None:
        """Cancel the agent's task. Errors are not reported to the host: cancellation is a request."""
        await follower.wait_for_id(self._context.options.answer_seconds)
        params = types.CallToolRequestParams(name="cancel_task", arguments={"task_id": follower.record.id})
        with contextlib.suppress(ToolError):
            await cancel_task(self._context, ToolInvocation(ctx, params))

    def _evict(self) -> None:
        """Evict old handles. The agents' tasks stay registered under their own ids."""
        oldest = self._clock.now() - TTL_MS
        while self._handles:
            first = next(iter(self._handles.values()))
            if first.created_ms >= oldest:
                break
            del self._handles[first.id]
        while len(self._handles) > MAX_HANDLES:
            ended_handles = (each for each in self._handles.values() if each.has_ended)
            del self._handles[next(ended_handles, next(iter(self._handles.values()))).id]


def _send_message_call(ctx: ServerRequestContext[Any, Any]) -> ToolInvocation:
    """Return the tool request that a host without tasks would make."""
    return ToolInvocation(ctx, types.CallToolRequestParams(name="send_message"))


def _is_waiting(task: Task | None) -> bool:
    return task is not None and task.state.waiting


def _working_state(follower: TaskFollower) -> Json:
    task = follower.record.task
    message = None if task is None else task.status.message
    note = "" if message is None else " ".join(message.text.split())
    state = {"status": "working"}
    return {**state, "statusMessage": note[:_MAX_NOTE]} if note else state
