"""Runs one message against MCP tools: from the message to the result of a tool, or to a question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mcp_types as types
from mcp import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from dragoman.agents.mcp_tools.call import (
    MAX_NESTING,
    Caller,
    ElicitationPause,
    ToolCall,
    ToolProgress,
    is_connection_closed,
    is_session_unknown,
    is_state_expired,
    is_stream_cut,
    is_too_deep,
    needs_older_revision,
)
from dragoman.agents.mcp_tools.content import error_text, metadata_of, parts_of_result
from dragoman.agents.mcp_tools.elicitation import (
    OpenCalls,
    build_question,
    params_from_json,
    params_to_json,
    parse_answer,
)
from dragoman.agents.mcp_tools.tool import USER, ToolRequest, choose_tool, choose_tool_by_answer
from dragoman.agents.offers import check_permission
from dragoman.agents.timeout import DeadlineExceeded, Timeout
from dragoman.engine.execute.outputs import Ask
from dragoman.model.error import CannotConnect, Failed, Rejected
from dragoman.model.part import Part
from dragoman.model.task import Artifact

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.connection import ServerConnection
    from dragoman.agents.mcp_tools.tool import Tool
    from dragoman.engine.execute.context import Context

T = TypeVar("T")
# Minimum interval between progress reports.
PROGRESS_INTERVAL_MS = 200
# Rounds of one call. A server may request another one without a question, or with one that the caller cannot answer.
MAX_ROUNDS = 10
# Seconds for reading one link of a result, where no timeout is configured.
LINK_TIMEOUT = 60.0
QUESTION_LOST = "the tool's question is gone: the server was restarted, or it has waited too long"


class _CallAgain(Failed):
    """The call has failed, and it does no harm to make it again: once, without a word to the caller."""


class TaskRun:
    """Runs one message of a task: chooses a tool, completes its arguments, calls it, delivers the result or asks."""

    def __init__(
        self,
        ctx: Context,
        tools: Mapping[str, Tool],
        open_calls: OpenCalls,
        timeout_seconds: float,
        total_seconds: float = 0,
    ) -> None:
        self._ctx = ctx
        self._total_seconds = total_seconds
        self._tools = tools
        self._open_calls = open_calls
        self._timeout_seconds = timeout_seconds
        self._reported_ms: int | None = None
        self._timeout: Timeout | None = None

    async def run(self) -> Ask | None:
        """Run it; return the question on which the task pauses, or None when the task is done.

        Raises:
            Failed: the tool or its server failed. For callers that cannot be asked, also instead of Rejected.
            Rejected: there is no such tool, the caller may not use it, or the server refuses the arguments.
        """
        ctx = self._ctx
        try:
            return await self._dispatch()
        except (Failed, Rejected) as error:
            if ctx.asks:
                raise
            # Callers that cannot be asked expect the reason among the artifacts.
            if not ctx.artifacts:
                await self._deliver((Part(text=str(error)),), "error")
            raise Failed(str(error)) from error

    async def _dispatch(self) -> Ask | None:
        ref = self._ctx.resume.ref if self._ctx.resume is not None else None
        if not isinstance(ref, dict):
            return await self._begin(choose_tool(self._ctx, self._tools))
        match cast("dict[str, Any]", ref):
            case {"ask": "tool"}:
                return await self._begin(choose_tool_by_answer(self._ctx, self._tools))
            case {"ask": "arguments"} as ref:
                return await self._begin(self._complete_arguments(ref))
            case {"ask": "again"} as ref:
                return await self._resume_after_url(ref)
            case {"ask": "input"} as ref:
                return await self._resume_with_input(ref)
            case {"ask": "held"} as ref:
                return await self._resume_open_call(ref)
            case _:
                raise Failed(QUESTION_LOST)

    # -- before the call -----------------------------------------------------------------------------------------------

    async def _begin(self, request: ToolRequest | Ask) -> Ask | None:
        if isinstance(request, Ask):
            return request
        tool = self._check_permission(request.tool)
        if is_too_deep(request.arguments):
            raise Rejected(f"the arguments of `{tool.id}` are nested deeper than {MAX_NESTING}")
        arguments = tool.schema.coerce_integers(request.arguments)
        problems = tool.schema.problems(arguments)
        if problems:
            question = tool.schema.question(tool.id, problems)
            if not self._ctx.asks:
                raise Rejected(question)
            details = {"tool": tool.id, "requestedSchema": tool.schema.requested_schema(problems)}
            return Ask(question, ref={"ask": "arguments", "tool": tool.id, "arguments": arguments}, details=(details,))
        return await self._call(ToolRequest(tool, arguments))

    def _complete_arguments(self, ref: dict[str, Any]) -> ToolRequest:
        """Merge the caller's answer into the stored arguments."""
        tool, answer = self._find_tool(ref["tool"]), self._ctx.resume
        assert answer is not None
        arguments: dict[str, Any] = ref["arguments"]
        problems = tool.schema.problems(arguments)
        return ToolRequest(tool, tool.schema.merge_answer(arguments, problems, answer.text, answer.data))

    def _find_tool(self, id: str) -> Tool:
        tool = self._tools.get(id)
        if tool is None:
            raise Failed(f"the tool `{id}` is not there any more")
        return self._check_permission(tool)

    def _check_permission(self, tool: Tool) -> Tool:
        self._ctx.skill = tool.id
        check_permission(self._ctx, tool, tool.title)
        return tool

    # -- the call ------------------------------------------------------------------------------------------------------

    async def _call(self, request: ToolRequest, state: str | None = None, responses: Any = None) -> Ask | None:
        try:
            return await self._call_once(request, state, responses)
        except _CallAgain:
            return await self._call_once(request, state, responses)

    async def _call_once(self, request: ToolRequest, state: str | None, responses: Any) -> Ask | None:
        tool = request.tool
        connection: ServerConnection | None = None
        for _ in range(MAX_ROUNDS):
            call = ToolCall(
                tool.name,
                request.arguments,
                caller=self._caller(),
                meta=self._meta(tool),
                state=state,
                responses=responses,
                asks=self._ctx.asks,
                on_progress=self._report_progress,
            )
            if connection is None:
                connection = await self._connect(tool, call)
            if state is not None and not connection.is_modern:
                raise Failed(QUESTION_LOST)  # only the newest revision has such a state
            call.start(connection)
            result = await self._follow(request, call)
            if not isinstance(result, types.InputRequiredResult):
                return result
            declined = None
            if result.input_requests:
                question = self._pause_for_input(request, result)
                if self._ctx.asks:
                    return question
                declined = {key: types.ElicitResult(action="decline") for key in result.input_requests}
            state, responses = result.request_state, declined
        if responses:
            raise Failed(f"`{tool.id}` asks again and again, and cannot do without an answer")
        raise Failed(f"`{tool.id}` asked for another round {MAX_ROUNDS} times without a question")

    async def _connect(self, tool: Tool, call: ToolCall) -> ServerConnection:
        server = tool.supervisor.source.name
        try:
            return await self._wait_with_timeout(tool.supervisor.connect_call(call), self._timeout_seconds)
        except CannotConnect as error:
            raise Failed(str(error)) from error
        except DeadlineExceeded:
            raise Failed(
                f"`{tool.id}` was not called: for {self._timeout_seconds:g} s the MCP server `{server}` waited for the "
                "answers to other questions; try it again later"
            ) from None

    def _caller(self) -> Caller:
        ctx = self._ctx
        return (ctx.tenant, ctx.user.id, "") if ctx.user is not None else (ctx.tenant, "", ctx.context_id)

    def _meta(self, tool: Tool) -> dict[str, Any] | None:
        if not tool.wants_user:
            return None
        user = self._ctx.user
        info: dict[str, Any] = {"id": "", "name": "", "permissions": []}
        if user is not None:
            info = {"id": user.id, "name": user.name, "permissions": sorted(user.permissions)}
        return {USER: info}

    async def _follow(self, request: ToolRequest, call: ToolCall) -> Ask | types.InputRequiredResult | None:
        """Follow a call to its result, or to a question."""
        tool, ctx = request.tool, self._ctx
        total = Timeout(ctx.clock, self._total_seconds) if self._total_seconds else None
        try:
            with call.connection.use():
                while True:
                    event = await self._next_event(tool, call, total)
                    if isinstance(event, ToolProgress):
                        await self._report_progress(event)
                    elif isinstance(event, ElicitationPause):
                        return await self._pause_open_call(request, call, event)
                    elif isinstance(event, types.InputRequiredResult):
                        return event
                    else:
                        await self._finish(tool, call, event)
                        return None
        except MCPError as error:
            return self._on_error(request, call, error)
        except ValueError as error:  # includes pydantic's ValidationError
            ctx.log.warning("%s: %s", tool.supervisor.source.name, error)
            raise Failed(f"the MCP server `{tool.supervisor.source.name}` answered what is not MCP") from error
        except asyncio.CancelledError:
            await call.cancel()
            raise
        finally:
            if total is not None:
                total.close()

    async def _pause_open_call(self, request: ToolRequest, call: ToolCall, pause: ElicitationPause) -> Ask:
        ref = {
            "ask": "held",
            "tool": request.tool.id,
            "arguments": request.arguments,
            "params": params_to_json(pause.params),
        }
        return await self._hold_open(call, pause.params, ref)

    async def _hold_open(self, call: ToolCall, params: types.ElicitRequestParams, ref: Any, problem: str = "") -> Ask:
        """Keep a call open and build its question; when that fails, cancel the call."""
        try:
            pause = build_question(params, ref, problem)
            ref["key"] = self._open_calls.add(call, self._ctx.clock)
        except BaseException:
            await call.cancel()
            raise
        return pause

    async def _next_event(self, tool: Tool, call: ToolCall, total: Timeout | None) -> Any:
        try:
            if total is None:
                return await self._wait_with_timeout(call.next(), self._timeout_seconds)
            if not total.expired:
                return await total.wait(self._wait_with_timeout(call.next(), self._timeout_seconds))
            raise DeadlineExceeded
        except DeadlineExceeded:
            await call.cancel()
            if total is not None and total.expired:
                raise Failed(f"`{tool.id}` took more than {self._total_seconds:g} s and has been stopped") from None
            raise Failed(f"`{tool.id}` was silent for {self._timeout_seconds:g} s and has been stopped") from None

    async def _wait_with_timeout(self, work: Awaitable[T], seconds: float) -> T:
        """Await with a timeout that progress restarts; 0 seconds means no timeout. Raises DeadlineExceeded."""
        if not seconds:
            return await work
        self._timeout = Timeout(self._ctx.clock, seconds)
        try:
            return await self._timeout.wait(work)
        finally:
            self._timeout.close()
            self._timeout = None

    def _on_error(self, request: ToolRequest, call: ToolCall, error: MCPError) -> Ask | None:
        """Return the question that an error of the call asks for; raise Failed or Rejected for any other error."""
        tool = request.tool
        server = tool.supervisor.source.name
        stopped = f"the MCP server `{server}` stopped while `{tool.id}` was at work"
        if call.connection.problem:
            stopped += f": {call.connection.problem}"
        if is_session_unknown(error):
            tool.supervisor.retire(call.connection)
            raise _CallAgain(stopped) from error  # the server has not started it
        if is_connection_closed(error) or is_stream_cut(error):
            if is_connection_closed(error):
                tool.supervisor.retire(call.connection)
            raise Failed(stopped) from error
        self._check_questions(tool, call, error.message)
        if error.code == types.URL_ELICITATION_REQUIRED and self._ctx.asks:
            params = _url_elicitation(error)
            if params is not None:
                ref = {
                    "ask": "again",
                    "tool": tool.id,
                    "arguments": request.arguments,
                    "params": params_to_json(params),
                }
                return build_question(params, ref)
        if is_state_expired(error):
            raise Failed(QUESTION_LOST) from error
        if error.code in (types.INVALID_PARAMS, types.METHOD_NOT_FOUND):
            raise Rejected(error.message) from error
        raise Failed(error.message) from error

    async def _report_progress(self, progress: ToolProgress) -> None:
        if self._timeout is not None:
            self._timeout.restart()
        now = self._ctx.clock.now()
        # The wall clock may be set back: that must not suppress progress.
        if self._reported_ms is not None and 0 <= now - self._reported_ms < PROGRESS_INTERVAL_MS:
            return
        self._reported_ms = now
        measure = f"{progress.done:g}" + (f"/{progress.total:g}" if progress.total else "")
        text = f"{progress.text} ({measure})" if progress.text else measure
        await self._ctx.progress(text, progress.done, progress.total)

    # -- its end -------------------------------------------------------------------------------------------------------

    async def _finish(self, tool: Tool, call: ToolCall, result: types.CallToolResult) -> None:
        async def read(uri: str) -> types.ReadResourceResult:
            return await self._wait_with_timeout(call.read_resource(uri), self._timeout_seconds or LINK_TIMEOUT)

        if call.is_unanswered and tool.may_repeat:
            self._check_questions(tool, call)
        violation = tool.output_schema_violation(result)
        if violation:
            self._ctx.log.warning("%s: %s", tool.supervisor.source.name, violation)
            raise Failed(f"`{tool.id}` returned what its own output schema does not allow")
        parts = await parts_of_result(result, read)
        if result.is_error:
            await self._deliver(parts, "error", metadata_of(result))
            self._check_questions(tool, call, error_text(result))
            raise Failed(error_text(result))
        await self._deliver(parts, "result", metadata_of(result))
        if call.is_unanswered:
            self._check_questions(tool, call)

    def _check_questions(self, tool: Tool, call: ToolCall, error: str = "") -> None:
        """Raise Failed when the tool has asked in vain, with `error` or despite its result."""
        if call.is_unanswered:
            is_single = tool.supervisor.is_single
            again = " while no other tool is at work" if is_single else ": from now on its questions are told apart"
            raise (_CallAgain if tool.may_repeat else Failed)(
                f"`{tool.id}` asked something that got no answer, because it could not be determined which call had "
                f"asked: it may have done a part of its work. Call it again{again}"
            )
        if not call.connection.is_modern or not needs_older_revision(error):
            return
        supervisor, older = tool.supervisor, LATEST_HANDSHAKE_VERSION
        failure = (
            f"`{tool.id}` asks in a way that MCP revision {LATEST_MODERN_VERSION} does not have: "
            "it may have done a part of its work."
        )
        option = f"`--mcp-revision {older}`, or Agent.from_mcp(…, revision=…)"
        if not supervisor.ask_within_calls(call.connection):
            raise Failed(f"{failure} To let it ask, use {option}")
        raise Failed(
            f"{failure} Call it again: `{supervisor.source.name}` is called with revision {older} from now on. To use "
            f"that from the start, set {option}"
        )

    async def _deliver(self, parts: tuple[Part, ...], kind: str, metadata: dict[str, Any] | None = None) -> None:
        if parts:
            name = f"{self._ctx.skill or 'tool'}-{kind}"
            await self._ctx.update_artifact(Artifact(kind, parts, name, metadata=metadata))

    # -- questions -----------------------------------------------------------------------------------------------------

    def _pause_for_input(self, request: ToolRequest, result: types.InputRequiredResult) -> Ask:
        """Build the question for a server that returns its questions: they are stored whole and survive a restart."""
        requests = result.input_requests or {}
        ref: dict[str, Any] = {
            "ask": "input",
            "tool": request.tool.id,
            "arguments": request.arguments,
            "state": result.request_state,
            "requests": {
                key: params_to_json(request.params)
                for key, request in requests.items()
                if isinstance(request, types.ElicitRequest)
            },
            "responses": {},
        }
        if len(ref["requests"]) < len(requests):
            raise Failed(f"`{request.tool.id}` asks for what only a language model could give")
        return _next_question(ref)

    async def _resume_after_url(self, ref: dict[str, Any]) -> Ask | None:
        tool, answer = self._find_tool(str(ref["tool"])), self._ctx.resume
        assert answer is not None
        result = parse_answer(params_from_json(ref["params"]), answer) if "params" in ref else None
        if isinstance(result, types.ElicitResult) and result.action != "accept":
            raise Failed(f"`{tool.id}` was not called again: what it needs first was declined")
        return await self._call(ToolRequest(tool, ref["arguments"]))

    async def _resume_with_input(self, ref: dict[str, Any]) -> Ask | None:
        tool, answer = self._find_tool(str(ref["tool"])), self._ctx.resume
        assert answer is not None
        key = next(key for key in ref["requests"] if key not in ref["responses"])
        result = parse_answer(params_from_json(ref["requests"][key]), answer)
        if isinstance(result, str):
            return _next_question(ref, result)
        responses = {**ref["responses"], key: result.model_dump(by_alias=True, mode="json", exclude_none=True)}
        ref = {**ref, "responses": responses}
        if len(responses) < len(ref["requests"]):
            return _next_question(ref)
        results = {key: types.ElicitResult.model_validate(each, by_name=False) for key, each in responses.items()}
        return await self._call(ToolRequest(tool, ref["arguments"]), ref["state"], results)

    async def _resume_open_call(self, ref: dict[str, Any]) -> Ask | None:
        call = self._open_calls.pop(ref.get("key"))
        if call is None:
            raise Failed(QUESTION_LOST)
        try:
            request, parsed = self._parse_open_call_answer(ref)
        except BaseException:
            await call.cancel()
            raise
        if isinstance(parsed, str) and call.is_waiting:
            return await self._hold_open(call, params_from_json(ref["params"]), {**ref}, parsed)
        if not isinstance(parsed, str):
            call.answer(parsed)
        result = await self._follow(request, call)
        assert not isinstance(result, types.InputRequiredResult)
        return result

    def _parse_open_call_answer(self, ref: dict[str, Any]) -> tuple[ToolRequest, types.ElicitResult | str]:
        answer = self._ctx.resume
        assert answer is not None
        request = ToolRequest(self._find_tool(str(ref["tool"])), ref["arguments"])
        return request, parse_answer(params_from_json(ref["params"]), answer)


def _next_question(ref: dict[str, Any], problem: str = "") -> Ask:
    key = next(key for key in ref["requests"] if key not in ref["responses"])
    return build_question(params_from_json(ref["requests"][key]), ref, problem)


def _url_elicitation(error: MCPError) -> types.ElicitRequestURLParams | None:
    try:
        data = types.ElicitationRequiredErrorData.model_validate(error.data)
    except ValueError:
        return None
    return data.elicitations[0] if data.elicitations else None
