"""Forwards an agent's questions to the host's user as MCP elicitations.

Hosts of older revisions of MCP are asked while the call is open; those of modern ones get the question as its result.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
import msgspec
from mcp import MCPError

from dragoman.keys.errors import BadSeal
from dragoman.keys.sealing import Sealer
from dragoman.mcp.session.follower import question_key
from dragoman.mcp.tools.content import PREVIEW_CHARS, is_web_url, truncate
from dragoman.mcp.tools.tool import ToolError
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.mcp.registry import AgentRecord, TaskRecord
    from dragoman.mcp.session.follower import TaskFollower
    from dragoman.mcp.tools.context import ToolContext
    from dragoman.mcp.tools.tool import ToolInvocation
    from dragoman.model.task import Task

ANSWER = "answer"
# How long a question may stay open at the host, in seconds.
MAX_AGE = 3600.0
# How many answered questions are remembered; the oldest are dropped first.
_MAX_ANSWERED = 10_000
_FORM_TYPES = ("string", "integer", "number", "boolean")
_ANSWER_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer"}},
    "required": [ANSWER],
}


class ElicitationBridge:
    """Turns a task that needs input into an elicitation, and the user's answer into a message to the task."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        # The key lives in this process: after a restart an open question is rejected with advice.
        self._sealer = Sealer((secrets.token_bytes(32),))
        # The nonces of answered questions, oldest first: a replayed answer is rejected.
        self._answered_nonces: dict[str, None] = {}

    def open_question(
        self, request: ToolInvocation, agent: AgentRecord, follower: TaskFollower
    ) -> types.ElicitRequestParams | None:
        """Return the elicitation for a task that waits for input, if the host supports it; else None."""
        task = follower.record.task
        if task is None or not task.state.waiting or not follower.is_done or follower.problem or follower.refusal:
            return None
        params = _elicit_params(task, self._context.display_name(agent))
        is_url = isinstance(params, types.ElicitRequestURLParams)
        return params if params is not None and request.can_elicit(by_url=is_url) else None

    async def ask(
        self, request: ToolInvocation, agent: AgentRecord, follower: TaskFollower
    ) -> TaskFollower | types.InputRequiredResult | None:
        """Ask the user what the task needs.

        Returns the follower that continues with the answer, the elicitation as a result for hosts of modern revisions,
        or None when there is nothing to ask or nobody to ask.
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
        except MCPError:  # the host cannot elicit after all: the result tells its model what to do
            return None
        return self.continue_task(agent, follower.record, answer)

    async def resume(self, request: ToolInvocation) -> tuple[AgentRecord, TaskFollower] | None:
        """Continue a task with the answer in a host's second call; None for a first call. Raises ToolError."""
        if request.state is None:
            return None
        try:
            state: dict[str, str] = msgspec.json.decode(self._sealer.unseal(request.state.encode(), MAX_AGE))
        except BadSeal:
            raise ToolError(
                "This question is too old to be answered this way: call get_task, then send_message."
            ) from None
        agent = await self._context.peers.find_agent(state["agent"])
        record = self._context.registry.require_task(state["task"])
        is_open = record.task is not None and question_key(record.task) == state["question"]
        # While an answer is being sent, the task still shows the question.
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
        """Send the user's answer to the task and return its follower."""
        follower = self._context.followers.new(record)
        task = record.task
        assert task is not None
        client = self._context.peers.client(agent)
        if _accepts_actions(task) and (answer.action != "accept" or task.state is State.AUTH_REQUIRED):
            # The question comes from an MCP tool behind the agent, which expects the elicitation's action.
            return follower.send(client, text=answer.action, data={"action": answer.action}, task=task)
        if answer.action == "accept" and task.state is State.AUTH_REQUIRED:
            # The user has authorized elsewhere: the task continues once the agent is notified.
            return follower.follow(client, previous=task)
        content, form = dict(answer.content or {}), _requested_form(task)
        if answer.action != "accept" or (form is None and ANSWER not in content):
            follower.refusal = answer.action if answer.action != "accept" else "cancel"
            return follower
        if form is None:
            return follower.send(client, text=str(content[ANSWER]), task=task)
        return follower.send(client, data=content, task=task)


def _elicit_params(task: Task, name: str) -> types.ElicitRequestParams | None:
    """Return a task's question as elicitation parameters with the agent's name; None when no form can ask it."""
    question = attribute_question(name, task.question or "The agent is waiting for an answer.")
    if task.state is State.AUTH_REQUIRED:
        # Never a form: credentials must not be typed into one.
        parts = task.status.message.parts if task.status.message is not None else ()
        url = next((part.url for part in parts if part.url is not None and is_web_url(part.url)), None)
        return None if url is None else types.ElicitRequestURLParams(message=question, url=url, elicitation_id=task.id)
    form = _requested_form(task)
    if form is not None:
        return types.ElicitRequestFormParams(
            message=attribute_question(name, form["message"]) if form["message"] else question,
            requested_schema=form["requestedSchema"],
        )
    return types.ElicitRequestFormParams(message=question, requested_schema=_ANSWER_FORM)


def attribute_question(name: str, question: str) -> str:
    """Return a question prefixed with the agent's name: the user must see that it is not the host that asks."""
    return f"{name} asks: {truncate(question, PREVIEW_CHARS, 'get_task shows the rest')}"


def _requested_form(task: Task) -> dict[str, Any] | None:
    """Return the message and schema of the question's form, if it has a data part with a flat schema."""
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
    """True when the question accepts the actions of an elicitation: decline and cancel."""
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
    """True for a multiple choice, which forms can show too."""
    items: Any = field.get("items")
    return field.get("type") == "array" and isinstance(items, dict) and ("enum" in items or "anyOf" in items)
