"""The status of a gRPC call, as trailers: code, text, and the details of an A2A error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.dialects.errors import error_details, grpc_text, status_of
from dragoman.engine.accept.quota import SERVER_MEMORY
from dragoman.model.error import Overloaded
from dragoman.net.grpc.status import CODES
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.http import TooLarge, TooSlow

if TYPE_CHECKING:
    from dragoman.model.error import A2AError
    from dragoman.transports.http import Header

STATUS, MESSAGE, DETAILS = b"grpc-status", b"grpc-message", b"grpc-status-details-bin"
OK: list[Header] = [(STATUS, b"0")]
# Callers refuse trailers of more than 8 KB, and then see no error at all.
_MAX_MESSAGE, _MAX_DETAILS = 1000, 4000
_ANY = "type.googleapis.com/"


def status_trailers(error: A2AError, version: str) -> list[Header]:
    """Return the trailers of a call that failed: its code, its text as UTF-8, and a google.rpc.Status with details.

    Long texts are cut, and details that do not fit are left out; the first is always there: reason and metadata.
    """
    code, _ = CODES[_name_of(error)]
    text = grpc_text(error, version)
    message = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
    codec = codec_of("google.rpc")
    details: list[dict[str, Any]] = []
    size = 0
    for detail in error_details(error):
        size += len(str(detail))
        if details and size > _MAX_DETAILS:
            break
        details.append(detail)
    status = codec.encode("google.rpc.Status", {"code": code, "message": message, "details": details})
    return [(STATUS, b"%d" % code), (MESSAGE, message.encode()), (DETAILS, status)]


def _name_of(error: A2AError) -> str:
    """Return the status of an error; a limit of the server has that of limits, whatever error reports it."""
    if isinstance(error, TooLarge):
        return "RESOURCE_EXHAUSTED"
    if isinstance(error, TooSlow):
        return "DEADLINE_EXCEEDED"
    if isinstance(error, Overloaded) and error.metadata.get("limit") == SERVER_MEMORY:
        return "UNAVAILABLE"
    return status_of(error).name
