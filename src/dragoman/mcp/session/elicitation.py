"""What an agent asks, put to the host's user: as an elicitation, in both eras of MCP."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import mcp_types as types
import msgspec
from mcp import MCPError

from dragoman.keys.errors import BadSeal
from dragoman.keys.sealing import Sealer
from dragoman.mcp.session.follower import question_key
from dragoman.mcp.tools.content import PREVIEW_CHARS, truncate
from dragoman.mcp.tools.tool import ToolError
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.mcp.registry import AgentRecord, TaskRecord
    from dragoman.mcp.session.follower import TaskFollower
    from dragoman.mcp.tools.context import ToolContext
    from dragoman.mcp.tools.tool import ToolRequest
    from dragoman.model.task import Task

ANSWER = "answer"
# For so long a question may stay open at the host.
MAX_AGE = 3600.0
# Answered questions beyond these are forgotten, the oldest first.
_MAX_ANSWERED = 10_000
_FORM_TYPES = ("string", "integer", "number", "boolean")
_ANSWER_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer"}},
    "required": [ANSWER],
}


class ElicitationBridge:
    """Turns a waiting task into a question for the user, and the answer into a message to the task."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        # A key of this process: after a restart the host has to ask again, and is told so.
        self._sealer = Sealer((secrets.token_bytes(32),))
        # The marks of questions that were answered, oldest first: a host's copy of one counts once.
        self._answered_nonces: dict[str, None] = {}

    def open_question(
        self, request: ToolRequest, agent: AgentRecord, follower: TaskFollower
    ) -> types.ElicitRequestParams | None:
        """What to ask, if there is something to ask and somebody to be asked."""
        task = follower.record.task
        if task is None or not task.state.waiting or not follower.is_done or follower.problem or follower.refusal:
            return None
        params = _elicit_params(task, self._context.display_name(agent))
        is_url = isinstance(params, types.ElicitRequestURLParams)
        return params if params is not None and request.can_elicit(by_url=is_url) else None

    async def ask(
        self, request: ToolRequest, agent: AgentRecord, follower: TaskFollower
    ) -> TaskFollower | types.InputRequiredResult | None:
        """Ask what is to be asked.

        Gives the follower that goes on with the answer, the question for a host that wants it returned, or None when
        the task is to be shown as it is.
        """
        params, task = self.open_question(request, agent, follower), follower.record.task
        if params is None or task is None:
            return None
        if request.is_modern:
            state = {
                "agent": agent.agent_id,
                "task": follower.record.id,
                "question": question_key(task),
                "once": secrets.token_hex(8),
            }
            return types.InputRequiredResult(
                input_requests={ANSWER: types.ElicitRequest(params=params)},
                request_state=self._sealer.seal(msgspec.json.encode(state)).decode(),
            )
        try:
            answer = await request.elicit(params)
        except MCPError:  # a host that cannot after all: its model is told what to do
            return None
        return self.continue_task(agent, follower.record, answer)

    async def resume(self, request: ToolRequest) -> tuple[AgentRecord, TaskFollower] | None:
        """What a host's second call goes on with, which brings the answer. Raises ToolError."""
        if request.state is None:
            return None
        try:
            state: dict[str, str] = msgspec.json.decode(self._sealer.unseal(request.state.encode(), MAX_AGE))
        except BadSeal:
            raise ToolError("This question is too old to be answered so: call get_task, then send_message.") from None
        agent = await self._context.peers.find_agent(state["agent"])
        record = self._context.registry.require_task(state["task"])
        is_open = record.task is not None and question_key(record.task) == state["question"]
        # While somebody answers, the task still shows the question.
        if not is_open or state["once"] in self._answered_nonces or self._context.followers.get(record) is not None:
            raise ToolError("This question is not open any more: call get_task to see how the task is.")
        answer = request.responses.get(ANSWER)
        if not isinstance(answer, types.ElicitResult):
            raise ToolError("Invalid params: the answer is missing")
        self._answered_nonces[state["once"]] = None
        if len(self._answered_nonces) > _MAX_ANSWERED:
            del self._answered_nonces[next(iter(self._answered_nonces))]
        return agent, self.continue_task(agent, record, answer)

    def continue_task(self, agent: AgentRecord, record: TaskRecord, answer: types.ElicitResult) -> TaskFollower:
        """The follower of a task whose question was answered so."""
        follower = self._context.followers.new(record)
        task = record.task
        assert task is not None
        client = self._context.peers.client(agent)
        if _accepts_actions(task) and (answer.action != "accept" or task.state is State.AUTH_REQUIRED):
            # Who asks wants to hear what became of the question: a tool of MCP, on the other side of the agent.
            return follower.send(client, text=answer.action, data={"action": answer.action}, task=task)
        if answer.action == "accept" and task.state is State.AUTH_REQUIRED:
            # The user has been elsewhere: the task goes on when the agent hears of it.
            return follower.follow(client, previous=task)
        content, form = dict(answer.content or {}), _requested_form(task)
        if answer.action != "accept" or (form is None and ANSWER not in content):
            follower.refusal = answer.action if answer.action != "accept" else "cancel"
            return follower
        if form is None:
            return follower.send(client, text=str(content[ANSWER]), task=task)
        return follower.send(client, data=content, task=task)


