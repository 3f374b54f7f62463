"""One interface of an agent: every operation that starts no work, and requests that are wrong on purpose.

Each answer is compared with what the specification wants; what it breaks is told with the rule.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from dragoman.auth.outbound.requirement import declared_schemes
from dragoman.auth.outbound.untrusted import as_object
from dragoman.dialects.errors import DOMAIN, status_of
from dragoman.dialects.table import VERSION_HEADER
from dragoman.model import error as e
from dragoman.model.ids import new_id
from dragoman.model.operation import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    Operation,
    SubscribeToTaskRequest,
)
from dragoman.net.exchange import HttpRequest
from dragoman.stores.sqlite.health import HealthFinding

if TYPE_CHECKING:
    from dragoman.cli.doctor_remote import Probe, Reply
    from dragoman.client.discovery import Interface
    from dragoman.model.card import AgentCard
    from dragoman.model.operation import Request
    from dragoman.transports.binding import Binding

SLOW = 2.0
_NOT_SPOKEN = "99.0"
_CAPABILITY = "A2A 1.0, 3.3.4: what the card does not offer is refused with"
_NO_STREAMING = f"{_CAPABILITY} UnsupportedOperationError, -32004, here for streaming"
_NO_PUSH = f"{_CAPABILITY} PushNotificationNotSupportedError, -32003, here for webhooks"
_NO_EXTENDED = f"{_CAPABILITY} UnsupportedOperationError, -32004, here for the extended card"
_EXTENDED = "A2A 1.0, 3.1.11: the extended card, or ExtendedAgentCardNotConfiguredError, -32007"
_UNKNOWN_TASK = "A2A 1.0, 3.3.2 and 5.4: a task that does not exist is TaskNotFoundError, -32001 or HTTP 404"
_CREDENTIALS = "A2A 1.0, 7.3: what callers must present is on the card, in securitySchemes"
_CHALLENGE = "A2A 1.0, 7.4: a refusal says what is wanted, over HTTP in WWW-Authenticate"
_ONE_PAGE = "A2A 1.0, 3.1.4: ListTasks gives at most pageSize tasks"
_CALLABLE = "A2A 1.0, 8.3.1: an interface on the card can be called there"
_NO_METHOD = "JSON-RPC 2.0, 5.1: a method that does not exist is -32601"
_NO_PATH = "A2A 1.0, 5.4: a path that does not exist is HTTP 404"
_NO_JSON = "A2A 1.0, 5.4 and 9.5: what is not JSON is -32700, or HTTP 400"
_NO_VERSION = "A2A 1.0, 3.6.2: a version that is not spoken is VersionNotSupportedError, -32009"
_MEDIA = "Advice: a body that is not declared as JSON is refused, so that no web page can send one unasked"
_RPC_SHAPE = 'JSON-RPC 2.0, 5: an answer has `jsonrpc` "2.0", the id of the request, and either a result or an error'
_RPC_ERROR = "JSON-RPC 2.0, 5.1: an error has a whole number as `code` and a text as `message`"
_RPC_MEDIA = "A2A 1.0, 9.1: answers over JSON-RPC are application/json"
_RPC_DETAILS = "A2A 1.0, 9.5: the `data` of an error is a list of objects that each have an `@type`"
_REST_ERROR = "A2A 1.0, 11.6: an error is a google.rpc.Status: `error` with `code`, `status`, `message` and `details`"
_REST_INFO = "A2A 1.0, 11.6: an error of A2A's own has an ErrorInfo in its `details` that says the reason"
_REST_MEDIA = "A2A 1.0, 11.1: answers over HTTP+JSON are application/a2a+json"
_LIST_SHAPE = "A2A 1.0, 3.1.4: a list of tasks always has `tasks`, `nextPageToken`, `pageSize` and `totalSize`"

_Errors = tuple[type[e.A2AError], ...]
# How bad it is, what is wrong, and the rule that says so.
_Fault = tuple[Literal["warn", "FAIL"], str, str]


class Expected(NamedTuple):
    """Which answers are right by a rule: one of these errors, or a result where `result` is True."""

    rule: str
    errors: _Errors
    result: bool = False
    strict: bool = True  # False where the version only recommends the error


class Question(NamedTuple):
    """What is asked, and how it is to be answered."""

    what: str
    request: HttpRequest
    right: Expected
    operation: Operation | None = None

    @property
    def wrong(self) -> Literal["warn", "FAIL"]:
        """How bad another error is."""
        return "FAIL" if self.right.strict else "warn"

    @property
    def id(self) -> object:
        """The id of a JSON-RPC request; None when it cannot be read."""
        try:
            return msgspec.json.decode(self.request.body or b"{}").get("id")
        except msgspec.DecodeError:
            return None


class Checkup:
    """Asks one interface everything. `card` says what it offers."""

    def __init__(self, probe: Probe, interface: Interface, card: AgentCard) -> None:
        self._probe = probe
        self._binding = interface.binding
        self._tenant = interface.tenant
        self._card = card
        self._times: list[float] = []
        self._rpc = self._binding.name == "JSONRPC"
        self.version = self._binding.dialect.version
        self.check = f"{'jsonrpc' if self._rpc else 'rest'} {self.version}"
        self._modern = self._binding.dialect.row.errors.typed

    async def findings(self) -> AsyncIterator[HealthFinding]:
        """What is found, in the order it is looked at. An interface that answers nothing is left after one question."""
        yield HealthFinding("ok", self.check, f"at {self._binding.url}")
        try:
            for number, question in enumerate([*self._harmless(), *self._wrong_on_purpose()]):
                reply = await self._ask(question.request)
                refused = reply.status in (401, 403)
                what = question.what if number else "every operation"
                for finding in self._refused(reply, what) if refused else self._judged(question, reply):
                    yield finding
                if not number and (refused or not reply.is_json):
                    return
            yield await self._undeclared()
            if not self._rpc:
                yield await self._nowhere()
        except e.DragomanError as error:
            yield HealthFinding("FAIL", self.check, str(error), _CALLABLE)
            return
        yield self._latency()

    async def _ask(self, request: HttpRequest) -> Reply:
        reply = await self._probe.ask(request)
        self._times.append(reply.seconds)
        return reply

    def _spelled(self, operation: Operation, request: Request) -> HttpRequest:
        return self._binding.request(operation, replace(request, tenant=self._tenant) if self._tenant else request)

    def _judged(self, question: Question, reply: Reply) -> list[HealthFinding]:
        faults = faults_of(self._binding, question, reply)
        found = [HealthFinding(level, self.check, f"{question.what}: {says}", rule) for level, says, rule in faults]
        return found or [HealthFinding("ok", self.check, f"{question.what}: {answered(reply)}")]

    def _refused(self, reply: Reply, what: str) -> list[HealthFinding]:
        if reply.status == 401 and not declared_schemes(self._card):
            says = f"{what}: HTTP 401, and the card names no way to authenticate"
            return [HealthFinding("FAIL", self.check, says, _CREDENTIALS)]
        says = f"{what}: HTTP {reply.status}, so it is not checked"
        hint = "put a token into DRAGOMAN_TOKEN, or name its variable with --token-env"
        found = [HealthFinding("warn", self.check, says, hint)]
        if reply.status == 401 and not reply.headers.get("WWW-Authenticate"):
            found.append(HealthFinding("warn", self.check, f"{what}: HTTP 401 without WWW-Authenticate", _CHALLENGE))
        return found

    def _latency(self) -> HealthFinding:
        middle = median(self._times)
        says = f"{1000 * middle:.0f} ms, the median of {len(self._times)} answers"
        if middle > SLOW:
            return HealthFinding("warn", self.check, says, "Advice: what starts no work is answered at once")
        return HealthFinding("ok", self.check, says)

    # -- what starts no work -----------------------------------------------------------------------------------------

    def _harmless(self) -> Iterator[Question]:
        """One question for every operation that this version has and that starts no work."""
        task, can = f"dragoman-doctor-{new_id()}", self._card.capabilities
        # Before 1.0 an agent without the capability need not know the operation, nor tell one card from the other.
        old = (e.UnsupportedOperation, e.MethodNotFound, e.TaskNotFound, e.ExtendedAgentCardNotConfigured)
        unknown = push = streaming = Expected(_UNKNOWN_TASK, (e.TaskNotFound,), strict=self._modern)
        extended = Expected(_EXTENDED, (e.ExtendedAgentCardNotConfigured,), result=True)
        unsupported: _Errors = (e.UnsupportedOperation,) if self._modern else old
        if not can.streaming:
            streaming = Expected(_NO_STREAMING, unsupported, strict=self._modern)
        if not can.extended_agent_card:
            extended = Expected(_NO_EXTENDED, unsupported, strict=self._modern)
        if not can.push_notifications:
            refused: _Errors = (e.PushNotificationNotSupported, *(() if self._modern else old))
            push = Expected(_NO_PUSH, refused, strict=self._modern)
        elif not self._modern:
            push = push._replace(errors=(e.TaskNotFound, e.MethodNotFound))
        # To remove what is not there may be right as well: it can be done any number of times.
        removed = push._replace(result=bool(can.push_notifications))
        webhook, of = GetPushConfigRequest(task, "none"), " of an unknown task"
        asked: list[tuple[Operation, Request, str, Expected]] = [
            (Operation.GET, GetTaskRequest(task), of, unknown),
            (Operation.LIST, ListTasksRequest(page_size=1), ", one a page", Expected(_ONE_PAGE, (), result=True)),
            (Operation.CANCEL, CancelTaskRequest(task), of, unknown),
            (Operation.SUBSCRIBE, SubscribeToTaskRequest(task), " to an unknown task", streaming),
            (Operation.LIST_PUSH, ListPushConfigsRequest(task), of, push),
            (Operation.GET_PUSH, webhook, of, push),
            (Operation.DELETE_PUSH, webhook, of, removed),
            (Operation.EXTENDED_CARD, GetExtendedAgentCardRequest(), "", extended),
        ]
        for operation, request, what, right in asked:
            if operation is Operation.LIST and not self._modern:
                continue
            try:
                http = self._spelled(operation, request)
            except e.MethodNotFound:
                continue
            yield Question(f"{operation}{what}", http, right, operation)

    # -- what is wrong on purpose ------------------------------------------------------------------------------------

    def _wrong_on_purpose(self) -> Iterator[Question]:
        known = self._spelled(Operation.GET, GetTaskRequest(f"dragoman-doctor-{new_id()}"))
        headers = {**known.headers, "Content-Type": "application/json"}
        if self._rpc:
            body = b'{"jsonrpc":"2.0","id":"u","method":"DragomanDoctor","params":{}}'
            request = HttpRequest("POST", known.url, dict(headers), body)
            yield Question("an unknown method", request, Expected(_NO_METHOD, (e.MethodNotFound,)))
            broken = HttpRequest("POST", known.url, headers, b'{"jsonrpc":"2.0",')
        else:
            url = f"{known.url.rpartition('/tasks/')[0]}/message:send"
            broken = HttpRequest("POST", url, headers, b'{"message":')
        yield Question("broken JSON", broken, Expected(_NO_JSON, (e.ParseError,)))
        if self._modern:
            headers = {**known.headers, VERSION_HEADER: _NOT_SPOKEN}
            request = HttpRequest(known.method, known.url, headers, known.body)
            yield Question(f"{VERSION_HEADER} {_NOT_SPOKEN}", request, Expected(_NO_VERSION, (e.VersionNotSupported,)))

    async def _undeclared(self) -> HealthFinding:
        """A body that does not say it is JSON."""
        request = self._spelled(Operation.CANCEL, CancelTaskRequest(f"dragoman-doctor-{new_id()}"))
        request.headers["Content-Type"] = "text/plain"
        reply = await self._ask(request)
        refused = reply.status in (400, 403, 406, 415)
        if not refused and self._rpc and reply.is_json:
            refused = as_object(as_object(reply.json()).get("error")).get("code") in (-32005, -32600, -32700)
        if refused:
            return HealthFinding("ok", self.check, f"a body that is text/plain: {answered(reply)}")
        return HealthFinding("warn", self.check, "a body that is text/plain is read all the same", _MEDIA)

    async def _nowhere(self) -> HealthFinding:
        """A path that does not exist. What its body looks like is nobody's rule."""
        base = self._spelled(Operation.GET, GetTaskRequest("x")).url.rpartition("/tasks/")[0]
        reply = await self._ask(HttpRequest("GET", f"{base}/tasks/a/b/c/d"))
        if reply.status in (404, 405):
            return HealthFinding("ok", self.check, f"an unknown path: HTTP {reply.status}")
        return HealthFinding("warn", self.check, f"an unknown path: {reply.shown}", _NO_PATH)


