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

    In JSON, and in `to_map()`, the names are the source document's: `success`, `taskId`, and `responseText` or `error`
    if set. `task_id` is empty when no task was submitted.
    """

    success: bool
    task_id: str
    response_text: str | None = None
    error: str | None = None

    def to_map(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return decode_any(encode(self))


POLL_SECONDS = 3.0
TIMEOUT_MS = 5 * 60 * 1000
SUBMIT_SECONDS = 30.0
REQUEST_SECONDS = 10.0
# The range of `timeoutMs` that the remote route accepts.
_REMOTE_TIMEOUT_MS = (1000, 600_000)
# The source document has the first two; other agents use the rest.
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
    """Submit a message to a remote agent, and poll its task every three seconds until it has ended.

    The message is posted to `{base}/a2a/tasks/send`, which has 30 seconds to respond. The task is then polled at
    `{base}/a2a/tasks/{id}`, first at once, for at most `timeout_ms` from then on; polls that fail are repeated. The
    same limit, within 1 s to 10 min, is sent to the remote agent. `skill` is passed on.

    An agent that calls another passes its name as `source_agent`, and as `depth` how deep the call is in a chain of
    calls: at most 3, or `A2A_MAX_DEPTH`. The default is `DRAGOMAN_DEPTH`, which programs run by Dragoman have in their
    environment. `budget` counts the call for `session`. `guard=True` allows the public internet only, an `AddressGuard`
    what it was configured for. A call that one of these refuses is not sent.

    Errors, local and remote, are in the result's `error`; they are not raised.
    """
    clock = clock or SystemClock()
    depth = depth_from_environ(os.environ) if depth is None else depth
    params: dict[str, Any] = {"message": message}
    if skill is not None:
        params["skill"] = skill
    least, most = _REMOTE_TIMEOUT_MS
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
            # Last, so that a request that fails an earlier check is not counted.
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
    """Return the id of the submitted task. Raises BadResponse when the response is an error, or not a task."""
    if not is_success(status):
        raise BadResponse(describe_refusal(status, body))
    task_id = (json_object(body) or {}).get("id")
    if not isinstance(task_id, str) or not task_id:
        raise BadResponse("the answer is not a task")
    return task_id


# -- poll ----------------------------------------------------------------------------------------------------------


async def _poll_until_end(url: str, timeout_ms: int, clock: Clock, guard: AddressGuard | None) -> dict[str, Any] | None:
    """Poll the task until it has ended, and return it; None on timeout."""
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