def _elicit_params(task: Task, name: str) -> types.ElicitRequestParams | None:
    """The question in MCP's form, with the name of who asks; None when there is none that a form could put."""
    question = attribute_question(name, task.question or "The agent waits for an answer.")
    if task.state is State.AUTH_REQUIRED:
        # Never a form: credentials do not belong there.
        parts = task.status.message.parts if task.status.message is not None else ()
        url = next((part.url for part in parts if part.url is not None and _is_web_url(part.url)), None)
        return None if url is None else types.ElicitRequestURLParams(message=question, url=url, elicitation_id=task.id)
    form = _requested_form(task)
    if form is not None:
        return types.ElicitRequestFormParams(
            message=attribute_question(name, form["message"]) if form["message"] else question,
            requested_schema=form["requestedSchema"],
        )
    return types.ElicitRequestFormParams(message=question, requested_schema=_ANSWER_FORM)


def attribute_question(name: str, question: str) -> str:
    """A question as the user sees it, who must know that it is not the host that asks."""
    return f"{name} asks: {truncate(question, PREVIEW_CHARS, 'get_task shows the rest')}"


def _is_web_url(url: str) -> bool:
    """True for an address that a browser may be sent to: nothing that runs, or that lies on this machine's disk."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url


def _requested_form(task: Task) -> dict[str, Any] | None:
    """The data part with a schema that forms can show, if the question has one."""
    message = task.status.message
    for part in message.parts if message is not None else ():
        if part.kind == "data" and isinstance(part.data, dict):
            data = cast("dict[str, Any]", part.data)
            schema: Any = data.get("requestedSchema")
            if isinstance(schema, dict) and _is_flat(cast("dict[str, Any]", schema)):
                message: Any = data.get("message")
                return {"message": message if isinstance(message, str) else "", "requestedSchema": schema}
    return None


def _accepts_actions(task: Task) -> bool:
    """True when the question says that it may also be declined or canceled."""
    message = task.status.message
    for part in message.parts if message is not None else ():
        carrier: Any = part.metadata if part.kind == "url" else part.data if part.kind == "data" else None
        if isinstance(carrier, dict) and "actions" in carrier:
            return True
    return False


def _is_flat(schema: dict[str, Any]) -> bool:
    properties: Any = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or not properties:
        return False
    fields = cast("dict[str, Any]", properties).values()
    return all(isinstance(each, dict) and (each.get("type") in _FORM_TYPES or _is_choice(each)) for each in fields)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _is_choice(field: dict[str, Any]) -> bool:
    """True for a list of texts to choose from, which forms can show as well."""
    items: Any = field.get("items")
    return field.get("type") == "array" and isinstance(items, dict) and ("enum" in items or "anyOf" in items)
