"""Encodes and decodes A2A errors: codes, HTTP statuses and details, per version and binding.

The 1.0 code of an error is `code` of its class (`model/error.py`), its HTTP and gRPC status is in `STATUSES`. Versions
before 1.0 know fewer codes: `_rpc_code` chooses theirs, by the `ErrorEncoding` of the version in `table.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from dragoman.dialects.table import ErrorEncoding, row_of
from dragoman.model import error as e
from dragoman.model.error import A2AError, InvalidParams, as_received
from dragoman.model.json import as_object, as_objects
from dragoman.telemetry.printable import one_line

DOMAIN = "a2a-protocol.org"
_ANY = "type.googleapis.com/"
_ERROR_INFO = f"{_ANY}google.rpc.ErrorInfo"
_BAD_REQUEST = f"{_ANY}google.rpc.BadRequest"


class Status(NamedTuple):
    """An error's HTTP status and its google.rpc name, which is also its gRPC status."""

    http: int
    name: str


STATUSES: dict[type[A2AError], Status] = {
    A2AError: Status(500, "INTERNAL"),
    e.ParseError: Status(400, "INVALID_ARGUMENT"),
    e.InvalidRequest: Status(400, "INVALID_ARGUMENT"),
    e.MethodNotFound: Status(404, "UNIMPLEMENTED"),
    e.InvalidParams: Status(400, "INVALID_ARGUMENT"),
    e.InternalError: Status(500, "INTERNAL"),
    e.ServerError: Status(503, "UNAVAILABLE"),
    e.Overloaded: Status(429, "RESOURCE_EXHAUSTED"),
    e.TaskNotFound: Status(404, "NOT_FOUND"),
    e.TaskNotCancelable: Status(400, "FAILED_PRECONDITION"),
    e.PushNotificationNotSupported: Status(400, "FAILED_PRECONDITION"),
    e.UnsupportedOperation: Status(400, "FAILED_PRECONDITION"),
    e.ContentTypeNotSupported: Status(400, "INVALID_ARGUMENT"),
    e.InvalidAgentResponse: Status(500, "INTERNAL"),
    e.ExtendedAgentCardNotConfigured: Status(400, "FAILED_PRECONDITION"),
    e.ExtensionSupportRequired: Status(400, "FAILED_PRECONDITION"),
    e.VersionNotSupported: Status(400, "FAILED_PRECONDITION"),
    e.TaskGenerationMismatch: Status(409, "ABORTED"),
    e.Unauthenticated: Status(401, "UNAUTHENTICATED"),
    e.Unauthorized: Status(403, "PERMISSION_DENIED"),
}
_BY_CODE: dict[int, type[A2AError]] = {cls.code: cls for cls in STATUSES if cls not in (A2AError, e.Overloaded)}
_BY_REASON: dict[str, type[A2AError]] = {cls.reason: cls for cls in STATUSES if cls is not A2AError}
_BY_STATUS: dict[int, type[A2AError]] = {
    400: e.InvalidRequest,
    401: e.Unauthenticated,
    403: e.Unauthorized,
    404: e.MethodNotFound,
    405: e.MethodNotFound,
    409: e.TaskGenerationMismatch,
    415: e.ContentTypeNotSupported,
    422: e.InvalidParams,
    429: e.Overloaded,
    503: e.ServerError,
}
# The error that a gRPC status means when its server says no more.
_BY_STATUS_NAME: dict[str, type[A2AError]] = {
    "INVALID_ARGUMENT": e.InvalidParams,
    "NOT_FOUND": e.TaskNotFound,
    "PERMISSION_DENIED": e.Unauthorized,
    "RESOURCE_EXHAUSTED": e.Overloaded,
    "FAILED_PRECONDITION": e.UnsupportedOperation,
    "ABORTED": e.TaskGenerationMismatch,
    "OUT_OF_RANGE": e.InvalidParams,
    "UNIMPLEMENTED": e.MethodNotFound,
    "UNAVAILABLE": e.ServerError,
    "UNAUTHENTICATED": e.Unauthenticated,
}
_INTERNAL_CODE = -32603
# Members in which servers and gateways explain an error, most telling first.
_EXPLAINING = ("detail", "error_description", "title", "error", "errors", "reason", "description")
_MAX_EXPLANATION = 500
# Members of the plain object that older versions have as `data`, beside the metadata.
_NOT_METADATA = ("reason", "field")


def rpc_failure(error: A2AError, version: str, request_id: Any) -> dict[str, Any]:
    """Build the JSON-RPC response to a request that failed.

    Before 1.0, which has them in the error, the typed details are a member `errorDetails` of the response.
    """
    response = {"jsonrpc": "2.0", "id": request_id, "error": rpc_error(error, version)}
    return response if row_of(version).errors.typed else response | {"errorDetails": error_details(error)}


