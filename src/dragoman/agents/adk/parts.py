"""Converts message parts between A2A and Google ADK.

Google's own bridges in Python and Go use the same metadata keys, so a part passes through any of them unchanged.
Integers stay integers.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from typing import TYPE_CHECKING, Any, cast

import msgspec
from google.adk.utils.variant_utils import GoogleLLMVariant, get_google_llm_variant
from google.genai import types
from pydantic import BaseModel, ValidationError

from dragoman.model.part import Part
from dragoman.model.state import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model.message import Message

TYPE = "adk_type"
THOUGHT = "adk_thought"
IS_LONG_RUNNING = "adk_is_long_running"
SIGNATURE = "adk_thought_signature"
# Kinds of parts besides text and files: field names of a part, and values of `adk_type`.
TYPES = (
    "function_call",
    "function_response",
    "code_execution_result",
    "executable_code",
    "tool_call",
    "tool_response",
)
# `adk_type` of a part of a kind unknown here: the whole part as data.
_WHOLE = "part"
_MEDIA = {"video_metadata": "adk_video_metadata", "media_resolution": "adk_media_resolution"}
_BEGIN, _END = b"<a2a_datapart_json>", b"</a2a_datapart_json>"
_DATA_TYPE = "text/plain"
_FILE_TYPE = "application/octet-stream"


def to_genai(part: Part) -> types.Part:
    """Convert a part for a model. Plain data is wrapped in the tags by which ADK recognizes it."""
    metadata = dict(part.metadata or {})
    genai_part = _typed(part, metadata) or _plain(part, metadata)
    _put_signature(genai_part, metadata)
    # Vertex rejects parts with metadata, and older versions have no field for it.
    if metadata and "part_metadata" in types.Part.model_fields and not _on_vertex():
        genai_part.part_metadata = metadata
    return genai_part


def _typed(part: Part, metadata: dict[str, Any]) -> types.Part | None:
    kind = metadata.get(TYPE)
    if part.kind != "data" or kind not in (*TYPES, _WHOLE):
        return None
    try:
        genai_part = types.Part.model_validate(part.data if kind == _WHOLE else {kind: part.data})
    except ValidationError:
        return None  # mislabeled: treated as plain data
    del metadata[TYPE]
    return genai_part


def _plain(part: Part, metadata: dict[str, Any]) -> types.Part:
    if part.text is not None:
        return types.Part(text=part.text, thought=True if metadata.pop(THOUGHT, None) is True else None)
    if part.kind == "data":
        data = _BEGIN + msgspec.json.encode(_wrap(part.data)) + _END
        return types.Part(inline_data=types.Blob(data=data, mime_type=_DATA_TYPE))
    if part.raw is not None:
        media_type = part.media_type or _guess_media_type(part.filename) or _FILE_TYPE
        genai_part = types.Part(inline_data=types.Blob(data=part.raw, mime_type=media_type, display_name=part.filename))
    else:
        media_type = part.media_type or _guess_media_type(part.filename) or _guess_media_type(part.url)
        file = types.FileData(file_uri=part.url, mime_type=media_type, display_name=part.filename)
        genai_part = types.Part(file_data=file)
    for field, key in _MEDIA.items():
        value = _field(field, metadata.get(key))
        if value is not None:
            setattr(genai_part, field, value)
            del metadata[key]
    return genai_part


def _field(name: str, value: Any) -> Any:
    """Convert a value to the type of a part's field; None if it is invalid or this version lacks the field."""
    if value is None or name not in types.Part.model_fields:
        return None
    try:
        return getattr(types.Part.model_validate({name: value}), name)
    except ValidationError:
        return None


def _put_signature(genai_part: types.Part, metadata: dict[str, Any]) -> None:
    signature = metadata.get(SIGNATURE)
    if isinstance(signature, str):
        try:
            genai_part.thought_signature = base64.b64decode(signature, validate=True)
        except binascii.Error:
            return
        del metadata[SIGNATURE]


def _on_vertex() -> bool:
    return get_google_llm_variant() == GoogleLLMVariant.VERTEX_AI


def _guess_media_type(name: str | None) -> str | None:
    return mimetypes.guess_type(name)[0] if name else None


def _wrap(data: Any) -> Any:
    # Data that looks like a data part of protocol 0.3 is wrapped in one, or it would be unwrapped on the way back.
    return {"kind": "data", "data": data} if _is_old_part(data) else data


def _is_old_part(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    keys = cast("dict[str, Any]", data)
    return keys.get("kind") == "data" and {"data", "kind"} <= keys.keys() <= {"data", "kind", "metadata"}


def from_genai(part: types.Part) -> Part | None:
    """Convert a part of ADK; return None if it is empty."""
    metadata: dict[str, Any] = {}
    part_metadata: dict[str, Any] = getattr(part, "part_metadata", None) or {}
    if part.thought_signature is not None:
        metadata[SIGNATURE] = base64.b64encode(part.thought_signature).decode()
    fields: dict[str, Any] | None
    if part.text is not None:
        if part.thought:
            metadata[THOUGHT] = True
        fields = {"text": part.text} if part.text or metadata or part_metadata else None
    else:
        fields = _file(part, metadata) or _data(part, metadata)
    if fields is None:
        return None
    metadata |= fields.pop("metadata", None) or {}
    metadata |= part_metadata
    return Part(**fields, metadata=metadata or None)


def _file(part: types.Part, metadata: dict[str, Any]) -> dict[str, Any] | None:
    blob, file = part.inline_data, part.file_data
    if blob is not None and blob.data is not None:
        data = _unwrap(blob)
        if data is not None:
            return data
        fields = {"raw": blob.data, "media_type": blob.mime_type or None, "filename": blob.display_name or None}
    elif file is not None and file.file_uri:
        fields = {"url": file.file_uri, "media_type": file.mime_type or None, "filename": file.display_name or None}
    else:
        return None
    for field, key in _MEDIA.items():
        value = getattr(part, field, None)
        if value is not None:
            metadata[key] = _json(value)
    return fields


def _unwrap(blob: types.Blob) -> dict[str, Any] | None:
    body = blob.data or b""
    if blob.mime_type != _DATA_TYPE or not (body.startswith(_BEGIN) and body.endswith(_END)):
        return None
    try:
        data: Any = msgspec.json.decode(body[len(_BEGIN) : -len(_END)])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if _is_old_part(data):
        return {"data": data["data"], "metadata": data.get("metadata")}
    return {"data": data}


def _data(part: types.Part, metadata: dict[str, Any]) -> dict[str, Any] | None:
    for kind in TYPES:
        value = getattr(part, kind, None)
        if value is not None:
            metadata[TYPE] = kind
            return {"data": _json(value)}
    rest = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    for key in ("thought", "thoughtSignature", "partMetadata", "inlineData", "fileData"):
        rest.pop(key, None)
    if not rest:
        return None
    metadata[TYPE] = _WHOLE
    return {"data": rest}


def _json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def content_of(message: Message) -> types.Content:
    """Convert a message to ADK content: the role of agents is "model" there."""
    role = "user" if message.role is Role.USER else "model"
    return types.Content(role=role, parts=[to_genai(part) for part in message.parts])


def parts_of_content(content: types.Content | None) -> tuple[Part, ...]:
    """Convert ADK content to parts. The role belongs to the message that the parts go into."""
    converted: Iterable[Part | None] = map(from_genai, (content.parts if content is not None else None) or ())
    return tuple(part for part in converted if part is not None)