# -- answers ---------------------------------------------------------------------------------------------------------


def faults_of(binding: Binding, question: Question, reply: Reply) -> Iterator[_Fault]:
    """All that is wrong with an answer."""
    rpc = binding.name == "JSONRPC"
    if reply.is_json:
        yield from _of_rpc(binding, question, reply) if rpc else _of_rest(binding, question, reply)
        return
    start = " ".join(reply.body[:60].decode("utf-8", "replace").split())
    yield "FAIL", f"{reply.shown} instead of JSON: {start!r}", _RPC_MEDIA if rpc else _REST_MEDIA


def answered(reply: Reply) -> str:
    """What was answered, in a few words, for an answer that is right."""
    if not reply.is_json:
        return reply.shown
    if reply.status >= 300:
        return f"HTTP {reply.status}"
    error: object = as_object(reply.json()).get("error")
    code = as_object(error).get("code")
    return str(code) if isinstance(error, dict) else "a result"


def _of_rpc(binding: Binding, question: Question, reply: Reply) -> Iterator[_Fault]:
    answer = as_object(reply.json())
    if not answer and not isinstance(reply.json(), dict):
        yield "FAIL", "the answer is no JSON object", _RPC_SHAPE
        return
    if answer.get("jsonrpc") != "2.0":
        yield "FAIL", f"`jsonrpc` is {answer.get('jsonrpc')!r}", _RPC_SHAPE
    if answer.get("id") != question.id:
        yield "FAIL", f"the id is {answer.get('id')!r} and not {question.id!r}", _RPC_SHAPE
    if reply.kind not in ("application/json", "text/event-stream"):
        yield "warn", f"the answer is {reply.kind or 'without a content type'}", _RPC_MEDIA
    error = answer.get("error")
    if (error is None) == ("result" not in answer):
        yield "FAIL", "there is not exactly one of `result` and `error`", _RPC_SHAPE
    elif error is None:
        yield from _of_result(binding, question, answer["result"])
    else:
        yield from _of_rpc_error(binding, question, as_object(error))


