"""Submits a task to a remote agent and polls it until it ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from msgspec import Struct

from dragoman.clock import SystemClock, sleep
from dragoman.compat.remote.exchange import describe_refusal, guard_of, is_success, join_url, json_object
from dragoman.compat.sessions.errors import BudgetExceededError
from dragoman.compat.sessions.invocation_guard import max_depth_of
from dragoman.model.error import BadResponse, DragomanError
from dragoman.model.json import decode_any, encode
from dragoman.model.message import depth_from_environ
from dragoman.net.aio import fetch
from dragoman.net.exchange import HttpRequest
from dragoman.net.guard import AddressForbidden, AddressGuard

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.compat.remote.budget import SessionBudget


class RemoteInvocationResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The outcome of `invoke_remote_agent`.

    Attributes are in snake_case. As JSON, and in `to_map()`, the names are the source document's: `success`,
    `taskId`, and of `responseText` and `error` the one that is there. `task_id` is empty when nothing was submitted.
    """

    success: bool
    task_id: str
    response_text: str | None = None
    error: str | None = None

    def to_map(self) -> dict[str, Any]:
        """The result as JSON values."""
        return decode_any(encode(self))


POLL_SECONDS = 3.0
TIMEOUT_MS = 5 * 60 * 1000
SUBMIT_SECONDS = 30.0
REQUEST_SECONDS = 10.0
# The range of timeouts that the other side's route accepts.
_THEIR_TIMEOUT_MS = (1000, 600_000)
# The document has the first two; the others are final states too.
_FINAL_STATES = ("completed", "failed", "canceled", "cancelled", "rejected")


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
    guard: AddressGuard | bool | None = None,
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
    depth = depth_from_environ(os.environ) if depth is None else depth
    params: dict[str, Any] = {"message": message}
    if skill is not None:
        params["skill"] = skill
    least, most = _THEIR_TIMEOUT_MS
    params["timeoutMs"] = min(max(timeout_ms, least), most)
    if depth is not None:
        params["depth"] = depth
    if source_agent is not None:
        params["sourceAgent"] = source_agent
    guard = guard_of(guard)
    try:
        if depth is not None and depth > max_depth_of(os.environ):
            return _failure("Invocation depth limit exceeded.")
        if guard is not None:
            guard.check_url(base_url)
        body = encode({"method": "tasks/send", "params": params})
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = HttpRequest("POST", join_url(base_url, "/a2a/tasks/send"), headers, body, operation="send")
        if budget is not None:
            # Last: a request that is not sent for another reason costs nothing.
            budget.take(session, base_url)
        task_id = _parse_task_id(*await fetch(request, clock=clock, seconds=SUBMIT_SECONDS, guard=guard))
    except AddressForbidden as error:
        return _failure(f"Blocked URL: {error}")
    except BudgetExceededError as error:
        return _failure(str(error))
    except UnicodeEncodeError:
        return _failure("Submit failed: the message has characters that are not Unicode")
    except DragomanError as error:
        return _failure(f"Submit failed: {error}")
    task = await _poll_until_end(
        f"{join_url(base_url, '/a2a/tasks')}/{quote(task_id, safe='')}", timeout_ms, clock, guard
    )
    if task is None:
        return RemoteInvocationResult(False, task_id, error=f"Timed out after {timeout_ms}ms")
    return _result(task_id, task)


def _failure(error: str) -> RemoteInvocationResult:
    return RemoteInvocationResult(False, "", error=error)


def _parse_task_id(status: int, body: bytes) -> str:
    """Return the id of the task in a response. Raises BadResponse when there is none."""
    if not is_success(status):
        raise BadResponse(describe_refusal(status, body))
    task_id = (json_object(body) or {}).get("id")
    if not isinstance(task_id, str) or not task_id:
        raise BadResponse("the answer is not a task")
    return task_id


# -- poll ----------------------------------------------------------------------------------------------------------


async def _poll_until_end(url: str, timeout_ms: int, clock: Clock, guard: AddressGuard | None) -> dict[str, Any] | None:
    """Poll the task until it has ended; None when the timeout is over before."""
    deadline = clock.now() + timeout_ms
    while (remaining := (deadline - clock.now()) / 1000) > 0:
        task = await _poll(url, min(REQUEST_SECONDS, remaining), clock, guard)
        if task is not None and task.get("state") in _FINAL_STATES:
            return task
        remaining = (deadline - clock.now()) / 1000
        if remaining > 0:
            await sleep(clock, min(POLL_SECONDS, remaining))
    return None


async def _poll(url: str, seconds: float, clock: Clock, guard: AddressGuard | None) -> dict[str, Any] | None:
    request = HttpRequest("GET", url, {"Accept": "application/json"}, operation="get")
    try:
        status, body = await fetch(request, clock=clock, seconds=seconds, guard=guard)
    except DragomanError:
        return None
    return json_object(body) if is_success(status) else None


# -- read ----------------------------------------------------------------------------------------------------------


def _result(task_id: str, task: dict[str, Any]) -> RemoteInvocationResult:
    text = _last_agent_text(task)
    if task["state"] == "completed":
        return RemoteInvocationResult(True, task_id, response_text=text)
    return RemoteInvocationResult(False, task_id, error=text or f"Task {task['state']}")


def _last_agent_text(task: dict[str, Any]) -> str | None:
    """Return the text of the last message with role agent; None when there is none."""
    for message in reversed(_json_objects(task.get("messages"))):
        if message.get("role") == "agent":
            texts = [part.get("text") for part in _json_objects(message.get("parts"))]
            return "".join(text for text in texts if isinstance(text, str))
    return None


def _json_objects(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in items if isinstance(one, dict)]
