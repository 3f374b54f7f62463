"""The status of a gRPC call, as trailers: code, text, and the details of an A2A error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.dialects.errors import error_details, grpc_text, status_of
from dragoman.engine.quota import SERVER_MEMORY
from dragoman.model.error import Overloaded
from dragoman.net.grpc.status import CODES
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.http import TooLarge, TooSlow

if TYPE_CHECKING:
    from dragoman.model.error import A2AError
    from dragoman.transports.http import Header

STATUS, MESSAGE, DETAILS = b"grpc-status", b"grpc-message", b"grpc-status-details-bin"
OK: list[Header] = [(STATUS, b"0")]
# Callers refuse trailers of more than 8 KB, and then see no error at all: the most bytes of a text as a trailer, of the
# whole status, and of a value of its metadata and how many there are.
_MAX_TEXT, _MAX_STATUS, _MAX_VALUE, _MAX_VALUES = 1500, 4200, 250, 8


def status_trailers(error: A2AError, version: str) -> list[Header]:
    """Return the trailers of a call that failed: its code, its text as UTF-8, and a google.rpc.Status with details.

    Long texts are cut, and details that do not fit are left out; the first is always there: reason and metadata.
    """
    code, _ = CODES[_name_of(error)]
    status: dict[str, Any] = {"code": code, "message": _fit(grpc_text(error, version), _MAX_TEXT)}
    info, *others = error_details(error)
    if "metadata" in info:
        values = list(info["metadata"].items())[:_MAX_VALUES]
        info = info | {"metadata": {_fit(key, _MAX_VALUE // 4): _fit(value, _MAX_VALUE) for key, value in values}}
    encode, details = codec_of("google.rpc").encode, [info]
    encoded = encode("google.rpc.Status", status | {"details": details})
    for detail in others:
        details.append(detail)
        longer = encode("google.rpc.Status", status | {"details": details})
        if len(longer) > _MAX_STATUS:
            break
        encoded = longer
    return [(STATUS, b"%d" % code), (MESSAGE, status["message"].encode()), (DETAILS, encoded)]


def _fit(text: str, most: int) -> str:
    """Cut a text so that it is at most so many bytes as a trailer, where what is not ASCII is percent-encoded."""
    text = text.encode("utf-8", "replace").decode()  # without lone surrogates
    size = 0
    for index, character in enumerate(text):
        size += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if size > most:
            return f"{text[:index]}…"
    return text


def _name_of(error: A2AError) -> str:
    """Return the status of an error; a limit of the server has that of limits, whatever error reports it."""
    if isinstance(error, TooLarge):
        return "RESOURCE_EXHAUSTED"
    if isinstance(error, TooSlow):
        return "DEADLINE_EXCEEDED"
    if isinstance(error, Overloaded) and error.metadata.get("limit") == SERVER_MEMORY:
        return "UNAVAILABLE"
    return status_of(error).name
