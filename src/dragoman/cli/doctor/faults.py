"""Compares the responses of JSON-RPC and REST with the specification; a fault names the rule that is broken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from dragoman.auth.outbound.untrusted import as_object
from dragoman.cli.doctor.probe import Fault, Probe
from dragoman.dialects.errors import DOMAIN, status_of
from dragoman.model import error as e
from dragoman.model.operation import Operation

if TYPE_CHECKING:
    from dragoman.cli.doctor.remote import ProbeResponse
    from dragoman.transports.binding import Binding

_RPC_SHAPE = 'JSON-RPC 2.0, 5: an answer has `jsonrpc` "2.0", the id of the request, and either a result or an error'
_RPC_ERROR = "JSON-RPC 2.0, 5.1: an error has a whole number as `code` and a text as `message`"
_RPC_MEDIA = "A2A 1.0, 9.1: answers over JSON-RPC are application/json"
_RPC_DETAILS = "A2A 1.0, 9.5: the `data` of an error is a list of objects that each have an `@type`"
_REST_ERROR = "A2A 1.0, 11.6: an error is a google.rpc.Status: `error` with `code`, `status`, `message` and `details`"
_REST_INFO = "A2A 1.0, 11.6: an error of A2A's own has an ErrorInfo in its `details` that says the reason"
_REST_MEDIA = "A2A 1.0, 11.1: answers over HTTP+JSON are application/a2a+json"
_LIST_SHAPE = "A2A 1.0, 3.1.4: a list of tasks always has `tasks`, `nextPageToken`, `pageSize` and `totalSize`"


def find_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
    """Yield everything that is wrong with a response."""
    rpc = binding.name == "JSONRPC"
    if response.is_json:
        yield from _rpc_faults(binding, probe, response) if rpc else _rest_faults(binding, probe, response)
        return
    start = " ".join(response.body[:60].decode("utf-8", "replace").split())
    yield "FAIL", f"{response.summary} instead of JSON: {start!r}", _RPC_MEDIA if rpc else _REST_MEDIA


def describe_response(response: ProbeResponse) -> str:
    """Describe a correct response over HTTP in a few words."""
    if not response.is_json:
        return response.summary
    if response.status >= 300:
        return f"HTTP {response.status}"
    error: object = as_object(response.json()).get("error")
    code = as_object(error).get("code")
    return str(code) if isinstance(error, dict) else "a result"


def _rpc_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
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


def _rpc_error_faults(binding: Binding, probe: Probe, error: dict[str, Any]) -> Iterator[Fault]:
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


def _rest_faults(binding: Binding, probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
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


def _status_faults(probe: Probe, response: ProbeResponse) -> Iterator[Fault]:
    error: object = as_object(response.json()).get("error")
    status = as_object(error)
    if not isinstance(error, dict):
        yield "FAIL", "the body has no `error` object", _REST_ERROR
        return
    if status.get("code") != response.status or not isinstance(status.get("message"), str):
        yield "FAIL", "`error.code` or `error.message` is missing or wrong", _REST_ERROR
    # The specification prescribes a reason for A2A's own errors only.
    own = [each.reason for each in probe.expected.errors if -32099 <= each.code <= -32001]
    reason = reason_in(status.get("details"))
    if own and reason not in own:
        yield "FAIL", f"the ErrorInfo says {reason or 'nothing'} instead of {' or '.join(own)}", _REST_INFO


def reason_in(details: object) -> str:
    """Return the reason in A2A's ErrorInfo among the details of an error; empty without one."""
    for each in cast("list[object]", details) if isinstance(details, list) else ():
        info = as_object(each)
        if str(info.get("@type", "")).endswith("google.rpc.ErrorInfo") and info.get("domain") == DOMAIN:
            return str(info.get("reason", ""))
    return ""


def _result_faults(binding: Binding, probe: Probe, result: Any) -> Iterator[Fault]:
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
