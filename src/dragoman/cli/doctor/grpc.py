"""What is particular to the check of a gRPC interface: TLS, health, the package that answers, and status codes."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.cli.doctor.faults import reason_in
from dragoman.cli.doctor.interface import InterfaceChecker
from dragoman.cli.doctor.probe import Expectation, Fault, Probe
from dragoman.cli.doctor.tls import check_tls
from dragoman.dialects.errors import status_of
from dragoman.dialects.protobuf.grpc import HEALTH
from dragoman.dialects.table import GRPC_ROWS
from dragoman.model import error as e
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest
from dragoman.net.grpc.frames import message_of, read_frames, write_message
from dragoman.net.grpc.status import status_name
from dragoman.stores.administration import HealthFinding
from dragoman.transports.grpc.codec import MalformedMessage, codec_of

if TYPE_CHECKING:
    import ssl

    from dragoman.cli.doctor.remote import ProbeClient, ProbeResponse
    from dragoman.client.interface import Interface
    from dragoman.model.card import AgentCard
    from dragoman.transports.binding import Binding

_CALLABLE = "A2A 1.0, 8.3.1: an interface on the card can be called there"
_INFO = "A2A 1.0, 10.6: an error of A2A's own has an ErrorInfo in `grpc-status-details-bin` that says the reason"
_CARD = "A2A 0.3, 7.10: GetAgentCard gives the card"
_NO_METHOD = "gRPC: a method that does not exist is UNIMPLEMENTED"
_NO_MESSAGE = "Advice: a request that is no message of its type is INVALID_ARGUMENT"
# 1.0.0 had the one, 1.0.1 has the other.
_FORMER, _CURRENT = "UNIMPLEMENTED", "FAILED_PRECONDITION"
_RENAMED = f"A2A 1.0.1, 5.4: what an agent does not support is {_CURRENT}, which was {_FORMER} in 1.0.0"
_TLS_THERE = "callers take TLS for host:port if the card came over https: serve gRPC with TLS too"
_TLS_MISSING = "callers take TLS for host:port only if the card came over https: serve the card over https too"


class GrpcChecker(InterfaceChecker):
    """Sends all probes to one interface, over gRPC."""

    transport = "grpc"

    def __init__(
        self, client: ProbeClient, interface: Interface, card: AgentCard, verification: bool | ssl.SSLContext
    ) -> None:
        super().__init__(client, interface, card)
        self._verification = verification

    async def _check_access(self) -> AsyncIterator[HealthFinding]:
        valid = self._unknown_task()
        try:
            yield await self._check_security(valid)
            yield await _check_health(self._client, self.check, valid)
            response = await self._client.send(valid)
            if status_of_call(response)[0] == "UNIMPLEMENTED":
                yield await _check_packages(self._client, self.check, valid)
        except e.CannotConnect as error:
            yield HealthFinding("FAIL", self.check, str(error), await _other_security(self._client, valid) or _CALLABLE)

    async def _check_security(self, valid: HttpRequest) -> HealthFinding:
        parts = urlsplit(valid.url)
        scheme = "https" if parts.scheme == "grpcs" else "http"
        level, _, says, do = await check_tls(f"{scheme}://{parts.netloc}", self._verification)
        # An untrusted certificate is told when the call fails.
        return HealthFinding("warn" if level == "FAIL" else level, self.check, f"TLS: {says}", do)

    def _harmless_probes(self) -> Iterator[Probe]:
        return map(self._adapt, super()._harmless_probes())

    def _adapt(self, probe: Probe) -> Probe:
        if probe.operation is Operation.EXTENDED_CARD and not self._is_modern:
            # One method for both cards: without credentials it gives the public one.
            return probe._replace(label="GetAgentCard", expected=Expectation(_CARD, (), result=True))
        if not self._card.version:
            # The server was given by its gRPC address and shows no card: nobody knows what it offers.
            errors = (*probe.expected.errors, e.UnsupportedOperation, e.PushNotificationNotSupported)
            return probe._replace(expected=probe.expected._replace(errors=errors))
        return probe

    def _invalid_probes(self) -> Iterator[Probe]:
        valid = self._unknown_task()
        service = urlsplit(valid.url).path.split("/")[1]
        unknown = Expectation(_NO_METHOD, (e.MethodNotFound,))
        yield Probe("an unknown method", _request(valid, f"/{service}/DragomanDoctor"), unknown)
        broken = HttpRequest("POST", valid.url, dict(valid.headers), write_message(b"\xff"))
        yield Probe("a broken message", broken, Expectation(_NO_MESSAGE, (e.InvalidRequest,), strict=False))
        yield from self._version_probes(valid)

    def _faults(self, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
        return grpc_faults(self._binding, probe, response)

    def _describe(self, response: ProbeResponse) -> str:
        name, _ = status_of_call(response)
        return "a result" if name == "OK" else name

    def _describe_status(self, response: ProbeResponse) -> str:
        return status_of_call(response)[0]

    def _is_readable(self, response: ProbeResponse) -> bool:
        return True

    async def _check_more(self) -> AsyncIterator[HealthFinding]:
        return
        yield


# -- can it be called ------------------------------------------------------------------------------------------------


async def _check_health(client: ProbeClient, check: str, valid: HttpRequest) -> HealthFinding:
    """Ask for the health of the whole server. The service is optional."""
    response = await client.send(_request(valid, f"/{HEALTH}.Health/Check"))
    name, trailers = status_of_call(response)
    if name == "OK":
        status = _health_in(response.body)
        if status == "SERVING":
            return HealthFinding("ok", check, "health: SERVING")
        return HealthFinding("warn", check, f"health: {status}", "the server stops, or misses something: see its log")
    if name == "UNIMPLEMENTED":
        return HealthFinding("ok", check, "health: not offered, which is optional")
    return HealthFinding("warn", check, f"health: {name}: {message_of(trailers)}")


async def _check_packages(client: ProbeClient, check: str, valid: HttpRequest) -> HealthFinding:
    """Look for another package, where that of the interface is not served."""
    own = urlsplit(valid.url).path.split("/")[1]
    for row in GRPC_ROWS:
        if row.service != own:
            response = await client.send(_request(valid, f"/{row.service}/GetTask"))
            if status_of_call(response)[0] != "UNIMPLEMENTED":
                says = f"{own} is not served there, but {row.service} is"
                return HealthFinding("FAIL", check, says, f"the card should say protocolVersion {row.version}")
    return HealthFinding("FAIL", check, f"{own} is not served there", _CALLABLE)


async def _other_security(client: ProbeClient, valid: HttpRequest) -> str:
    """Return what to do if the interface can be reached with TLS instead of without it, or the other way around."""
    secure = valid.url.startswith("grpcs:")
    swapped = valid.url.replace("grpcs:", "grpc:", 1) if secure else valid.url.replace("grpc:", "grpcs:", 1)
    try:
        await client.send(_request(valid, f"/{HEALTH}.Health/Check", swapped))
    except e.CannotConnect as error:
        # Whoever shows a certificate that is not trusted speaks TLS.
        return _TLS_MISSING if not secure and error.reason == "TLS" and "trusted" in str(error) else ""
    return f"it answers without TLS: {_TLS_THERE}" if secure else f"it answers with TLS: {_TLS_MISSING}"


def _request(valid: HttpRequest, path: str, url: str = "") -> HttpRequest:
    parts = urlsplit(url or valid.url)
    return HttpRequest("POST", f"{parts.scheme}://{parts.netloc}{path}", dict(valid.headers), write_message(b""))


# -- responses -------------------------------------------------------------------------------------------------------


def status_of_call(response: ProbeResponse) -> tuple[str, Mapping[str, str]]:
    """Return the name of a call's status, and the trailers: those of a call that failed are its headers."""
    trailers = response.headers
    if "grpc-status" not in trailers:
        trailers = next((frame.trailers() for frame in read_frames(response.body) if frame.is_trailers), trailers)
    return status_name(trailers.get("grpc-status", "0")), trailers


