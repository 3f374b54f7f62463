"""Probes one interface of an agent: every operation that starts no work, and requests that are invalid on purpose.

Each response is compared with the specification; a finding names the rule that is broken.
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
from dragoman.stores.administration import HealthFinding

if TYPE_CHECKING:
    from dragoman.cli.doctor.remote import ProbeClient, ProbeResponse
    from dragoman.client.discovery import Interface
    from dragoman.model.card import AgentCard
    from dragoman.model.operation import Request
    from dragoman.transports.binding import Binding

SLOW_SECONDS = 2.0
_UNSUPPORTED_VERSION = "99.0"
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
# Level, problem, and the rule that it breaks.
_Fault = tuple[Literal["warn", "FAIL"], str, str]


class Expectation(NamedTuple):
    """The responses that a rule allows: one of these errors, or a result where `result` is True."""

    rule: str
    errors: _Errors
    result: bool = False
    strict: bool = True  # False where the version only recommends the error


class Probe(NamedTuple):
    """A request to send, and the response that is expected."""

    label: str
    request: HttpRequest
    expected: Expectation
    operation: Operation | None = None

    @property
    def level(self) -> Literal["warn", "FAIL"]:
        """The level of the finding for an unexpected response."""
        return "FAIL" if self.expected.strict else "warn"

    @property
    def id(self) -> object:
        """The id of a JSON-RPC request; None when it cannot be read."""
        try:
            return msgspec.json.decode(self.request.body or b"{}").get("id")
        except msgspec.DecodeError:
            return None


class InterfaceChecker:
    """Sends all probes to one interface. `card` says what it offers."""

    def __init__(self, client: ProbeClient, interface: Interface, card: AgentCard) -> None:
        self._client = client
        self._binding = interface.binding
        self._tenant = interface.tenant
        self._card = card
        self._times: list[float] = []
        self._rpc = self._binding.name == "JSONRPC"
        self.version = self._binding.dialect.version
        self.check = f"{'jsonrpc' if self._rpc else 'rest'} {self.version}"
        self._is_modern = self._binding.dialect.row.errors.typed

    async def findings(self) -> AsyncIterator[HealthFinding]:
        """Yield the findings. If the first probe is refused or gets no JSON, no other is sent."""
        yield HealthFinding("ok", self.check, f"at {self._binding.url}")
        try:
            for number, probe in enumerate([*self._harmless_probes(), *self._invalid_probes()]):
                response = await self._send(probe.request)
                refused = response.status in (401, 403)
                label = probe.label if number else "every operation"
                for finding in (
                    self._refusal_findings(response, label) if refused else self._check_response(probe, response)
                ):
                    yield finding
                if not number and (refused or not response.is_json):
                    return
            yield await self._check_media_type()
            if not self._rpc:
                yield await self._check_unknown_path()
        except e.DragomanError as error:
            yield HealthFinding("FAIL", self.check, str(error), _CALLABLE)
            return
        yield self._latency_finding()

    async def _send(self, request: HttpRequest) -> ProbeResponse:
        response = await self._client.send(request)
        self._times.append(response.seconds)
        return response

    def _build_request(self, operation: Operation, request: Request) -> HttpRequest:
        return self._binding.build_request(
            operation, replace(request, tenant=self._tenant) if self._tenant else request
        )

    def _check_response(self, probe: Probe, response: ProbeResponse) -> list[HealthFinding]:
        faults = find_faults(self._binding, probe, response)
        findings = [HealthFinding(level, self.check, f"{probe.label}: {says}", rule) for level, says, rule in faults]
        return findings or [HealthFinding("ok", self.check, f"{probe.label}: {describe_response(response)}")]

    def _refusal_findings(self, response: ProbeResponse, label: str) -> list[HealthFinding]:
        if response.status == 401 and not declared_schemes(self._card):
            says = f"{label}: HTTP 401, and the card names no way to authenticate"
            return [HealthFinding("FAIL", self.check, says, _CREDENTIALS)]
        says = f"{label}: HTTP {response.status}, so it is not checked"
        hint = "put a token into DRAGOMAN_TOKEN, or name its variable with --token-env"
        findings = [HealthFinding("warn", self.check, says, hint)]
        if response.status == 401 and not response.headers.get("WWW-Authenticate"):
            findings.append(
                HealthFinding("warn", self.check, f"{label}: HTTP 401 without WWW-Authenticate", _CHALLENGE)
            )
        return findings

    def _latency_finding(self) -> HealthFinding:
        middle = median(self._times)
        says = f"{1000 * middle:.0f} ms, the median of {len(self._times)} answers"
        if middle > SLOW_SECONDS:
            return HealthFinding("warn", self.check, says, "Advice: what starts no work is answered at once")
        return HealthFinding("ok", self.check, says)

    # -- probes that start no work -----------------------------------------------------------------------------------

    def _harmless_probes(self) -> Iterator[Probe]:
        """Yield a probe for every operation of this version that starts no work."""
        task, capabilities = f"dragoman-doctor-{new_id()}", self._card.capabilities
        # Before 1.0 an agent without the capability need not know the operation, nor tell one card from the other.
        old = (e.UnsupportedOperation, e.MethodNotFound, e.TaskNotFound, e.ExtendedAgentCardNotConfigured)
        unknown = push = streaming = Expectation(_UNKNOWN_TASK, (e.TaskNotFound,), strict=self._is_modern)
        extended = Expectation(_EXTENDED, (e.ExtendedAgentCardNotConfigured,), result=True)
        unsupported: _Errors = (e.UnsupportedOperation,) if self._is_modern else old
        if not capabilities.streaming:
            streaming = Expectation(_NO_STREAMING, unsupported, strict=self._is_modern)
        if not capabilities.extended_agent_card:
            extended = Expectation(_NO_EXTENDED, unsupported, strict=self._is_modern)
        if not capabilities.push_notifications:
            refused: _Errors = (e.PushNotificationNotSupported, *(() if self._is_modern else old))
            push = Expectation(_NO_PUSH, refused, strict=self._is_modern)
        elif not self._is_modern:
            push = push._replace(errors=(e.TaskNotFound, e.MethodNotFound))
        # Deleting a missing webhook may succeed as well: the operation is idempotent.
        removed = push._replace(result=bool(capabilities.push_notifications))
        webhook, of_unknown = GetPushConfigRequest(task, "none"), " of an unknown task"
        operations: list[tuple[Operation, Request, str, Expectation]] = [
            (Operation.GET, GetTaskRequest(task), of_unknown, unknown),
            (Operation.LIST, ListTasksRequest(page_size=1), ", one a page", Expectation(_ONE_PAGE, (), result=True)),
            (Operation.CANCEL, CancelTaskRequest(task), of_unknown, unknown),
            (Operation.SUBSCRIBE, SubscribeToTaskRequest(task), " to an unknown task", streaming),
            (Operation.LIST_PUSH, ListPushConfigsRequest(task), of_unknown, push),
            (Operation.GET_PUSH, webhook, of_unknown, push),
            (Operation.DELETE_PUSH, webhook, of_unknown, removed),
            (Operation.EXTENDED_CARD, GetExtendedAgentCardRequest(), "", extended),
        ]
        for operation, request, suffix, expected in operations:
            if operation is Operation.LIST and not self._is_modern:
                continue
            try:
                http = self._build_request(operation, request)
            except e.MethodNotFound:
                continue
            yield Probe(f"{operation}{suffix}", http, expected, operation)

    # -- invalid requests --------------------------------------------------------------------------------------------

    def _invalid_probes(self) -> Iterator[Probe]:
        valid = self._build_request(Operation.GET, GetTaskRequest(f"dragoman-doctor-{new_id()}"))
        headers = {**valid.headers, "Content-Type": "application/json"}
        if self._rpc:
            body = b'{"jsonrpc":"2.0","id":"u","method":"DragomanDoctor","params":{}}'
            request = HttpRequest("POST", valid.url, dict(headers), body)
            yield Probe("an unknown method", request, Expectation(_NO_METHOD, (e.MethodNotFound,)))
            broken = HttpRequest("POST", valid.url, headers, b'{"jsonrpc":"2.0",')
        else:
            url = f"{valid.url.rpartition('/tasks/')[0]}/message:send"
            broken = HttpRequest("POST", url, headers, b'{"message":')
        yield Probe("broken JSON", broken, Expectation(_NO_JSON, (e.ParseError,)))
        if self._is_modern:
            headers = {**valid.headers, VERSION_HEADER: _UNSUPPORTED_VERSION}
            request = HttpRequest(valid.method, valid.url, headers, valid.body)
            yield Probe(
                f"{VERSION_HEADER} {_UNSUPPORTED_VERSION}", request, Expectation(_NO_VERSION, (e.VersionNotSupported,))
            )

    async def _check_media_type(self) -> HealthFinding:
        """Check how a body without a JSON content type is handled."""
        request = self._build_request(Operation.CANCEL, CancelTaskRequest(f"dragoman-doctor-{new_id()}"))
        request.headers["Content-Type"] = "text/plain"
        response = await self._send(request)
        refused = response.status in (400, 403, 406, 415)
        if not refused and self._rpc and response.is_json:
            refused = as_object(as_object(response.json()).get("error")).get("code") in (-32005, -32600, -32700)
        if refused:
            return HealthFinding("ok", self.check, f"a body that is text/plain: {describe_response(response)}")
        return HealthFinding("warn", self.check, "a body that is text/plain is read all the same", _MEDIA)

    async def _check_unknown_path(self) -> HealthFinding:
        """Check the status of a path that does not exist. No rule says what its body looks like."""
        base = self._build_request(Operation.GET, GetTaskRequest("x")).url.rpartition("/tasks/")[0]
        response = await self._send(HttpRequest("GET", f"{base}/tasks/a/b/c/d"))
        if response.status in (404, 405):
            return HealthFinding("ok", self.check, f"an unknown path: HTTP {response.status}")
        return HealthFinding("warn", self.check, f"an unknown path: {response.summary}", _NO_PATH)


# -- responses -------------------------------------------------------------------------------------------------------


def find_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[_Fault]:
    """Yield everything that is wrong with a response."""
    rpc = binding.name == "JSONRPC"
    if response.is_json:
        yield from _rpc_faults(binding, probe, response) if rpc else _rest_faults(binding, probe, response)
        return
    start = " ".join(response.body[:60].decode("utf-8", "replace").split())
    yield "FAIL", f"{response.summary} instead of JSON: {start!r}", _RPC_MEDIA if rpc else _REST_MEDIA


def describe_response(response: ProbeResponse) -> str:
    """Describe a correct response in a few words."""
    if not response.is_json:
        return response.summary
    if response.status >= 300:
        return f"HTTP {response.status}"
    error: object = as_object(response.json()).get("error")
    code = as_object(error).get("code")
    return str(code) if isinstance(error, dict) else "a result"


def _rpc_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[_Fault]:
    envelope = as_object(response.json())
    if not envelope and not isinstance(response.json(), dict):
        yield "FAIL", "the answer is no JSON object", _RPC_SHAPE
        return
    if envelope.get("jsonrpc") != "2.0":
        yield "FAIL", f"`jsonrpc` is {envelope.get('jsonrpc')!r}", _RPC_SHAPE
    if envelope.get("id") != probe.id:
        yield "FAIL", f"the id is {envelope.get('id')!r} and not {probe.id!r}", _RPC_SHAPE
    if response.media_type not in ("application/json", "text/event-stream"):
        yield "warn", f"the answer is {response.media_type or 'without a content type'}", _RPC_MEDIA
    error = envelope.get("error")
    if (error is None) == ("result" not in envelope):
        yield "FAIL", "there is not exactly one of `result` and `error`", _RPC_SHAPE
    elif error is None:
        yield from _result_faults(binding, probe, envelope["result"])
    else:
        yield from _rpc_error_faults(binding, probe, as_object(error))


def _rpc_error_faults(binding: Binding, probe: Probe, error: dict[str, Any]) -> Iterator[_Fault]:
    code, data = error.get("code"), error.get("data")
    if not isinstance(code, int) or not isinstance(error.get("message"), str):
        yield "FAIL", "the error has no code or no message", _RPC_ERROR
        return
    if code not in [each.code for each in probe.expected.errors]:
        right = " or ".join(str(each.code) for each in probe.expected.errors)
        if probe.expected.result:
            right = f"a result or {right}" if right else "a result"
        yield probe.level, f"{code} ({error['message']!r}) instead of {right}", probe.expected.rule
    if binding.dialect.row.errors.typed and data is not None and not _is_typed(data):
        yield "warn", f"the `data` of the error is {str(data)[:80]}", _RPC_DETAILS


def _rest_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[_Fault]:
    if response.media_type not in ("application/a2a+json", "application/json", "text/event-stream"):
        yield "warn", f"the answer is {response.media_type or 'without a content type'}", _REST_MEDIA
    if response.status < 300:
        yield from _result_faults(binding, probe, response.json())
        return
    statuses = {status_of(each()).http for each in probe.expected.errors}
    if response.status not in statuses:
        right = " or ".join(map(str, sorted(statuses))) or "a result"
        yield probe.level, f"HTTP {response.status} instead of {right}", probe.expected.rule
    elif binding.dialect.row.errors.typed:
        yield from _status_faults(probe, response)


def _status_faults(probe: Probe, response: ProbeResponse) -> Iterator[_Fault]:
    error: object = as_object(response.json()).get("error")
    status = as_object(error)
    if not isinstance(error, dict):
        yield "FAIL", "the body has no `error` object", _REST_ERROR
        return
    if status.get("code") != response.status or not isinstance(status.get("message"), str):
        yield "FAIL", "`error.code` or `error.message` is missing or wrong", _REST_ERROR
    # The specification prescribes a reason for A2A's own errors only.
    own = [each.reason for each in probe.expected.errors if -32099 <= each.code <= -32001]
    reason = _reason(status.get("details"))
    if own and reason not in own:
        yield "FAIL", f"the ErrorInfo says {reason or 'nothing'} instead of {' or '.join(own)}", _REST_INFO


def _reason(details: object) -> str:
    for each in cast("list[object]", details) if isinstance(details, list) else ():
        info = as_object(each)
        if str(info.get("@type", "")).endswith("google.rpc.ErrorInfo") and info.get("domain") == DOMAIN:
            return str(info.get("reason", ""))
    return ""


def _result_faults(binding: Binding, probe: Probe, result: Any) -> Iterator[_Fault]:
    if not probe.expected.result or probe.operation is None:
        yield "FAIL", "answered as if all were well", probe.expected.rule
        return
    try:
        binding.dialect.read_result(probe.operation, result)
    except e.DragomanError as error:
        yield "FAIL", str(error), probe.expected.rule
        return
    if probe.operation is Operation.LIST:
        members = as_object(result)
        missing = [name for name in ("tasks", "nextPageToken", "pageSize", "totalSize") if name not in members]
        if missing:
            yield "FAIL", f"{', '.join(missing)} missing", _LIST_SHAPE
        if len(members.get("tasks") or ()) > 1:
            yield "FAIL", f"{len(members['tasks'])} tasks came", probe.expected.rule


def _is_typed(data: object) -> bool:
    entries = cast("list[object]", data) if isinstance(data, list) else None
    return entries is not None and all(isinstance(each, dict) and "@type" in each for each in entries)
