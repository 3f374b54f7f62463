"""A task for a remote agent: submitted once, then looked after until it ends."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from dragoman.clock import SystemClock, wait
from dragoman.compat.remote.exchange import exchange, good, guard_of, json_object, refusal, under
from dragoman.compat.remote.result import RemoteInvocationResult
from dragoman.compat.sessions.errors import BudgetExceededError
from dragoman.compat.sessions.invocation_guard import max_depth_of
from dragoman.model.error import DragomanError
from dragoman.model.json import encode
from dragoman.model.message import told_depth
from dragoman.net.exchange import HttpRequest
from dragoman.net.guard import Forbidden, Guard

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.compat.remote.budget import SessionBudget

POLL_SECONDS = 3.0
TIMEOUT_MS = 5 * 60 * 1000
SUBMIT_SECONDS = 30.0
LOOK_SECONDS = 10.0
# What the other side's route takes; it refuses a request that asks for more or less.
_THEIR_TIMEOUT_MS = (1000, 600_000)
# The document has the first two. Whoever answers with another end has ended all the same.
_ENDS = ("completed", "failed", "canceled", "cancelled", "rejected")


async def invoke_remote_agent(
    base_url: str,
    message: str,
    *,
    skill: str | None = None,
    timeout_ms: int = TIMEOUT_MS,
    clock: Clock | None = None,
    depth: int | None = None,
    source_agent: str | None = None,
    budget: SessionBudget | None = None,
    session: str | None = None,
    guard: Guard | bool | None = None,
) -> RemoteInvocationResult:
    """Submit a message to a remote agent and look every three seconds, at first at once, whether its task has ended.

    The message goes to `{base}/a2a/tasks/send`, which has 30 seconds to take it; `skill` is passed on. The task is
    read at `{base}/a2a/tasks/{id}` for at most `timeout_ms`, counted from when it was taken. A look that fails is
    no failure: the next one may not. The other side is told the same limit, or the nearest it takes (1 s to 10 min).

    An agent that calls another says so: `source_agent` is its name, and `depth` how deep the call is in a chain of
    calls, 3 at most (or `A2A_MAX_DEPTH`); a program that Dragoman runs need not, for that is in its environment
    (`DRAGOMAN_DEPTH`). `budget` counts the call for a `session`. With `guard=True` nothing is sent
    that does not go to the public internet; a `Guard` allows what it was told to. What these refuse is not sent.

    Whatever goes wrong, here or over there, is in the result's `error`; nothing is raised for it.
    """
    clock = clock or SystemClock()
    depth = told_depth(os.environ) if depth is None else depth
    params: dict[str, Any] = {"message": message}
    if skill is not None:
        params["skill"] = skill
    least, most = _THEIR_TIMEOUT_MS
    params["timeoutMs"] = min(max(timeout_ms, least), most)
    if depth is not None:
        params["depth"] = depth
    if source_agent is not None:
        params["sourceAgent"] = source_agent
    line = _Line(base_url, clock, guard_of(guard))
    try:
        line.check(depth)
        request = _submission(line, params)
        if budget is not None:
            # Last of all: what is not sent for another reason costs nothing.
            budget.take(session, base_url)
        task_id = await _submit(line, request)
    except (_NotTakenError, BudgetExceededError) as error:
        return RemoteInvocationResult(False, "", error=str(error))
    task = await _ended(line, task_id, timeout_ms)
    if task is None:
        return RemoteInvocationResult(False, task_id, error=f"Timed out after {timeout_ms}ms")
    text = _last_words(task)
    if task["state"] == "completed":
        return RemoteInvocationResult(True, task_id, response_text=text)
    return RemoteInvocationResult(False, task_id, error=text or f"Task {task['state']}")


class _Line:
    """Whom the requests of one invocation go to, and what watches over them."""

    def __init__(self, base_url: str, clock: Clock, guard: Guard | None) -> None:
        self.base_url = base_url
        self.clock = clock
        self.guard = guard

    def check(self, depth: int | None) -> None:
        """Raises _NotTakenError when nothing may be sent."""
        if depth is not None and depth > max_depth_of(os.environ):
            raise _NotTakenError("Invocation depth limit exceeded.")
        if self.guard is not None:
            try:
                self.guard.check_url(self.base_url)
            except Forbidden as error:
                raise _NotTakenError(f"Blocked URL: {error}") from error

    async def carry(self, request: HttpRequest, seconds: float) -> tuple[int, bytes]:
        """See `exchange`."""
        return await exchange(request, clock=self.clock, seconds=seconds, guard=self.guard)


# -- submit --------------------------------------------------------------------------------------------------------


class _NotTakenError(Exception):
    """There is no task over there, as far as one can tell. The text is for the result."""


def _submission(line: _Line, params: dict[str, Any]) -> HttpRequest:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        body = encode({"method": "tasks/send", "params": params})
        return HttpRequest("POST", under(line.base_url, "/a2a/tasks/send"), headers, body, operation="send")
    except UnicodeEncodeError as error:
        raise _NotTakenError("Submit failed: the message has characters that are not Unicode") from error
    except DragomanError as error:
        raise _NotTakenError(f"Submit failed: {error}") from error


async def _submit(line: _Line, request: HttpRequest) -> str:
    try:
        status, answer = await line.carry(request, SUBMIT_SECONDS)
    except Forbidden as error:
        raise _NotTakenError(f"Blocked URL: {error}") from error
    except DragomanError as error:
        raise _NotTakenError(f"Submit failed: {error}") from error
    if not good(status):
        raise _NotTakenError(f"Submit failed: {refusal(status, answer)}")
    task = json_object(answer)
    task_id = None if task is None else task.get("id")
    if not isinstance(task_id, str) or not task_id:
        raise _NotTakenError("Submit failed: the answer is not a task")
    return task_id


# -- poll ----------------------------------------------------------------------------------------------------------


async def _ended(line: _Line, task_id: str, timeout_ms: int) -> dict[str, Any] | None:
    """The task once it has ended, or None when the time is up before."""
    url = under(line.base_url, f"/a2a/tasks/{quote(task_id, safe='')}")
    clock = line.clock
    until = clock.now() + timeout_ms
    while (left := (until - clock.now()) / 1000) > 0:
        task = await _look(line, url, min(LOOK_SECONDS, left))
        if task is not None and task.get("state") in _ENDS:
            return task
        left = (until - clock.now()) / 1000
        if left > 0:
            await _pause(clock, min(POLL_SECONDS, left))
    return None


async def _look(line: _Line, url: str, seconds: float) -> dict[str, Any] | None:
    request = HttpRequest("GET", url, {"Accept": "application/json"}, operation="get")
    try:
        status, body = await line.carry(request, seconds)
    except DragomanError:
        return None
    return json_object(body) if good(status) else None


async def _pause(clock: Clock, seconds: float) -> None:
    await wait(clock, asyncio.get_running_loop().create_future(), seconds)


# -- read ----------------------------------------------------------------------------------------------------------


def _last_words(task: dict[str, Any]) -> str | None:
    """The text of the last message with role agent; None when there is none."""
    for message in reversed(_maps(task.get("messages"))):
        if message.get("role") == "agent":
            texts = [part.get("text") for part in _maps(message.get("parts"))]
            return "".join(text for text in texts if isinstance(text, str))
    return None


def _maps(value: Any) -> list[dict[str, Any]]:
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in found if isinstance(one, dict)]