def grpc_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
    """Yield everything that is wrong with a response."""
    name, trailers = status_of_call(response)
    if name == "OK":
        yield from _result_faults(binding, probe, response)
        return
    reason, own = _reason_of(trailers), [each for each in probe.expected.errors if -32099 <= each.code <= -32001]
    names = {status_of(each()).name for each in probe.expected.errors}
    if name not in names:
        if name == _FORMER and _CURRENT in names and reason in [each.reason for each in own]:
            yield "warn", f"{name} instead of {_CURRENT}", _RENAMED
            return
        right = " or ".join(sorted(names)) or "a result"
        yield probe.level, f"{name} ({message_of(trailers)!r}) instead of {right}", probe.expected.rule
    elif own and binding.dialect.row.errors.typed and reason not in [each.reason for each in own]:
        right = " or ".join(each.reason for each in own)
        yield "FAIL", f"the ErrorInfo says {reason or 'nothing'} instead of {right}", _INFO


def _result_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
    if not probe.expected.result or probe.operation is None:
        yield "FAIL", "answered as if all were well", probe.expected.rule
        return
    try:
        binding.read_result(probe.operation, response.status, response.headers, response.body)
    except e.DragomanError as error:
        yield "FAIL", str(error), probe.expected.rule


def _reason_of(trailers: Mapping[str, str]) -> str:
    text = trailers.get("grpc-status-details-bin", "")
    try:
        status = codec_of("google.rpc").decode("Status", b64decode(text + "=" * (-len(text) % 4)))
    except (MalformedMessage, binascii.Error):
        return ""
    return reason_in(status.get("details"))


def _health_in(body: bytes) -> str:
    message = next((frame.data for frame in read_frames(body) if not frame.is_trailers), b"")
    try:
        return str(codec_of(HEALTH).decode("HealthCheckResponse", message).get("status", "UNKNOWN"))
    except MalformedMessage:
        return "UNKNOWN"
