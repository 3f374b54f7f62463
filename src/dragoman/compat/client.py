"""A stateless A2A 0.1 client in four functions: `discover`, `send_task`, `get_task`, `cancel_task`.

    from dragoman.compat.client import discover, send_task

    _, card = await discover("https://localhost")
    match await send_task(
        "https://localhost", "Add these numbers", cookie=cookie, tool="add_numbers", arguments={"a": 5, "b": 12}
    ):
        case ("ok", task):
            print(task["status"]["state"], task["artifacts"])
        case ("error", reason):
            print(reason)

Each returns `("ok", map)` or `("error", reason)`; the only exception is the TypeError of `send_task`. The reason is the
JSON-RPC error as a map when the agent sent one, else a sentence. Certificates are not verified unless `verify=True`,
because these agents use self-signed ones: in a network that you do not trust use `dragoman.Client`, or anyone in
between can read the cookie. `timeout` is in seconds, for the whole call; None means no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from uuid import uuid4

from dragoman.clock import SystemClock
from dragoman.compat.remote.exchange import describe_refusal, is_success, join_url, json_object
from dragoman.model.error import DragomanError
from dragoman.model.json import encode
from dragoman.net.aio import fetch
from dragoman.net.exchange import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.compat.executor.result import Ok

    Outcome: TypeAlias = Ok[dict[str, Any]] | tuple[Literal["error"], str | dict[str, Any]]

__all__ = ["cancel_task", "discover", "get_task", "send_task"]

REQUEST_SECONDS = 15.0
# The response to `tasks/send` comes when the task has ended.
SEND_SECONDS = 120.0


async def discover(
    base_url: str,
    *,
    cookie: str | None = None,
    timeout: float | None = REQUEST_SECONDS,  # noqa: ASYNC109 - a timeout is an error pair, not an exception
    verify: bool = False,
) -> Outcome:
    """Fetch the agent card at `{base}/.well-known/agent.json`, as a map.

    `cookie` is accepted so that all four functions take the same options. It is never sent: discovery is public.
    """
    try:
        request = HttpRequest("GET", join_url(base_url, "/.well-known/agent.json"), {"Accept": "application/json"})
        status, body = await fetch(request, clock=SystemClock(), seconds=timeout, verify=verify)
    except DragomanError as error:
        return ("error", str(error))
    if not is_success(status):
        return ("error", describe_refusal(status, body))
    card = json_object(body)
    return ("error", "the agent card is not a JSON object") if card is None else ("ok", card)


async def send_task(
    base_url: str,
    text: str,
    *,
    cookie: str | None = None,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    timeout: float | None = SEND_SECONDS,  # noqa: ASYNC109 - see discover
    verify: bool = False,
) -> Outcome:
    """Send a text with `tasks/send` and return its task, which as a rule has ended by then. The cookie is required.

    `tool` and `arguments` choose a tool and its arguments. Without `tool` the agent chooses, and `arguments` are not
    sent.

    Raises:
        TypeError: an argument has no JSON form.
    """
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if tool is not None:
        parts.append({"type": "data", "data": {"tool": tool, "arguments": dict(arguments or {})}})
    params = {"message": {"role": "user", "parts": parts}}
    return await _call(base_url, "tasks/send", params, cookie, timeout, verify)


async def get_task(
    base_url: str,
    task_id: str,
    *,
    cookie: str | None = None,
    timeout: float | None = REQUEST_SECONDS,  # noqa: ASYNC109 - see discover
    verify: bool = False,
) -> Outcome:
    """Return the task as it is now, with `tasks/get`. The cookie is required."""
    return await _call(base_url, "tasks/get", {"id": task_id}, cookie, timeout, verify)


async def cancel_task(
    base_url: str,
    task_id: str,
    *,
    cookie: str | None = None,
    timeout: float | None = REQUEST_SECONDS,  # noqa: ASYNC109 - see discover
    verify: bool = False,
) -> Outcome:
    """Cancel the task with `tasks/cancel` and return it as it is then. The cookie is required."""
    return await _call(base_url, "tasks/cancel", {"id": task_id}, cookie, timeout, verify)


async def _call(
    base_url: str, method: str, params: dict[str, Any], cookie: str | None, seconds: float | None, verify: bool
) -> Outcome:
    if not cookie:
        return ("error", "a cookie is required: pass cookie=, the value of the agent's cookie named user")
    if not _is_cookie_value(cookie):
        return ("error", "this cannot be the value of a cookie: it may have printable ASCII characters, no semicolon")
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Cookie": f"user={cookie}"}
    try:
        body = encode({"jsonrpc": "2.0", "id": str(uuid4()), "method": method, "params": params})
        request = HttpRequest("POST", join_url(base_url, "/a2a"), headers, body, operation=method)
        status, response = await fetch(request, clock=SystemClock(), seconds=seconds, verify=verify)
    except UnicodeEncodeError:
        return ("error", "the request has characters that are not Unicode")
    except DragomanError as error:
        return ("error", str(error))
    return _outcome(status, response)


def _is_cookie_value(cookie: str) -> bool:
    return cookie.isascii() and cookie.isprintable() and ";" not in cookie


def _outcome(status: int, body: bytes) -> Outcome:
    response = json_object(body) or {}
    error, result = response.get("error"), response.get("result")
    # Before the HTTP status: some agents send an error status with the reason in a JSON-RPC body.
    if isinstance(error, dict):
        return ("error", cast("dict[str, Any]", error))
    if not is_success(status):
        return ("error", describe_refusal(status, body))
    if error is None and isinstance(result, dict):
        return ("ok", cast("dict[str, Any]", result))
    return ("error", "the answer is neither a task nor an error of JSON-RPC")
