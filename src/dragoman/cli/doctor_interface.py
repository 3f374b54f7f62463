"""One interface of an agent: every operation that starts no work, and requests that are wrong on purpose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from statistics import median
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dragoman.auth.outbound.requirement import declared
from dragoman.cli.doctor_answers import Question, answered, faults_of
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
from dragoman.stores.sqlite.health import Finding

if TYPE_CHECKING:
    from dragoman.cli.doctor_probe import Probe, Reply
    from dragoman.client.discovery import Interface
    from dragoman.model.card import AgentCard
    from dragoman.model.operation import Request

SLOW = 2.0
_NOT_SPOKEN = "99.0"
_CAPABILITY = "A2A 1.0, 3.3.4: what the card does not offer is refused with"
_UNKNOWN_TASK = "A2A 1.0, 3.3.2 and 5.4: a task that does not exist is TaskNotFoundError, -32001 or HTTP 404"
_CREDENTIALS = "A2A 1.0, 7.3: what callers must present is on the card, in securitySchemes"
_CHALLENGE = "A2A 1.0, 7.4: a refusal says what is wanted, over HTTP in WWW-Authenticate"
_ONE_PAGE = "A2A 1.0, 3.1.4: ListTasks gives at most pageSize tasks"
_NO_METHOD = "JSON-RPC 2.0, 5.1: a method that does not exist is -32601"
_NO_PATH = "A2A 1.0, 5.4: a path that does not exist is HTTP 404"
_NO_JSON = "A2A 1.0, 5.4 and 9.5: what is not JSON is -32700, or HTTP 400"
_NO_VERSION = "A2A 1.0, 3.6.2: a version that is not spoken is VersionNotSupportedError, -32009"
_MEDIA = "Advice: a body that is not declared as JSON is refused, so that no web page can send one unasked"


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

    async def findings(self) -> AsyncIterator[Finding]:
        """What is found, in the order it is looked at. An interface that answers nothing is left after one question."""
        yield Finding("ok", self.check, f"at {self._binding.url}")
        try:
            first, *others = self._questions()
            reply, request_id = await self._asked(*first)
            if reply.status in (401, 403):
                for finding in self._refused(reply):
                    yield finding
                return
            faults = list(self._judged(first[0], reply, request_id))
            for finding in faults:
                yield finding
            if _is_no_json(reply):
                return
            for question, request in others:
                reply, request_id = await self._asked(question, request)
                for finding in self._judged(question, reply, request_id):
                    yield finding
            for question, request, request_id in self._wrong_on_purpose():
                reply = await self._ask(request)
                for finding in self._judged(question, reply, request_id):
                    yield finding
            yield await self._undeclared()
            if not self._rpc:
                yield await self._nowhere()
        except e.DragomanError as error:
            yield Finding(
                "FAIL", self.check, str(error), "A2A 1.0, 8.3.1: an interface on the card can be called there"
            )
            return
        yield self._latency()

    # -- asking ------------------------------------------------------------------------------------------------------

    async def _ask(self, request: HttpRequest) -> Reply:
        reply = await self._probe.ask(request)
        self._times.append(reply.seconds)
        return reply

    async def _asked(self, question: Question, request: Request) -> tuple[Reply, object]:
        assert question.operation is not None
        http = self._spelled(question.operation, request)
        sent = msgspec.json.decode(http.body).get("id") if self._rpc and http.body else None
        return await self._ask(http), sent

    def _spelled(self, operation: Operation, request: Request) -> HttpRequest:
        return self._binding.request(operation, replace(request, tenant=self._tenant) if self._tenant else request)

    def _judged(self, question: Question, reply: Reply, request_id: object) -> list[Finding]:
        if reply.status in (401, 403):
            return self._refused(reply, question.what)
        faults = faults_of(self._binding, question, reply, request_id)
        if not faults:
            return [Finding("ok", self.check, f"{question.what}: {answered(reply)}")]
        return [Finding(fault.level, self.check, fault.says, fault.rule) for fault in faults]

    def _refused(self, reply: Reply, what: str = "every operation") -> list[Finding]:
        if reply.status == 401 and not declared(self._card):
            says = f"{what}: HTTP 401, and the card names no way to authenticate"
            return [Finding("FAIL", self.check, says, _CREDENTIALS)]
        says = f"{what}: HTTP {reply.status}, so it is not checked"
        hint = "put a token into DRAGOMAN_TOKEN, or name its variable with --token-env"
        found = [Finding("warn", self.check, says, hint)]
        if reply.status == 401 and not reply.headers.get("WWW-Authenticate"):
            found.append(Finding("warn", self.check, f"{what}: HTTP 401 without WWW-Authenticate", _CHALLENGE))
        return found

    def _latency(self) -> Finding:
        middle = median(self._times)
        says = f"{1000 * middle:.0f} ms, the median of {len(self._times)} answers"
        if middle > SLOW:
            return Finding("warn", self.check, says, "Advice: what starts no work is answered at once")
        return Finding("ok", self.check, says)

    # -- what starts no work -----------------------------------------------------------------------------------------

    def _questions(self) -> list[tuple[Question, Request]]:
        task = f"dragoman-doctor-{new_id()}"
        asked: list[tuple[Question, Request]] = [
            (self._about_unknown(Operation.GET), GetTaskRequest(task)),
            (self._about_unknown(Operation.CANCEL), CancelTaskRequest(task)),
            (self._subscribing(), SubscribeToTaskRequest(task)),
            (self._of_push(Operation.LIST_PUSH), ListPushConfigsRequest(task)),
            (self._of_push(Operation.GET_PUSH), GetPushConfigRequest(task, "none")),
            (self._of_push(Operation.DELETE_PUSH), GetPushConfigRequest(task, "none")),
            (self._extended(), GetExtendedAgentCardRequest()),
        ]
        if self._modern:
            listing = Question("ListTasks, one a page", _ONE_PAGE, (), result=True, operation=Operation.LIST)
            asked.insert(1, (listing, ListTasksRequest(page_size=1)))
        return [(question, request) for question, request in asked if self._has(question.operation, request)]

    def _has(self, operation: Operation | None, request: Request) -> bool:
        """True when this version has the operation at all."""
        assert operation is not None
        try:
            self._binding.request(operation, request)
        except e.MethodNotFound:
            return False
        return True

    def _about_unknown(self, operation: Operation) -> Question:
        what = f"{operation} of an unknown task"
        return Question(what, _UNKNOWN_TASK, (e.TaskNotFound,), operation=operation, strict=self._modern)

    def _subscribing(self) -> Question:
        what = f"{Operation.SUBSCRIBE} to an unknown task"
        if self._card.capabilities.streaming:
            return Question(what, _UNKNOWN_TASK, (e.TaskNotFound,), operation=Operation.SUBSCRIBE, strict=self._modern)
        rule = f"{_CAPABILITY} UnsupportedOperationError, -32004, here for streaming"
        return self._not_offered(what, rule, e.UnsupportedOperation, Operation.SUBSCRIBE)

    def _of_push(self, operation: Operation) -> Question:
        what = f"{operation} of an unknown task"
        if not self._card.capabilities.push_notifications:
            rule = f"{_CAPABILITY} PushNotificationNotSupportedError, -32003, here for webhooks"
            return self._not_offered(what, rule, e.PushNotificationNotSupported, operation)
        # To remove what is not there may be right as well: it can be done any number of times.
        removes = operation is Operation.DELETE_PUSH
        right: tuple[type[e.A2AError], ...] = (e.TaskNotFound,) if self._modern else (e.TaskNotFound, e.MethodNotFound)
        return Question(what, _UNKNOWN_TASK, right, result=removes, operation=operation, strict=self._modern)

    def _extended(self) -> Question:
        operation = Operation.EXTENDED_CARD
        if self._card.capabilities.extended_agent_card:
            rule = "A2A 1.0, 3.1.11: the extended card, or ExtendedAgentCardNotConfiguredError, -32007"
            return Question(operation, rule, (e.ExtendedAgentCardNotConfigured,), result=True, operation=operation)
        rule = f"{_CAPABILITY} UnsupportedOperationError, -32004, here for the extended card"
        return self._not_offered(str(operation), rule, e.UnsupportedOperation, operation)

    def _not_offered(self, what: str, rule: str, error: type[e.A2AError], operation: Operation) -> Question:
        right: tuple[type[e.A2AError], ...] = (error,)
        if not self._modern:
            # Before 1.0 an agent without the capability need not know the operation, nor tell one card from the other.
            others = (e.UnsupportedOperation, e.MethodNotFound, e.TaskNotFound, e.ExtendedAgentCardNotConfigured)
            right += tuple(each for each in others if each is not error)
        return Question(what, rule, right, operation=operation, strict=self._modern)

    # -- what is wrong on purpose ------------------------------------------------------------------------------------

    def _wrong_on_purpose(self) -> list[tuple[Question, HttpRequest, object]]:
        known = self._spelled(Operation.GET, GetTaskRequest(f"dragoman-doctor-{new_id()}"))
        made = self._of_rpc(known) if self._rpc else self._of_rest(known)
        if self._modern:
            headers = {**known.headers, VERSION_HEADER: _NOT_SPOKEN}
            request = HttpRequest(known.method, known.url, headers, known.body)
            question = Question(f"{VERSION_HEADER} {_NOT_SPOKEN}", _NO_VERSION, (e.VersionNotSupported,))
            made.append((question, request, _id_of(known) if self._rpc else None))
        return made

    def _of_rpc(self, known: HttpRequest) -> list[tuple[Question, HttpRequest, object]]:
        unknown = b'{"jsonrpc":"2.0","id":"u","method":"DragomanDoctor","params":{}}'
        return [
            (Question("an unknown method", _NO_METHOD, (e.MethodNotFound,)), _posted(known, known.url, unknown), "u"),
            (Question("broken JSON", _NO_JSON, (e.ParseError,)), _posted(known, known.url, b'{"jsonrpc":"2.0",'), None),
        ]

    def _of_rest(self, known: HttpRequest) -> list[tuple[Question, HttpRequest, object]]:
        request = _posted(known, f"{known.url.rpartition('/tasks/')[0]}/message:send", b'{"message":')
        return [(Question("broken JSON", _NO_JSON, (e.ParseError,)), request, None)]

    async def _undeclared(self) -> Finding:
        """A body that does not say it is JSON."""
        request = self._spelled(Operation.CANCEL, CancelTaskRequest(f"dragoman-doctor-{new_id()}"))
        request.headers["Content-Type"] = "text/plain"
        reply = await self._ask(request)
        refused = reply.status in (400, 403, 406, 415)
        if not refused and self._rpc and not _is_no_json(reply):
            error = msgspec.json.decode(reply.body).get("error")
            refused = error is not None and error.get("code") in (-32005, -32600, -32700)
        if refused:
            return Finding("ok", self.check, f"a body that is text/plain: {answered(reply)}")
        return Finding("warn", self.check, "a body that is text/plain is read all the same", _MEDIA)

    async def _nowhere(self) -> Finding:
        """A path that does not exist. What its body looks like is nobody's rule."""
        base = self._spelled(Operation.GET, GetTaskRequest("x")).url.rpartition("/tasks/")[0]
        reply = await self._ask(HttpRequest("GET", f"{base}/tasks/a/b/c/d"))
        if reply.status in (404, 405):
            return Finding("ok", self.check, f"an unknown path: HTTP {reply.status}")
        return Finding("warn", self.check, f"an unknown path: {reply.shown}", _NO_PATH)


def _posted(like: HttpRequest, url: str, body: bytes) -> HttpRequest:
    return HttpRequest("POST", url, {**like.headers, "Content-Type": "application/json"}, body)


def _id_of(request: HttpRequest) -> object:
    return msgspec.json.decode(request.body or b"{}").get("id")


def _is_no_json(reply: Reply) -> bool:
    try:
        reply.json()
    except ValueError:
        return True
    return False
