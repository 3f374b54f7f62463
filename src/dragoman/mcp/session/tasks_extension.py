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
from dragoman.mcp.session.follower import question_of
from dragoman.mcp.tools.messages import begin
from dragoman.mcp.tools.tasks import cancel_task
from dragoman.mcp.tools.tool import Call, ToolProblem
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
MOST = 1000
_LONGEST_NOTE = 300

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


class _Handle:
    """A task of a host: the follower that is behind it now, and how it ended once it has."""

    def __init__(self, agent: AgentRecord, follower: TaskFollower, now: int) -> None:
        # Whoever has the id may ask and answer, so nobody must be able to guess it.
        self.id = secrets.token_urlsafe(24)
        self.agent = agent
        self.follower = follower
        self.created = self.ended = now
        self.end: Json | None = None
        # Polls and answers one after the other: two polls must not begin two followers.
        self.lock = asyncio.Lock()
        self._number = 0
        # The question that is open at the host, and the one whose answer the user has gone elsewhere to give.
        self._asked = self._granted = ""

    @property
    def key(self) -> str | None:
        """The name of the question that is open at the host. None is used twice."""
        return f"{ANSWER}-{self._number}" if self._asked else None

    def ask(self, task: Task) -> str:
        """The name for what a task asks."""
        if question_of(task) != self._asked:
            self._asked = question_of(task)
            self._number += 1
        return f"{ANSWER}-{self._number}"

    def go_on(self, follower: TaskFollower) -> None:
        """The user has answered, or has gone elsewhere to allow something, or wants neither."""
        task = self.follower.record.task
        goes = task is not None and task.state is State.AUTH_REQUIRED and not follower.turned_down
        self._granted = self._asked if goes else ""
        self._asked = ""
        self.follower = follower

    @property
    def was_answered(self) -> bool:
        """True when what is under way is an answer, not the first message."""
        return self._number > 0

    @property
    def has_news(self) -> bool:
        """True when there is something to tell that the host has not heard."""
        task = self.follower.record.task
        if task is None or self.follower.reply is not None or self.follower.turned_down:
            return self.follower.reply is not None or task is not None
        return task.state.final or (task.state.waiting and question_of(task) not in (self._asked, self._granted))

    @property
    def waits_elsewhere(self) -> bool:
        """True when the agent still waits for what the user has gone to do."""
        task = self.follower.record.task
        return task is not None and question_of(task) == self._granted != ""

    @property
    def has_ended(self) -> bool:
        """True when nothing more comes of it, whether or not the host has heard."""
        task = self.follower.record.task
        return self.end is not None or self.follower.reply is not None or (task is not None and task.state.final)

    def finish(self, now: int, **end: Any) -> Json:
        """It has ended; what comes of the agent's task later is not its matter any more."""
        self.end, self.ended = end, now
        return end


