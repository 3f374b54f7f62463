"""Whether an answer is what the specification wants, and which rule it breaks if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from dragoman.dialects.errors import DOMAIN, status_of
from dragoman.model.error import A2AError, DragomanError
from dragoman.model.operation import Operation

if TYPE_CHECKING:
    from dragoman.cli.doctor_probe import Reply
    from dragoman.transports.binding import Binding

RPC_SHAPE = 'JSON-RPC 2.0, 5: an answer has `jsonrpc` "2.0", the id of the request, and either a result or an error'
RPC_ERROR = "JSON-RPC 2.0, 5.1: an error has a whole number as `code` and a text as `message`"
RPC_MEDIA = "A2A 1.0, 9.1: answers over JSON-RPC are application/json"
RPC_DETAILS = "A2A 1.0, 9.5: the `data` of an error is a list of objects that each have an `@type`"
REST_ERROR = "A2A 1.0, 11.6: an error is a google.rpc.Status: `error` with `code`, `status`, `message` and `details`"
REST_INFO = "A2A 1.0, 11.6: an error of A2A's own has an ErrorInfo in its `details` that says the reason"
REST_MEDIA = "A2A 1.0, 11.1: answers over HTTP+JSON are application/a2a+json"
LIST_SHAPE = "A2A 1.0, 3.1.4: a list of tasks always has `tasks`, `nextPageToken`, `pageSize` and `totalSize`"

Json = dict[str, Any]


class Fault(NamedTuple):
    """What is wrong, how bad that is, and the rule that says so."""

    level: Literal["warn", "FAIL"]
    says: str
    rule: str


class Question(NamedTuple):
    """What is asked, and which answers are right: one of these errors, or a result where `result` is True."""

    what: str
    rule: str
    right: tuple[type[A2AError], ...]
    result: bool = False
    operation: Operation | None = None
    strict: bool = True  # False where the version only recommends the error

    @property
    def wrong(self) -> Literal["warn", "FAIL"]:
        """How bad another error is."""
        return "FAIL" if self.strict else "warn"


def faults_of(binding: Binding, question: Question, reply: Reply, request_id: object) -> list[Fault]:
    """All that is wrong with an answer."""
    try:
        body = reply.json()
    except ValueError:
        start = " ".join(reply.body[:60].decode("utf-8", "replace").split())
        media = RPC_MEDIA if binding.name == "JSONRPC" else REST_MEDIA
        return [Fault("FAIL", f"{question.what}: {reply.shown} instead of JSON: {start!r}", media)]
    if binding.name == "JSONRPC":
        return _of_rpc(binding, question, reply, body, request_id)
    return _of_rest(binding, question, reply, body)


# -- JSON-RPC --------------------------------------------------------------------------------------------------------


def _of_rpc(binding: Binding, question: Question, reply: Reply, body: Any, request_id: object) -> list[Fault]:
    what = question.what
    if not isinstance(body, dict):
        return [Fault("FAIL", f"{what}: the answer is no JSON object", RPC_SHAPE)]
    answer = cast("Json", body)
    found: list[Fault] = []
    if answer.get("jsonrpc") != "2.0":
        found.append(Fault("FAIL", f"{what}: `jsonrpc` is {answer.get('jsonrpc')!r}", RPC_SHAPE))
    if answer.get("id") != request_id:
        found.append(Fault("FAIL", f"{what}: the id is {answer.get('id')!r} and not {request_id!r}", RPC_SHAPE))
    if reply.kind not in ("application/json", "text/event-stream"):
        found.append(Fault("warn", f"{what}: the answer is {reply.kind or 'without a content type'}", RPC_MEDIA))
    error = answer.get("error")
    if (error is None) == ("result" not in answer):
        return [*found, Fault("FAIL", f"{what}: there is not exactly one of `result` and `error`", RPC_SHAPE)]
    if error is None:
        return found + _of_result(binding, question, answer["result"])
    return found + _of_rpc_error(binding, question, error)


def _of_rpc_error(binding: Binding, question: Question, error: object) -> list[Fault]:
    what = question.what
    members = cast("Json", error) if isinstance(error, dict) else {}
    code = members.get("code")
    if not isinstance(code, int) or not isinstance(members.get("message"), str):
        return [Fault("FAIL", f"{what}: the error has no code or no message", RPC_ERROR)]
    found: list[Fault] = []
    if code not in [each.code for each in question.right]:
        said = f"{code} ({members['message']!r})"
        found.append(Fault(question.wrong, f"{what}: {said} instead of {_codes(question)}", question.rule))
    if binding.dialect.row.errors.typed and members.get("data") is not None and not _typed(members["data"]):
        found.append(Fault("warn", f"{what}: the `data` of the error is {str(members['data'])[:80]}", RPC_DETAILS))
    return found


def _codes(question: Question) -> str:
    right = " or ".join(str(each.code) for each in question.right)
    return (f"a result or {right}" if right else "a result") if question.result else right


# -- HTTP+JSON -------------------------------------------------------------------------------------------------------


def _of_rest(binding: Binding, question: Question, reply: Reply, body: Any) -> list[Fault]:
    what, modern = question.what, binding.dialect.row.errors.typed
    found: list[Fault] = []
    if reply.kind not in ("application/a2a+json", "application/json", "text/event-stream"):
        found.append(Fault("warn", f"{what}: the answer is {reply.kind or 'without a content type'}", REST_MEDIA))
    if reply.status < 300:
        return found + _of_result(binding, question, body)
    statuses = {status_of(each()).http for each in question.right}
    if reply.status not in statuses:
        right = " or ".join(map(str, sorted(statuses))) or "a result"
        return [*found, Fault(question.wrong, f"{what}: HTTP {reply.status} instead of {right}", question.rule)]
    if not modern:
        return found
    members = cast("Json", body) if isinstance(body, dict) else {}
    error = members.get("error")
    if not isinstance(error, dict):
        return [*found, Fault("FAIL", f"{what}: the body has no `error` object", REST_ERROR)]
    status = cast("Json", error)
    if status.get("code") != reply.status or not isinstance(status.get("message"), str):
        found.append(Fault("FAIL", f"{what}: `error.code` or `error.message` is missing or wrong", REST_ERROR))
    # Only A2A's own errors have a reason that is prescribed.
    own = [each.reason for each in question.right if -32099 <= each.code <= -32001]
    if own and _reason(status.get("details")) not in own:
        said = _reason(status.get("details")) or "nothing"
        found.append(Fault("FAIL", f"{what}: the ErrorInfo says {said} instead of {' or '.join(own)}", REST_INFO))
    return found


def _reason(details: object) -> str:
    if isinstance(details, list):
        for each in cast("list[object]", details):
            info = cast("Json", each) if isinstance(each, dict) else {}
            if str(info.get("@type", "")).endswith("google.rpc.ErrorInfo") and info.get("domain") == DOMAIN:
                return str(info.get("reason", ""))
    return ""


# -- both ------------------------------------------------------------------------------------------------------------


def _of_result(binding: Binding, question: Question, result: Any) -> list[Fault]:
    if not question.result or question.operation is None:
        return [Fault("FAIL", f"{question.what}: answered as if all were well", question.rule)]
    try:
        binding.dialect.result_from(question.operation, result)
    except DragomanError as error:
        return [Fault("FAIL", f"{question.what}: {error}", question.rule)]
    if question.operation is Operation.LIST:
        return _of_list(question, result)
    return []


def _of_list(question: Question, result: Any) -> list[Fault]:
    members = cast("Json", result) if isinstance(result, dict) else {}
    missing = [name for name in ("tasks", "nextPageToken", "pageSize", "totalSize") if name not in members]
    found: list[Fault] = []
    if missing:
        found.append(Fault("FAIL", f"{question.what}: {', '.join(missing)} missing", LIST_SHAPE))
    if len(members.get("tasks") or ()) > 1:
        found.append(Fault("FAIL", f"{question.what}: {len(members['tasks'])} tasks came", question.rule))
    return found


def answered(reply: Reply) -> str:
    """What was answered, in a few words, for an answer that is right."""
    try:
        body = reply.json()
    except ValueError:
        return reply.shown
    members = cast("Json", body) if isinstance(body, dict) else {}
    error = members.get("error")
    if isinstance(error, dict):
        code = cast("Json", error).get("code")
        return f"{code}" if reply.status < 300 else f"HTTP {reply.status}"
    return "a result" if reply.status < 300 else f"HTTP {reply.status}"


def _typed(data: object) -> bool:
    entries = cast("list[object]", data) if isinstance(data, list) else None
    return entries is not None and all(isinstance(each, dict) and "@type" in each for each in entries)
