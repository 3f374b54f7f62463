"""What an older part has no room for travels in its metadata, and comes back from there.

A data part before 1.0 is an object: other values are wrapped as a2a-sdk wraps them. A text or data part
has neither a media type nor a file name.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from dragoman.model.part import Part

WRAPPED = "data_part_compat"
MEDIA_TYPE = "mediaType"
FILENAME = "filename"


class Unpacked(NamedTuple):
    """The metadata without what travelled in it, and that."""

    metadata: dict[str, Any] | None
    media_type: str | None
    filename: str | None


def pack(part: Part) -> dict[str, Any] | None:
    """The metadata of a text or data part, with its media type and file name; the author's own keys stand."""
    if part.media_type is None and part.filename is None:
        return part.metadata
    metadata = dict(part.metadata or {})
    if part.media_type is not None:
        metadata.setdefault(MEDIA_TYPE, part.media_type)
    if part.filename is not None:
        metadata.setdefault(FILENAME, part.filename)
    return metadata


def unpack(metadata: dict[str, Any] | None) -> Unpacked:
    """Take media type and file name out of a text or data part's metadata."""
    if not metadata or (MEDIA_TYPE not in metadata and FILENAME not in metadata):
        return Unpacked(metadata, None, None)
    rest = dict(metadata)
    media_type, filename = _text(rest, MEDIA_TYPE), _text(rest, FILENAME)
    return Unpacked(rest or None, media_type, filename)


def wrap(data: Any, metadata: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Make an object of any data, and say so in the metadata when it was none."""
    if isinstance(data, dict):
        return cast("dict[str, Any]", data), metadata
    return {"value": data}, {**(metadata or {}), WRAPPED: True}


def unwrap(data: Any, metadata: dict[str, Any] | None) -> tuple[Any, dict[str, Any] | None]:
    """Undo `wrap`; data that was not wrapped stays as it is."""
    if not metadata or metadata.get(WRAPPED) is not True or not isinstance(data, dict):
        return data, metadata
    wrapper = cast("dict[str, Any]", data)
    if wrapper.keys() != {"value"}:
        return wrapper, metadata
    return wrapper["value"], {key: value for key, value in metadata.items() if key != WRAPPED} or None


def _text(metadata: dict[str, Any], key: str) -> str | None:
    if not isinstance(metadata.get(key), str):
        return None
    return cast("str", metadata.pop(key))
