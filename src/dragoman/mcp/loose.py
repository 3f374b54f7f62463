"""Answers of agents that leave out what only machines need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse

Json = dict[str, Any]
_ABOUT_TASKS = ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask")
_SAYS_WHAT_IT_IS = re.compile(rb'"kind"\s*:\s*"(?:task|message)"')


class Loose:
    """An interceptor that completes them: what kind of answer it is, a state that is a mere word, the task's id.

    Agents written by hand answer `{id, status, artifacts}` or `{id, status, history}`, and a cancel with a word.
    """

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass."""
        response = await call_next(request)
        kind = response.headers.get("Content-Type", "")
        if request.operation not in _ABOUT_TASKS or "json" not in kind or response.status != 200:
            return response
        return _Completed(response, request.body or b"")


class _Completed:
    """An answer that is completed when it is read; see `HttpResponse`."""

    def __init__(self, response: HttpResponse, asked: bytes) -> None:
        self._response = response
        self._asked = asked
        self.status = response.status
        self.headers = response.headers
        self.chunks = response.chunks
        self.close = response.close

    async def read(self, limit: int = 0) -> bytes:
        """See `HttpResponse.read`."""
        body = await self._response.read(limit)
        if _SAYS_WHAT_IT_IS.search(body):
            return body
        try:
            answer: Any = decode_any(body)
            asked: Any = decode_any(self._asked)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return body
        result = _object(_object(answer).get("result"))
        if not result or "jsonrpc" not in answer:
            return body
        return encode({**answer, "result": completed(result, _object(_object(asked).get("params")).get("id"))})


def completed(result: Json, task_id: str | None) -> Json:
    """A task or message with what it is; anything else as it is. `task_id` is that of the task that was asked about."""
    if isinstance(result.get("status"), str):
        result = {**result, "status": {"state": result["status"]}}
    if isinstance(result.get("status"), dict):
        return {"kind": "task", **result, "id": str(result.get("id") or task_id or "")}
    if isinstance(result.get("parts"), list):
        return {"kind": "message", **result}
    return result


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
