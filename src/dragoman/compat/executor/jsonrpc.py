"""JSON-RPC 2.0 with the methods and errors of A2A 0.3. Of the rest of Dragoman it imports only the error types."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.compat.executor.result import Ok
from dragoman.model import error as e

VERSION = "2.0"
RequestId: TypeAlias = str | int | float | None


class ErrorType(StrEnum):
    """The fifteen error types, each with its JSON-RPC `code`."""

    code: int

    def __new__(cls, word: str, error: type[e.A2AError]) -> ErrorType:
        member = str.__new__(cls, word)
        member._value_ = word
        member.code = error.code
        return member

    PARSE = "parse", e.ParseError
    INVALID_REQUEST = "invalid_request", e.InvalidRequest
    METHOD_NOT_FOUND = "method_not_found", e.MethodNotFound
    INVALID_PARAMS = "invalid_params", e.InvalidParams
    INTERNAL = "internal", e.InternalError
    SERVER_ERROR = "server_error", e.ServerError
    TASK_NOT_FOUND = "task_not_found", e.TaskNotFound
    TASK_NOT_CANCELABLE = "task_not_cancelable", e.TaskNotCancelable
    PUSH_NOT_SUPPORTED = "push_not_supported", e.PushNotificationNotSupported
    UNSUPPORTED_OPERATION = "unsupported_operation", e.UnsupportedOperation
    UNSUPPORTED_CONTENT_TYPE = "unsupported_content_type", e.ContentTypeNotSupported
    INVALID_AGENT_RESPONSE = "invalid_agent_response", e.InvalidAgentResponse
    EXTENDED_CARD_NOT_CONFIGURED = "extended_card_not_configured", e.ExtendedAgentCardNotConfigured
    UNAUTHENTICATED = "unauthenticated", e.Unauthenticated
    UNAUTHORIZED = "unauthorized", e.Unauthorized


_TYPES = {type_.code: type_ for type_ in ErrorType}
_STREAMING = ("message/stream", "tasks/resubscribe")
METHODS = (
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
)


class Error(Struct, frozen=True):
    """An error as a value; `details` go out as `error.data`."""

    type: ErrorType
    message: str
    details: Any = None

    def to_map(self) -> dict[str, Any]:
        """Return the `error` member of a response."""
        members: dict[str, Any] = {"code": error_code(self.type), "message": self.message}
        if self.details is not None:
            members["data"] = self.details
        return members


class Request(Struct, frozen=True):
    """A parsed request. `params` is empty when the request has none; `id` is None when it has none."""

    method: str
    params: dict[str, Any]
    id: RequestId = None


def is_streaming(method: str) -> bool:
    """True for methods whose response is a stream."""
    return method in _STREAMING


def error_code(type: ErrorType | str) -> int:
    """Return the code of an error type.

    Raises:
        ValueError: there is no such type.
    """
    return ErrorType(type).code


def error_type(code: int) -> ErrorType:
    """Return the error type of a code; INTERNAL for an unknown code."""
    return _TYPES.get(code, ErrorType.INTERNAL)


def decode_request(body: bytes | str | Mapping[str, Any]) -> Ok[Request] | tuple[Literal["error"], Error]:
    """Parse a request from JSON text or from decoded JSON. Raises nothing."""
    decoded: Any = body
    if isinstance(body, (bytes, str)):
        try:
            decoded = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ("error", Error(ErrorType.PARSE, "malformed JSON"))
    if not isinstance(decoded, Mapping):
        return ("error", Error(ErrorType.INVALID_REQUEST, "the request must be an object"))
    members = cast("Mapping[str, Any]", decoded)
    error = _find_error(members)
    if error is not None:
        return ("error", error)
    return ("ok", Request(members["method"], dict(members.get("params") or {}), members.get("id")))


def request_id(request: object) -> RequestId:
    """Return the id for the response: the request's, or None when it is missing or invalid."""
    id_ = cast("Mapping[str, Any]", request).get("id") if isinstance(request, Mapping) else None
    return id_ if _is_id(id_) else None


def encode_response(result: Any, id: RequestId) -> bytes:
    """Encode a response with a result. Raises TypeError when it has no JSON form."""
    return msgspec.json.encode(response_map(result, id))


def encode_error(error: Error, id: RequestId) -> bytes:
    """Encode a response with an error. Raises TypeError when its details have no JSON form."""
    return msgspec.json.encode(error_map(error.to_map(), id))


def response_map(result: Any, id: RequestId) -> dict[str, Any]:
    """Return a response with a result."""
    return {"jsonrpc": VERSION, "id": id, "result": result}


def error_map(error: dict[str, Any], id: RequestId) -> dict[str, Any]:
    """Return a response with an error."""
    return {"jsonrpc": VERSION, "id": id, "error": error}


def _find_error(members: Mapping[str, Any]) -> Error | None:
    method, params = members.get("method"), members.get("params")
    if members.get("jsonrpc") != VERSION:
        return Error(ErrorType.INVALID_REQUEST, "invalid jsonrpc version")
    if not isinstance(method, str) or not method:
        return Error(ErrorType.INVALID_REQUEST, "missing or invalid method")
    if not _is_id(members.get("id")):
        return Error(ErrorType.INVALID_REQUEST, "invalid request id")
    if params is not None and not isinstance(params, Mapping):
        return Error(ErrorType.INVALID_PARAMS, "params must be an object")
    return None


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))
