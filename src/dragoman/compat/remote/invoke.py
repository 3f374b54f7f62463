"""A task for a remote agent: submitted once, then looked after until it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from dragoman.compat.remote.exchange import exchange, good, json_object, refusal, under
from dragoman.compat.remote.result import RemoteInvocationResult
from dragoman.engine.clock import SystemClock, wait
from dragoman.model.error import DragomanError
from dragoman.model.json import encode
from dragoman.net.exchange import HttpRequest

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock

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
) -> RemoteInvocationResult:
    """Submit a message to a remote agent and look every three seconds, at first at once, whether its task has ended.

    The message goes to `{base}/a2a/tasks/send`, which has 30 seconds to take it; `skill` is passed on. The task is
    read at `{base}/a2a/tasks/{id}` for at most `timeout_ms`, counted from when it was taken. A look that fails is
    no failure: the next one may not. The other side is told the same limit, or the nearest it takes (1 s to 10 min).

    Whatever goes wrong over there is in the result's `error`; nothing is raised for it.
    """
    clock = clock or SystemClock()
    params: dict[str, Any] = {"message": message}
    if skill is not None:
        params["skill"] = skill
    least, most = _THEIR_TIMEOUT_MS
    params["timeoutMs"] = min(max(timeout_ms, least), most)
    try:
        task_id = await _submit(base_url, params, clock)
    except _NotTakenError as error:
        return RemoteInvocationResult(False, "", error=f"Submit failed: {error}")
    task = await _ended(base_url, task_id, clock, timeout_ms)
    if task is None:
        return RemoteInvocationResult(False, task_id, error=f"Timed out after {timeout_ms}ms")
    text = _last_words(task)
    if task["state"] == "completed":
        return RemoteInvocationResult(True, task_id, response_text=text)
    return RemoteInvocationResult(False, task_id, error=text or f"Task {task['state']}")


# -- submit --------------------------------------------------------------------------------------------------------


class _NotTakenError(Exception):
    """There is no task over there, as far as one can tell."""


async def _submit(base_url: str, params: dict[str, Any], clock: Clock) -> str:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        body = encode({"method": "tasks/send", "params": params})
        request = HttpRequest("POST", under(base_url, "/a2a/tasks/send"), headers, body, operation="send")
        status, answer = await exchange(request, clock=clock, seconds=SUBMIT_SECONDS)
    except UnicodeEncodeError as error:
        raise _NotTakenError("the message has characters that are not Unicode") from error
    except DragomanError as error:
        raise _NotTakenError(str(error)) from error
    if not good(status):
        raise _NotTakenError(refusal(status, answer))
    task = json_object(answer)
    task_id = None if task is None else task.get("id")
    if not isinstance(task_id, str) or not task_id:
        raise _NotTakenError("the answer is not a task")
    return task_id


# -- poll ----------------------------------------------------------------------------------------------------------


async def _ended(base_url: str, task_id: str, clock: Clock, timeout_ms: int) -> dict[str, Any] | None:
    """The task once it has ended, or None when the time is up before."""
    url = under(base_url, f"/a2a/tasks/{quote(task_id, safe='')}")
    until = clock.now() + timeout_ms
    while (left := (until - clock.now()) / 1000) > 0:
        task = await _look(url, clock, min(LOOK_SECONDS, left))
        if task is not None and task.get("state") in _ENDS:
            return task
        left = (until - clock.now()) / 1000
        if left > 0:
            await _pause(clock, min(POLL_SECONDS, left))
    return None


async def _look(url: str, clock: Clock, seconds: float) -> dict[str, Any] | None:
    request = HttpRequest("GET", url, {"Accept": "application/json"}, operation="get")
    try:
        status, body = await exchange(request, clock=clock, seconds=seconds)
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