def _of_rpc_error(binding: Binding, question: Question, error: dict[str, Any]) -> Iterator[_Fault]:
    code, data = error.get("code"), error.get("data")
    if not isinstance(code, int) or not isinstance(error.get("message"), str):
        yield "FAIL", "the error has no code or no message", _RPC_ERROR
        return
    if code not in [each.code for each in question.right.errors]:
        right = " or ".join(str(each.code) for each in question.right.errors)
        if question.right.result:
            right = f"a result or {right}" if right else "a result"
        yield question.wrong, f"{code} ({error['message']!r}) instead of {right}", question.right.rule
    if binding.dialect.row.errors.typed and data is not None and not _typed(data):
        yield "warn", f"the `data` of the error is {str(data)[:80]}", _RPC_DETAILS


def _of_rest(binding: Binding, question: Question, reply: Reply) -> Iterator[_Fault]:
    if reply.kind not in ("application/a2a+json", "application/json", "text/event-stream"):
        yield "warn", f"the answer is {reply.kind or 'without a content type'}", _REST_MEDIA
    if reply.status < 300:
        yield from _of_result(binding, question, reply.json())
        return
    statuses = {status_of(each()).http for each in question.right.errors}
    if reply.status not in statuses:
        right = " or ".join(map(str, sorted(statuses))) or "a result"
        yield question.wrong, f"HTTP {reply.status} instead of {right}", question.right.rule
    elif binding.dialect.row.errors.typed:
        yield from _of_status(question, reply)


