"""Files as parameters of skills: which types take them, what callers may send, and which file fills which parameter."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, cast, get_args, get_origin
from urllib.parse import unquote

from dragoman.model.error import ContentTypeNotSupported
from dragoman.model.part import File, Part
from dragoman.schema.conversion import TypeMismatch, type_name

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Parameter

# An argument is the name of a file in the same message, a link, or a data: URI with the content.
FILE_SCHEMA = {"type": "string", "format": "file"}


def takes_files(type_: Any) -> bool:
    """True for `File`, `list[File]`, and either of them or None."""
    return _file_type(type_) is not None


def takes_many(type_: Any) -> bool:
    """True for a list of files."""
    return get_origin(_file_type(type_)) is list


def _file_type(type_: Any) -> Any:
    """Return `File` or `list[File]` of the type of a parameter; None for any other type."""
    if get_origin(type_) is Annotated:
        return _file_type(get_args(type_)[0])
    if get_origin(type_) in (Union, UnionType):
        inner = [each for each in get_args(type_) if each is not NoneType]
        return _file_type(inner[0]) if len(inner) == 1 else None
    if type_ is File or (get_origin(type_) is list and get_args(type_) == (File,)):
        return type_
    return None


def is_media_type(text: str) -> bool:
    """True for a note that names a media type, such as `image/png` or `image/*`, and is no help text."""
    return "/" in text and " " not in text


# -- binding ---------------------------------------------------------------------------------------------------------


def assign_files(parameters: Iterable[Parameter], arguments: Mapping[str, Any], sent: Sequence[Part]) -> dict[str, Any]:
    """Return the arguments with the files of a message that no argument names, for parameters without an argument.

    A file whose name is that of a parameter, such as `photo.png`, is for it. The others follow in order; a list takes
    all that are left.
    """
    named = {each for value in arguments.values() for each in _strings(value)}
    left = [part for part in sent if part.filename is None or part.filename not in named]
    filled = dict(arguments)
    waiting = [each for each in parameters if each.takes_files and each.name not in arguments]
    for parameter in waiting:
        same = [part for part in left if PurePath(part.filename or "").stem == parameter.name]
        if same and not takes_many(parameter.type):
            filled[parameter.name] = same[0]
            left = [part for part in left if part is not same[0]]
    for parameter in waiting:
        if left and parameter.name not in filled:
            filled[parameter.name], left = (left, []) if takes_many(parameter.type) else (left[0], left[1:])
    return filled


def _strings(value: Any) -> list[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]


def read_files(value: Any, type_: Any, sent: Sequence[Part], accepts: Sequence[str] = (), name: str = "") -> Any:
    """Return the value of a parameter that takes files: a `File`, a list of them, or None.

    `sent` are the files of the message. `accepts` are media types, none for any.

    Raises:
        TypeMismatch: it is neither a file nor the name of one.
        ContentTypeNotSupported: a file has another media type; the text names the parameter.
    """
    if value is None and NoneType in get_args(type_):
        return None
    many = takes_many(type_)
    values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    if len(values) != 1 and not many:
        raise TypeMismatch(type_name(type_), "One file is taken, not several.")
    files = [_to_file(each, type_, sent) for each in values]
    for file in files:
        _check_media_type(file, accepts, name)
    return files if many else files[0]


def _to_file(value: Any, type_: Any, sent: Sequence[Part]) -> File:
    if isinstance(value, Part):
        return _from_part(value)
    if not isinstance(value, str):
        raise TypeMismatch(type_name(type_))
    found = next((part for part in sent if part.filename == value), None)
    if found is not None:
        return _from_part(found)
    if value.startswith(("http://", "https://")):
        return File(url=value)
    if value.startswith("data:"):
        return _from_data_uri(value, type_)
    raise TypeMismatch(type_name(type_), f"There is no file `{value[:200]}` in the message.")


def _from_part(part: Part) -> File:
    if part.url is not None:
        return File(url=part.url, name=part.filename, media_type=part.media_type)
    return File(part.bytes, name=part.filename, media_type=part.media_type)


def _from_data_uri(uri: str, type_: Any) -> File:
    """Read `data:image/png;name=cat.png;base64,…`. Raises TypeMismatch."""
    head, comma, content = uri[len("data:") :].partition(",")
    media_type, *parameters = head.split(";")
    names = [unquote(each[len("name=") :]) for each in parameters if each.startswith("name=")]
    try:
        if not comma:
            raise ValueError(head)
        data = base64.b64decode(content, validate=True) if "base64" in parameters else unquote(content).encode()
    except (binascii.Error, ValueError):
        raise TypeMismatch(type_name(type_), "The data: URI cannot be read.") from None
    return File(data, name=names[0] if names else None, media_type=media_type or None)


def _check_media_type(file: File, accepts: Sequence[str], name: str) -> None:
    media_type = (file.media_type or "").partition(";")[0].strip().lower()
    if accepts and media_type and not any(fnmatchcase(media_type, each.lower()) for each in accepts):
        takes = " or ".join(accepts)
        raise ContentTypeNotSupported(f"`{name}` takes {takes}, not {media_type}", field=name)
