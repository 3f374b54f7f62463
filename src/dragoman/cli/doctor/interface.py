"""Probes one interface of an agent: every operation that starts no work, and requests that are invalid on purpose.

Each response is compared with the specification; a finding names the rule that is broken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.auth.outbound.requirement import declared_schemes
from dragoman.auth.outbound.untrusted import as_object
from dragoman.cli.doctor.faults import describe_response, find_faults
from dragoman.cli.doctor.probe import Errors, Expectation, Fault, Probe
from dragoman.dialects.table import JSONRPC, VERSION_HEADER
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
    from dragoman.client.interface import Interface
    from dragoman.model.card import AgentCard
    from dragoman.model.operation import Request

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


class InterfaceChecker:
    """Sends all probes to one interface, over HTTP. `card` says what it offers."""

    transport = ""

    def __init__(self, client: ProbeClient, interface: Interface, card: AgentCard) -> None:
        self._client = client
        self._binding = interface.binding
        self._tenant = interface.tenant
        self._card = card
        self._times: list[float] = []
        self._rpc = self._binding.name == JSONRPC
        self.version = self._binding.dialect.version
        self.check = f"{self.transport or ('jsonrpc' if self._rpc else 'rest')} {self.version}"
        self._is_modern = self._binding.dialect.row.errors.typed

    async def findings(self) -> AsyncIterator[HealthFinding]:
        """Yield the findings. If the interface cannot be called, or refuses the first probe, no other is sent."""
        yield HealthFinding("ok", self.check, f"at {self._binding.url}")
        try:
            async for finding in self._check_access():
                yield finding
                if finding.level == "FAIL":
                    return
            for number, probe in enumerate([*self._harmless_probes(), *self._invalid_probes()]):
                response = await self._send(probe.request)
                refused = response.status in (401, 403)
                label = probe.label if number else "every operation"
                for finding in (
                    self._refusal_findings(response, label) if refused else self._check_response(probe, response)
                ):
                    yield finding
                if not number and (refused or not self._is_readable(response)):
                    return
            async for finding in self._check_more():
                yield finding
        except e.DragomanError as error:
            yield HealthFinding("FAIL", self.check, str(error), _CALLABLE)
            return
        yield self._latency_finding()

    # -- what differs between transports ------------------------------------------------------------------------------

    async def _check_access(self) -> AsyncIterator[HealthFinding]:
        """Check that the interface can be called at all; a FAIL ends the check. Over HTTP the first probe shows it."""
        return
        yield

    def _invalid_probes(self) -> Iterator[Probe]:
        """Yield requests that have to be refused."""
        valid = self._unknown_task()
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
        yield from self._version_probes(valid)

    def _faults(self, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
        return find_faults(self._binding, probe, response)

    def _describe(self, response: ProbeResponse) -> str:
        return describe_response(response)

    def _describe_status(self, response: ProbeResponse) -> str:
        return f"HTTP {response.status}"

    def _is_readable(self, response: ProbeResponse) -> bool:
        return response.is_json

    async def _check_more(self) -> AsyncIterator[HealthFinding]:
        """Check what no probe can."""
        yield await self._check_media_type()
        if not self._rpc:
            yield await self._check_unknown_path()

    # -- the same for all ---------------------------------------------------------------------------------------------

    async def _send(self, request: HttpRequest) -> ProbeResponse:
        response = await self._client.send(request)
        self._times.append(response.seconds)
        return response

    def _build_request(self, operation: Operation, request: Request) -> HttpRequest:
        return self._binding.build_request(
            operation, replace(request, tenant=self._tenant) if self._tenant else request
        )

    def _check_response(self, probe: Probe, response: ProbeResponse) -> list[HealthFinding]:
        faults = self._faults(probe, response)
        findings = [HealthFinding(level, self.check, f"{probe.label}: {says}", rule) for level, says, rule in faults]
        return findings or [HealthFinding("ok", self.check, f"{probe.label}: {self._describe(response)}")]

    def _refusal_findings(self, response: ProbeResponse, label: str) -> list[HealthFinding]:
        status = self._describe_status(response)
        if response.status == 401 and not declared_schemes(self._card):
            says = f"{label}: {status}, and the card names no way to authenticate"
            return [HealthFinding("FAIL", self.check, says, _CREDENTIALS)]
        says = f"{label}: {status}, so it is not checked"
        hint = "put a token into DRAGOMAN_TOKEN, or name its variable with --token-env"
        findings = [HealthFinding("warn", self.check, says, hint)]
        # Over gRPC nothing says where it would be.
        if response.status == 401 and not self.transport and not response.headers.get("WWW-Authenticate"):
            findings.append(
                HealthFinding("warn", self.check, f"{label}: {status} without WWW-Authenticate", _CHALLENGE)
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
        unsupported: Errors = (e.UnsupportedOperation,) if self._is_modern else old
        if not capabilities.streaming:
            streaming = Expectation(_NO_STREAMING, unsupported, strict=self._is_modern)
        if not capabilities.extended_agent_card:
            extended = Expectation(_NO_EXTENDED, unsupported, strict=self._is_modern)
        if not capabilities.push_notifications:
            refused: Errors = (e.PushNotificationNotSupported, *(() if self._is_modern else old))
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

    def _unknown_task(self) -> HttpRequest:
        """Build a valid request, for a task that does not exist."""
        return self._build_request(Operation.GET, GetTaskRequest(f"dragoman-doctor-{new_id()}"))

    def _version_probes(self, valid: HttpRequest) -> Iterator[Probe]:
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
