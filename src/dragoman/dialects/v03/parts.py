"""Parts as JSON-RPC callers of 0.1 (`type`) and 0.3 (`kind`) spell them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

from msgspec import UNSET, Struct, field

from dragoman.dialects.reading.invalid import missing_field, quoted
from dragoman.model.error import InvalidParams
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


Tag = Literal["kind", "type"]
_KINDS = ("text", "file", "data")


class File03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file: its bytes or its address."""

    name: str | None = None
    mime_type: str | None = None
    content: bytes | None = field(name="bytes", default=None)
    uri: str | None = None


class Part03(Struct, frozen=True, omit_defaults=True):
    """A part of any kind; `kind` or `type` says which."""

    kind: str | None = None
    type: str | None = None
    text: str | None = None
    file: File03 | None = None
    data: Any = UNSET
    metadata: dict[str, Any] | None = None


def part_to_03(part: Part, tag: Tag) -> Part03:
    """Spell a part. 0.1 callers compare texts as they are, so only 0.3 is told their media type."""
    kind = part.kind
    if kind in ("raw", "url"):
        file = File03(part.filename, part.media_type, part.raw, part.url)
        return _tagged(tag, "file", file=file, metadata=part.metadata)
    metadata = pack(part) if tag == "kind" else part.metadata
    if kind == "text":
        return _tagged(tag, "text", text=part.text, metadata=metadata)
    data, metadata = wrap(part.data, metadata)
    return _tagged(tag, "data", data=data, metadata=metadata)


def part_from_03(part: Part03, at: str) -> Part:
    """Read a part that stands at the path `at`.

    Raises:
        InvalidParams: its kind is unknown, cannot be told, or promises what is not there.
    """
    kind = _kind(part, at)
    if kind == "file":
        return _file(part, at)
    if kind == "text":
        if part.text is None:
            raise missing_field(f"{at}.text")
        metadata, media_type, filename = unpack(part.metadata)
        return Part(text=part.text, filename=filename, media_type=media_type, metadata=metadata)
    if part.data is UNSET:
        raise missing_field(f"{at}.data")
    data, metadata = unwrap(part.data, part.metadata)
    metadata, media_type, filename = unpack(metadata)
    return Part(data=data, filename=filename, media_type=media_type, metadata=metadata)


def parts_from_03(parts: tuple[Part03, ...], at: str) -> tuple[Part, ...]:
    """Read parts.

    Raises:
        InvalidParams: as `part_from_03`.
    """
    return tuple(part_from_03(part, f"{at}[{index}]") for index, part in enumerate(parts))


def _kind(part: Part03, at: str) -> str:
    tag: Tag = "kind" if part.kind is not None else "type"
    said = part.kind if part.kind is not None else part.type
    if said is not None:
        if said not in _KINDS:
            raise InvalidParams(
                f"{at}.{tag} cannot be {quoted(said)}: it must be text, file or data", field=f"{at}.{tag}"
            )
        return said
    held = (
        (["text"] if part.text is not None else [])
        + (["file"] if part.file is not None else [])
        + (["data"] if part.data is not UNSET and part.data is not None else [])
    )
    if len(held) != 1:
        raise InvalidParams(f"{at}.kind is required: it must be text, file or data", field=f"{at}.kind")
    return held[0]


def _file(part: Part03, at: str) -> Part:
    file = part.file
    if file is None:
        raise missing_field(f"{at}.file")
    if file.content is not None and not file.uri:
        return Part(raw=file.content, filename=file.name, media_type=file.mime_type, metadata=part.metadata)
    if file.uri and file.content is None:
        return Part(url=file.uri, filename=file.name, media_type=file.mime_type, metadata=part.metadata)
    raise InvalidParams(f"{at}.file must hold either bytes or uri", field=f"{at}.file")


def _tagged(
    tag: Tag,
    kind: str,
    *,
    text: str | None = None,
    file: File03 | None = None,
    data: Any = UNSET,
    metadata: dict[str, Any] | None = None,
) -> Part03:
    return Part03(kind if tag == "kind" else None, kind if tag == "type" else None, text, file, data, metadata)
