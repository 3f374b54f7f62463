"""How the bytes of a file are encoded in 0.3 over REST and gRPC: once, as ProtoJSON does, or twice.

a2a-sdk and a2a-go keep the base64 text of a file in the proto's field of bytes, which ProtoJSON encodes again. They
refuse or lose a file that is encoded once. The protocol and @a2a-js/sdk encode it once. Over gRPC the field itself is
sent, and all of this is said of its ProtoJSON.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from dragoman.dialects.reading.lenient import from_base64
from dragoman.model.json import UNREADABLE, as_object, decode_any


class PeerFormat(NamedTuple):
    """How one kind of peer writes and reads files, and what it reads of a stream.

    `twice`: it encodes their bytes twice. `named`: it knows the `name` of a file, which the first proto of 0.3 had not
    and strict readers refuse. `guessed`: of the peer nothing is known but what it has written. `likely`: it may encode
    twice or not, so its texts are read as they are: base64 may be just what they are. `appends`: it appends a
    chunk of a text to the others; without, each replaces the one before.
    """

    twice: bool = False
    named: bool = True
    guessed: bool = False
    likely: bool = False
    appends: bool = True


ONCE, TWICE, UNKNOWN = PeerFormat(), PeerFormat(twice=True), PeerFormat(guessed=True)
_JAVA = PeerFormat(named=False, guessed=True)
_LIKELY_TWICE = PeerFormat(twice=True, guessed=True, likely=True)
# gRPC without the classes of an SDK is rare, and all versions of a2a-sdk encode twice, those of a2a-go since 2.4.
_PYTHON_GRPC = PeerFormat(twice=True, guessed=True)
_JAVASCRIPT = PeerFormat(appends=False)
# By the product of the User-Agent: the HTTP and gRPC libraries of a2a-sdk, a2a-go, @a2a-js/sdk and a2a-java.
_CALLERS = {
    "python-httpx": _LIKELY_TWICE,
    "grpc-python-asyncio": _PYTHON_GRPC,
    "Go-http-client": _LIKELY_TWICE,
    "grpc-go": _LIKELY_TWICE,
    "node": _JAVASCRIPT,
    "grpc-node-js": _JAVASCRIPT,
    "Java-http-client": _JAVA,
    "Vert.x-WebClient": _JAVA,
}
_ZIP = ((0, b"PK\x03\x04"),)
_RIFF = ((0, b"RIFF"),)
# Bytes, with their offset, by which a file of a media type is recognized.
_MAGIC_BYTES: dict[str, tuple[tuple[int, bytes], ...]] = {
    "image/png": ((0, b"\x89PNG\r\n\x1a\n"),),
    "image/jpeg": ((0, b"\xff\xd8\xff"),),
    "image/gif": ((0, b"GIF87a"), (0, b"GIF89a")),
    "image/webp": _RIFF,
    "image/bmp": ((0, b"BM"),),
    "image/tiff": ((0, b"II*\x00"), (0, b"MM\x00*")),
    "audio/mpeg": ((0, b"ID3"), (0, b"\xff\xfb"), (0, b"\xff\xf3"), (0, b"\xff\xf2")),
    "audio/ogg": ((0, b"OggS"),),
    "audio/flac": ((0, b"fLaC"),),
    "audio/wav": _RIFF,
    "audio/x-wav": _RIFF,
    "video/mp4": ((4, b"ftyp"),),
    "video/webm": ((0, b"\x1aE\xdf\xa3"),),
    "application/pdf": ((0, b"%PDF-"),),
    "application/zip": _ZIP,
    "application/gzip": ((0, b"\x1f\x8b"),),
}
# Office documents are archives.
_ZIP_PREFIXES = ("application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument.")
_PROBLEM_JSON = "application/problem+json"
_PYTHON_ERROR, _GO_ERROR = "TaskNotFoundError: ", "failed to get task: "


def caller_format(user_agent: str, body: bytes | None) -> PeerFormat:
    """Return the format of a caller, by the product of its User-Agent and by its request.

    A library for HTTP alone shows nothing, as anybody may use it; together with a message as ProtoJSON has it, in which
    the parts are called `content`, it is that of an SDK. Requests without a message follow the origin of their task.
    """
    usual = _CALLERS.get(user_agent.partition("/")[0], UNKNOWN)
    if usual.twice and (body is None or b'"content"' not in body):
        usual = UNKNOWN
    twice = None if body is None or usual == _JAVASCRIPT else shows_twice(body)
    return usual if twice is None else usual._replace(twice=twice, likely=False)


def server_format(headers: Mapping[str, str], body: bytes) -> PeerFormat:
    """Return the format of a server, by its error for a task that it does not have.

    a2a-go sends a problem, a2a-sdk 0.3 nothing but a message, and a2a-sdk 1.x the error of 1.0 without that of 0.3.
    """
    try:
        error = as_object(decode_any(body))
    except UNREADABLE:
        return UNKNOWN
    is_google_status = isinstance(as_object(error.get("error")).get("details"), list)
    is_go = headers.get("Content-Type", "").startswith(_PROBLEM_JSON) and is_google_status
    return TWICE if is_go or error.keys() == {"message"} or (error.keys() == {"error"} and is_google_status) else ONCE


def grpc_server_format(message: str, *, detailed: bool) -> PeerFormat:
    """Return the format of a server over gRPC, by its error for a task that it does not have.

    a2a-sdk says the name of the error and has no details. a2a-go says what it did, in words of its own. Until 2.3 it
    encoded files once, and its error was the same.
    """
    is_python = not detailed and message.startswith(_PYTHON_ERROR)
    return TWICE if is_python or message.startswith(_GO_ERROR) else ONCE


def shows_twice(body: bytes) -> bool | None:
    """True when the files of a request or response are encoded twice, False when not; None when that is not certain.

    A file is encoded twice for certain when only the inner bytes begin as its media type says, and once for certain
    when its bytes are not base64, or begin so themselves. Texts say nothing: they may be base64 that is meant so.
    """
    is_twice: bool | None = None
    for text, media_type in _files_of(body):
        try:
            raw = from_base64(text)
        except ValueError:
            continue
        inner = _decode_again(raw)
        if inner is None or _has_magic(raw, media_type):
            return False
        if _has_magic(inner, media_type):
            is_twice = True
    return is_twice


def has_files(body: bytes) -> bool:
    """True when a request or response may hold the bytes of a file."""
    return b"ileWithBytes" in body or b"ile_with_bytes" in body or b'"bytes"' in body


def unwrap(raw: bytes, media_type: str | None, *, likely: bool = False) -> bytes:
    """Return the bytes of a file that was encoded twice and decoded once; others are unchanged.

    A text is decoded again if it is one afterwards, and never where that it was encoded twice is only `likely`.
    """
    inner = _decode_again(raw)
    if inner is None:
        return raw
    if (media_type or "").lower().startswith("text/"):
        try:
            inner.decode()
        except UnicodeDecodeError:  # it is a text that happens to be base64
            return raw
        return raw if likely else inner
    return inner


def wrap(raw: bytes) -> bytes:
    """Return the bytes of a file as those who encode it twice keep them."""
    return base64.b64encode(raw)


def _decode_again(raw: bytes) -> bytes | None:
    if not raw or len(raw) % 4:
        return None
    try:
        return binascii.a2b_base64(raw, strict_mode=True)
    except binascii.Error:
        return None


def _has_magic(content: bytes, media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    magic = _ZIP if kind.startswith(_ZIP_PREFIXES) else _MAGIC_BYTES.get(kind, ())
    return any(content.startswith(expected, offset) for offset, expected in magic)


def _files_of(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield the encoded bytes and the media type of each file in JSON text, wherever it is."""
    if not has_files(body):
        return
    try:
        values: list[Any] = [decode_any(body)]
    except UNREADABLE:  # the decoder reports it
        return
    while values:
        value = values.pop()
        if isinstance(value, list):
            values.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            file = as_object(members.get("file"))
            content = file.get("fileWithBytes") or file.get("file_with_bytes") or file.get("bytes")
            if isinstance(content, str):
                yield content, str(file.get("mimeType") or file.get("mime_type") or "")
            values.extend(each for key, each in members.items() if key not in ("data", "metadata"))