class McpTasks:
    """The tasks of hosts. They are kept in memory: after a restart, `get_task` still knows the agents' tasks."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._clock = context.clock
        self._handles: dict[str, _Handle] = {}

    def add_to(self, server: Server[Any]) -> None:
        """Advertise the extension and serve its methods."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def wanted(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """True when this very request says that the host knows tasks."""
        capabilities = ctx.session.client_capabilities
        extensions = None if capabilities is None else capabilities.extensions
        return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in (extensions or {})

    async def send(self, call: Call) -> CreatedTask:
        """Send a message, and give a task at once. Raises ToolProblem."""
        agent, follower = await begin(self._context, call)
        handle = _Handle(agent, follower, self._clock.now())
        self._handles[handle.id] = handle
        self._forget()
        moment = timestamp(handle.created)
        return CreatedTask(task_id=handle.id, created_at=moment, last_updated_at=moment)

    # -- what hosts ask ------------------------------------------------------------------------------------------------

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Json:
        handle = self._found(ctx, params)
        async with handle.lock:
            shown = handle.end if handle.end is not None else await self._now(ctx, handle)
        changed = handle.ended if handle.end is not None else handle.follower.record.changed_ms
        return {
            "taskId": handle.id,
            "createdAt": timestamp(handle.created),
            "lastUpdatedAt": timestamp(max(handle.created, changed)),
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
            **shown,
        }

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: UpdateParams) -> Json:
        handle = self._found(ctx, params)
        async with handle.lock:
            # Answers to nothing that is asked are passed over.
            answer = params.input_responses.get(handle.key or "")
            if handle.end is None and handle.key and isinstance(answer, types.ElicitResult):
                self._answered(ctx, handle, answer)
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Json:
        handle = self._found(ctx, params)
        if handle.end is None:
            self._context.followers.finish_later(self._canceled(ctx, handle.follower))
        return {}

    def _found(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> _Handle:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not self.wanted(ctx):
            needed: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            text = f"This method is for hosts that declare the extension {EXTENSION}"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, text, needed)
        headers: Any = getattr(ctx.request, "headers", None)
        named = None if headers is None else headers.get(MCP_NAME_HEADER)
        if named is not None and decode_header_value(named) != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, f"{MCP_NAME_HEADER} is not the taskId of the request")
        self._forget()
        handle = self._handles.get(params.task_id)
        if handle is None:
            raise MCPError(types.INVALID_PARAMS, "Task not found: it never was, or is too old")
        return handle

    # -- how a task is -------------------------------------------------------------------------------------------------

    async def _now(self, ctx: ServerRequestContext[Any, Any], handle: _Handle) -> Json:
        if not handle.follower.over:
            return _working(handle.follower)
        problem = handle.follower.problem
        if problem and not handle.follower.taken and not await self._came_too_late(handle):
            return self._failed(handle, problem)
        if not handle.has_news:
            # It goes on although nobody follows it, as after a broken connection; or others may have answered.
            waited = _waits(handle.follower.record.task)
            problem = await self._look_again(handle)
            if problem and not waited:
                return self._failed(handle, problem)
            if handle.waits_elsewhere or not handle.follower.over:
                return _working(handle.follower)
        task = handle.follower.record.task
        if task is not None and task.state.waiting:
            params = self._context.questions.open_question(_call(ctx), handle.agent, handle.follower)
            if params is not None:
                request = types.ElicitRequest(params=params)
                shown = request.model_dump(by_alias=True, mode="json", exclude_none=True)
                return {"status": "input_required", "inputRequests": {handle.ask(task): shown}}
        if task is not None and task.state is State.CANCELED:
            return handle.finish(self._clock.now(), status="cancelled")
        # A task that asks what nobody can be asked is shown as it is: the model that called is told what to do.
        return self._completed(handle)

    def _completed(self, handle: _Handle) -> Json:
        result = self._context.answer(handle.agent, handle.follower).result()
        shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return handle.finish(self._clock.now(), status="completed", result=shown)

    def _failed(self, handle: _Handle, problem: str) -> Json:
        error = {"code": types.INTERNAL_ERROR, "message": problem}
        return handle.finish(self._clock.now(), status="failed", statusMessage=problem, error=error)

    async def _came_too_late(self, handle: _Handle) -> bool:
        """True when an answer was not taken because the task has ended: then that end counts."""
        return handle.was_answered and not await self._look_again(handle) and handle.has_ended

    async def _look_again(self, handle: _Handle) -> str:
        """Ask the agent how its task is, and follow it again where it goes on. Gives what is wrong, if anything."""
        follower = handle.follower
        record = follower.record
        if record.remote_id is None:
            return follower.problem or "Request failed: the agent has not answered"
        task_id, context = record.remote_id, self._context
        try:
            seconds = context.options.answer_seconds
            task = await context.ask_agent(handle.agent, lambda client: client.get_task(task_id), seconds)
        except ToolProblem as problem:
            return str(problem)
        record = context.registry.learn(record, task, looked=True)
        handle.follower = context.followers.new(record)
        if not (_waits(record.task) or handle.has_ended):
            handle.follower.follow(context.peers.client(handle.agent))
        return ""

    # -- what a host does ----------------------------------------------------------------------------------------------

    def _answered(self, ctx: ServerRequestContext[Any, Any], handle: _Handle, answer: types.ElicitResult) -> None:
        context, record = self._context, handle.follower.record
        params = context.questions.open_question(_call(ctx), handle.agent, handle.follower)
        # One that is not open any more has nothing to answer.
        if params is not None and context.registry.task(record.id) is record and context.followers.of(record) is None:
            handle.go_on(context.questions.go_on(handle.agent, record, answer))

    async def _canceled(self, ctx: ServerRequestContext[Any, Any], follower: TaskFollower) -> None:
        """Cancel it where it is worked on. That this cannot be done, or is too late, is no problem of the host."""
        await follower.known(self._context.options.answer_seconds)
        params = types.CallToolRequestParams(name="cancel_task", arguments={"task_id": follower.record.id})
        with contextlib.suppress(ToolProblem):
            await cancel_task(self._context, Call(ctx, params))

    def _forget(self) -> None:
        """Forget what is too old. The agents' tasks stay known under their own ids."""
        oldest = self._clock.now() - TTL_MS
        while self._handles:
            first = next(iter(self._handles.values()))
            if first.created >= oldest:
                break
            del self._handles[first.id]
        while len(self._handles) > MOST:
            ended = (each for each in self._handles.values() if each.has_ended)
            del self._handles[next(ended, next(iter(self._handles.values()))).id]


def _call(ctx: ServerRequestContext[Any, Any]) -> Call:
    """The call that a host which knows no tasks would make."""
    return Call(ctx, types.CallToolRequestParams(name="send_message"))


def _waits(task: Task | None) -> bool:
    return task is not None and task.state.waiting


def _working(follower: TaskFollower) -> Json:
    task = follower.record.task
    message = None if task is None else task.status.message
    note = "" if message is None else " ".join(message.text.split())
    shown = {"status": "working"}
    return {**shown, "statusMessage": note[:_LONGEST_NOTE]} if note else shown