def rpc_error(error: A2AError, version: str) -> dict[str, Any]:
    """Build the `error` member of a JSON-RPC response.

    From 1.0 on `data` is a list of typed details; before, it is the details that the error was raised with, and left
    out without any, see `rpc_failure`. `_rpc_code` chooses the code: one that the version does not define becomes an
    internal error with the same message, except -32009, by which old callers learn that their version is not supported.
    """
    encoding = row_of(version).errors
    if encoding.typed:
        return {"code": error.code, "message": error.message, "data": error_details(error)}
    body: dict[str, Any] = {"code": _rpc_code(error, encoding), "message": error.message}
    # Typed details are those of another server, whose error is passed on.
    return body if error.details is None or _is_typed(error.details) else body | {"data": error.details}


def http_error(error: A2AError, version: str) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the body, a google.rpc.Status, of a REST error.

    0.3 does not define the body; beside the status it holds what the 0.3 clients of the official SDKs read: `type` and
    `message` for Python, `code` and `message` for JavaScript.
    """
    status = status_of(error)
    body: dict[str, Any] = {
        "error": {
            "code": status.http,
            "status": status.name,
            "message": error.message,
            "details": error_details(error),
        }
    }
    encoding = row_of(version).errors
    if not encoding.typed:
        body |= {"code": _rpc_code(error, encoding), "type": _sdk_name(error), "message": error.message}
    return status.http, body


def grpc_text(error: A2AError, version: str) -> str:
    """Return the text of an error over gRPC.

    0.3 defines no details. Its SDKs in Python find the error by the name that stands before the text.
    """
    return error.message if row_of(version).errors.typed else f"{_sdk_name(error)}: {error.message}"


def _sdk_name(error: A2AError) -> str:
    name = next(cls for cls in type(error).__mro__ if cls in STATUSES).__name__
    if name == "ParseError":
        return "JSONParseError"
    return name if name.endswith("Error") else f"{name}Error"


_BY_SDK_NAME: dict[str, type[A2AError]] = {_sdk_name(cls()): cls for cls in STATUSES if cls is not A2AError}


def status_of(error: A2AError) -> Status:
    """Return the HTTP and gRPC status of an error, by its nearest class in the table."""
    if isinstance(error, e.ContentTypeNotSupported) and error.metadata.get("header") == "content-type":
        # The table's 400 is for the media type of a part; this is the content type of the request.
        return Status(415, "INVALID_ARGUMENT")
    return next(STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES)


def error_details(error: A2AError) -> list[dict[str, Any]]:
    """Build the typed details of an error: its reason, the invalid field, then its own details."""
    info: dict[str, Any] = {"@type": _ERROR_INFO, "reason": error.reason, "domain": DOMAIN}
    if error.metadata:
        info["metadata"] = {key: str(value) for key, value in error.metadata.items()}
    details = [info]
    if isinstance(error, InvalidParams) and error.field:
        violation = {"field": error.field, "description": error.message}
        details.append({"@type": _BAD_REQUEST, "fieldViolations": [violation]})
    if error.details is not None:
        extra = cast("list[Any]", error.details) if isinstance(error.details, list) else [error.details]
        details.extend(map(_typed_detail, extra))
    return details


def error_from_rpc(error: object, beside: object = None) -> A2AError:
    """Build the error from the `error` member of a JSON-RPC response, and the `errorDetails` beside it.

    An unknown code is an internal error.
    """
    members = as_object(error)
    code, data = members.get("code"), members.get("data")
    cls = _BY_CODE.get(code, e.InternalError) if isinstance(code, int) else e.InternalError
    details = data if beside is None else beside
    named_class = _BY_REASON.get(str(_error_info(details).get("reason") or as_object(details).get("reason")))
    # A server may have mapped the code to an internal error for an older version; the reason is still there.
    if named_class is not None and (cls is e.InternalError or issubclass(named_class, cls)):
        cls = named_class
    error_read = _build_error(cls, members.get("message"), details)
    error_read.details = data
    return error_read


def error_from_http(status: int, body: object) -> A2AError:
    """Build the error from a REST response: by the reason in its body, else by SDK name, code and status."""
    members = as_object(as_object(body).get("error"))
    details = members.get("details")
    by_status = _BY_STATUS.get(status, e.InvalidRequest if status < 500 else e.InternalError)
    cls = named_error(body) or by_status
    message = members.get("message") or as_object(body).get("message")
    if not isinstance(message, str):
        explanation = _explanation(body)
        message = f"{cls.text} (HTTP {status}){f': {explanation}' if explanation else ''}"
    error = _build_error(cls, message, details)
    error.status = status
    return error


def error_from_grpc(status: str, message: str, details: list[Any]) -> A2AError:
    """Build the error from the name of a gRPC status, its text and its details.

    The reason in the details names it, else the beginning of the text, as servers on a2a-sdk 0.3 write it.
    """
    cls = _named_in(message, details) or _BY_STATUS_NAME.get(status, e.InternalError)
    name, separator, rest = message.partition(": ")
    text = rest if separator and name in _BY_SDK_NAME else message
    return _build_error(cls, text or None, details or None)


def names_error(message: str, details: list[Any]) -> bool:
    """True when the text or the details of a gRPC status name an error of A2A, and not one of a gateway."""
    return _named_in(message, details) is not None


def _named_in(message: str, details: list[Any]) -> type[A2AError] | None:
    reason = _error_info(details).get("reason")
    return _BY_REASON.get(str(reason)) or _BY_SDK_NAME.get(message.partition(":")[0])


def error_from_sdk(name: str, message: str) -> A2AError | None:
    """Build the error that the official SDKs call so; None when it is none of the protocol's."""
    cls = _BY_SDK_NAME.get(name)
    return None if cls is None else cls(message)


