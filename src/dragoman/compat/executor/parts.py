"""The three kinds of part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from dragoman.compat.executor.wire import Wire, plain, read
from dragoman.dialects.reading.lenient import from_base64
from dragoman.dialects.v03.codec import part_from_03, part_to_03
from dragoman.dialects.v03.types import Part03
from dragoman.model.error import InvalidParams
from dragoman.model.part import Part as ModelPart

if TYPE_CHECKING:
    from dragoman.compat.executor.result import Failure, Ok


class FileBytes(Wire, frozen=True):
    """A file that travels inside the message; `bytes` is base64 text."""

    bytes: str
    name: str | None = None
    mime_type: str | None = None


class FileURI(Wire, frozen=True):
    """A file that is somewhere else."""

    uri: str
    name: str | None = None
    mime_type: str | None = None


if TYPE_CHECKING:
    File: TypeAlias = FileBytes | FileURI
else:
    # msgspec cannot tell two objects without a tag apart: FilePart does.
    File = Any


class TextPart(Wire, frozen=True, tag_field="kind", tag="text"):
    """Text."""

    text: str
    metadata: dict[str, Any] | None = None

    def to_model(self) -> ModelPart:
        """The part in the words of A2A 1.0."""
        return _to_model(self)


class FilePart(Wire, frozen=True, tag_field="kind", tag="file"):
    """A file, with its bytes or by its address. One that is read must have exactly one of them, and real base64."""

    file: File
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        said = cast("object", self.file)
        if isinstance(said, (FileBytes, FileURI)):
            return
        if not isinstance(said, Mapping):
            raise ValueError("file must be an object")
        msgspec.structs.force_setattr(self, "file", _file(cast("Mapping[str, Any]", said)))

    def to_model(self) -> ModelPart:
        """The part in the words of A2A 1.0. Raises InvalidParams when the bytes are not base64."""
        return _to_model(self)


class DataPart(Wire, frozen=True, tag_field="kind", tag="data"):
    """A JSON object."""

    data: dict[str, Any]
    metadata: dict[str, Any] | None = None

    def to_model(self) -> ModelPart:
        """The part in the words of A2A 1.0."""
        return _to_model(self)


Part: TypeAlias = TextPart | FilePart | DataPart
_KINDS: dict[str, type[Part]] = {"text": TextPart, "file": FilePart, "data": DataPart}


def part_from_map(map: Mapping[str, Any]) -> Ok[Part] | Failure:
    """Read a part of any kind. A failure says which kind is unknown or which field is wrong. Raises nothing."""
    kind = map.get("kind")
    if kind is None:
        return ("error", "missing part kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return ("error", f"unknown part kind: {kind}")
    return _KINDS[kind].from_map(map)


def part_from_model(part: ModelPart) -> Part:
    """Spell a part of A2A 1.0 as 0.3 does; data that is no object is wrapped into one."""
    values = plain(part_to_03(part, "kind"))
    return read(_KINDS[values["kind"]], values)


def _to_model(part: Part) -> ModelPart:
    try:
        return part_from_03(msgspec.convert(part.to_map(), Part03), "part")
    except msgspec.ValidationError as error:
        raise InvalidParams(f"part is wrong: {error}", field="part") from None


def _file(map: Mapping[str, Any]) -> FileBytes | FileURI:
    content, uri = map.get("bytes"), map.get("uri")
    if (content is None) == (uri is None):
        raise ValueError("a file has either bytes or uri")
    if uri is not None:
        return read(FileURI, map)
    file = read(FileBytes, map)
    from_base64(file.bytes)
    return file