def _of_status(question: Question, reply: Reply) -> Iterator[_Fault]:
    error: object = as_object(reply.json()).get("error")
    status = as_object(error)
    if not isinstance(error, dict):
        yield "FAIL", "the body has no `error` object", _REST_ERROR
        return
    if status.get("code") != reply.status or not isinstance(status.get("message"), str):
        yield "FAIL", "`error.code` or `error.message` is missing or wrong", _REST_ERROR
    # Only A2A's own errors have a reason that is prescribed.
    own = [each.reason for each in question.right.errors if -32099 <= each.code <= -32001]
    reason = _reason(status.get("details"))
    if own and reason not in own:
        yield "FAIL", f"the ErrorInfo says {reason or 'nothing'} instead of {' or '.join(own)}", _REST_INFO


def _reason(details: object) -> str:
    for each in cast("list[object]", details) if isinstance(details, list) else ():
        info = as_object(each)
        if str(info.get("@type", "")).endswith("google.rpc.ErrorInfo") and info.get("domain") == DOMAIN:
            return str(info.get("reason", ""))
    return ""


def _of_result(binding: Binding, question: Question, result: Any) -> Iterator[_Fault]:
    if not question.right.result or question.operation is None:
        yield "FAIL", "answered as if all were well", question.right.rule
        return
    try:
        binding.dialect.read_result(question.operation, result)
    except e.DragomanError as error:
        yield "FAIL", str(error), question.right.rule
        return
    if question.operation is Operation.LIST:
        members = as_object(result)
        missing = [name for name in ("tasks", "nextPageToken", "pageSize", "totalSize") if name not in members]
        if missing:
            yield "FAIL", f"{', '.join(missing)} missing", _LIST_SHAPE
        if len(members.get("tasks") or ()) > 1:
            yield "FAIL", f"{len(members['tasks'])} tasks came", question.right.rule


def _typed(data: object) -> bool:
    entries = cast("list[object]", data) if isinstance(data, list) else None
    return entries is not None and all(isinstance(each, dict) and "@type" in each for each in entries)