def named_error(body: object) -> type[A2AError] | None:
    """Return the error that the body of a REST response names; None when it is of no defined form, as a gateway's."""
    reason = _error_info(as_object(as_object(body).get("error")).get("details")).get("reason")
    # 0.3 does not define error bodies; the official SDKs send the name of the error.
    name, code = as_object(body).get("type"), as_object(body).get("code")
    by_code = _BY_CODE.get(code) if isinstance(code, int) and code < 0 else None
    return _BY_REASON.get(str(reason)) or _BY_SDK_NAME.get(str(name)) or by_code


def _explanation(body: object) -> str:
    """Return what an error body of no defined form says, on one line and not too long; empty when it says nothing."""
    if isinstance(body, str):
        found: object = body
    else:
        values = (as_object(body).get(name) for name in _EXPLAINING)
        found = next((value for value in values if value), "")
        if isinstance(found, list):
            # The form of FastAPI: objects with `msg`.
            problems = (each.get("msg") for each in as_objects(cast("list[object]", found)))
            found = "; ".join(each for each in problems if isinstance(each, str))
    text = one_line(" ".join(found.split())) if isinstance(found, str) else ""
    return text if len(text) <= _MAX_EXPLANATION else f"{text[:_MAX_EXPLANATION]}…"


def _rpc_code(error: A2AError, encoding: ErrorEncoding) -> int:
    """Choose the JSON-RPC code of an error in a version before 1.0.

    A2A codes after the last one of the version become an internal error.
    """
    if error.metadata.get("capability") == "extendedAgentCard":
        # 1.0 distinguishes an agent without the capability from one without the card; 0.3 has one error for both.
        return e.ExtendedAgentCardNotConfigured.code if encoding.one_card_error else error.code
    code = error.code
    # VersionNotSupported keeps its code: its caller requested a newer version and knows it.
    newer = -32099 <= code < encoding.last_code and not isinstance(error, e.VersionNotSupported)
    return _INTERNAL_CODE if newer else code


def _typed_detail(detail: object) -> dict[str, Any]:
    if not isinstance(detail, dict):
        return {"@type": f"{_ANY}google.protobuf.Value", "value": detail}
    members = cast("dict[str, Any]", detail)
    return members if "@type" in members else {"@type": f"{_ANY}google.protobuf.Struct", "value": members}


def _build_error(cls: type[A2AError], message: object, data: object) -> A2AError:
    text = message if isinstance(message, str) else None
    error = cls(text, field=_field(data)) if issubclass(cls, InvalidParams) else cls(text)
    error.details = data
    plain = {key: value for key, value in as_object(data).items() if key not in _NOT_METADATA}
    metadata = as_object(_error_info(data).get("metadata")) or (plain if "reason" in as_object(data) else {})
    error.metadata = {key: str(value) for key, value in metadata.items()}
    return as_received(error)


def _is_typed(details: object) -> bool:
    """True for details that are typed already, as another A2A server sent them."""
    return isinstance(details, list) and all("@type" in as_object(each) for each in cast("list[Any]", details))


def _error_info(details: object) -> dict[str, Any]:
    return next((each for each in as_objects(details) if each.get("@type") == _ERROR_INFO), as_object(None))


def _field(data: object) -> str:
    plain = as_object(data).get("field")
    if isinstance(plain, str):
        return plain
    for detail in as_objects(data):
        for violation in as_objects(detail.get("fieldViolations")):
            return str(violation.get("field", ""))
    return ""
