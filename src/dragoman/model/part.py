"""Parts, the content of messages and artifacts: text, bytes, a URL or JSON data; files, and safe names for them."""

from __future__ import annotations

import mimetypes
import os
import re
import unicodedata
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

PartKind = Literal["text", "raw", "url", "data"]
# Within `Part`, the name `bytes` is a property.
Bytes = bytes


class Part(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One piece of content: exactly one of `text`, `raw`, `url` and `data`.

    `data` is any JSON value, `null` included, so its absence is `msgspec.UNSET`.

    Raises:
        ValueError: when none or more than one of the four is given.
    """

    text: str | None = None
    raw: Bytes | None = None
    url: str | None = None
    data: Any = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        count = (self.text is not None) + (self.raw is not None) + (self.url is not None) + (self.data is not UNSET)
        if count != 1:
            raise ValueError("a part holds exactly one of text, raw, url and data")

    @property
    def kind(self) -> PartKind:
        """The name of the member that is set."""
        if self.text is not None:
            return "text"
        if self.raw is not None:
            return "raw"
        return "url" if self.url is not None else "data"

    @property
    def name(self) -> str | None:
        """The name of the file, as its sender wrote it: the same as `filename`. It may hold a path; `save` does not."""
        return self.filename

    @property
    def bytes(self) -> Bytes:
        """The content: bytes as they are, text as UTF-8, data as JSON.

        Raises:
            ValueError: the part holds only the URL of its content.
        """
        if self.raw is not None:
            return self.raw
        if self.text is not None:
            return self.text.encode("utf-8", "replace")
        if self.url is not None:
            raise ValueError(
                f"the file is not in the message, but at {self.url}: "
                "download it from there, with `.url`, if you trust that address"
            )
        return msgspec.json.encode(self.data)

    def save(self, path: Path | str) -> Path:
        """Write the content to a file, and return its path.

        In a folder, the file gets the name that the sender gave it, made safe, and a number if there is such a file
        already: `plan-1.md`. A string that ends with `/` is a folder, which is created if needed. Any other path is
        that of the file, which is overwritten.

        Raises:
            ValueError: the part holds only the URL of its content.
            OSError: the file cannot be written.
        """
        content = self.bytes
        target = Path(path)
        if isinstance(path, str) and path.endswith(("/", os.sep)):
            target.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            target.write_bytes(content)
            return target
        return _write_new(target, safe_filename(self.filename) or _default_name(self), content)


def is_plain_text(part: Part) -> bool:
    """True for text with nothing else: adjacent chunks of it are one text."""
    return part.text is not None and part.media_type is None and part.filename is None and part.metadata is None


class File:
    """A file as a value: `File(path)`, `File(data)` or `File(url="https://…")`.

    A string that starts with `http://` or `https://` is a URL, not a path.

    Raises:
        ValueError: when not exactly one of path, bytes and url is given.
    """

    __slots__ = ("data", "media_type", "name", "path", "url")

    def __init__(
        self,
        source: Path | str | Bytes | None = None,
        *,
        url: str | None = None,
        name: str | None = None,
        media_type: str | None = None,
    ) -> None:
        if (source is None) == (url is None):
            raise ValueError("a file is a path or bytes, or a url")
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            source, url = None, source
        self.data: Bytes | None = source if isinstance(source, Bytes) else None
        self.path: Path | None = Path(source) if isinstance(source, (str, Path)) else None
        self.url = url
        self.name = name or (_valid(self.path.name) if self.path else None)
        self.media_type = media_type or _guess(self.name or url)

    def part(self) -> Part:
        """Convert to a part. A path is read now. Raises OSError when that fails."""
        if self.url is not None:
            return Part(url=self.url, filename=self.name, media_type=self.media_type)
        data = self.data if self.path is None else self.path.read_bytes()
        return Part(raw=data, filename=self.name, media_type=self.media_type)

    @property
    def bytes(self) -> Bytes:
        """The content. Raises ValueError when there is only a URL, and OSError when a path cannot be read."""
        return self.part().bytes

    def save(self, path: Path | str) -> Path:
        """Write the content to a file or into a folder, as `Part.save` does, and return its path.

        Raises:
            ValueError: there is only a URL.
            OSError: a file cannot be read or written.
        """
        return self.part().save(path)


def _valid(name: str) -> str:
    """Return the name of a file as valid Unicode, which not every name is."""
    return name.encode("utf-8", "replace").decode()


def _guess(name: str | None) -> str | None:
    return mimetypes.guess_type(name)[0] if name else None


# -- names of files ----------------------------------------------------------------------------------------------------

# Of a longer name only the end counts: it may be as long as a message.
_MAX_NAME_LENGTH = 4096
_MAX_NAME_BYTES = 200
_MAX_ENDING_BYTES = 30
_SAFE_PUNCTUATION = frozenset("_.,+@=() -")
# Windows opens a device for these, whatever follows the first dot.
_DEVICES = re.compile(r"(con|prn|aux|nul|conin|conout|com[0-9¹²³]|lpt[0-9¹²³]) *(\.|$)", re.IGNORECASE)


def safe_filename(name: str | None) -> str:
    """Return a foreign name as that of a file in one folder, on any system; empty when nothing of it remains.

    It is the last component of a path, without control characters and those that mean something to a shell or to a
    file system, without a leading dot or dash, and at most 200 bytes long.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", (name or "")[-_MAX_NAME_LENGTH:]))[-1]
    clean = "".join([each if _is_safe(each) else "_" for each in last]).lstrip(".- ").rstrip(". ")
    if _DEVICES.match(clean):
        clean = f"_{clean}"
    stem, dot, ending = clean.rpartition(".")
    if not dot or len(ending.encode()) > _MAX_ENDING_BYTES:
        return _truncated(clean, _MAX_NAME_BYTES)
    return f"{_truncated(stem, _MAX_NAME_BYTES - len(ending.encode()) - 1)}.{ending}"


def _is_safe(character: str) -> bool:
    """True for letters, their marks and digits of any script, and for harmless punctuation."""
    return character in _SAFE_PUNCTUATION or unicodedata.category(character)[0] in "LMN"


def _truncated(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _default_name(part: Part) -> str:
    """Return the name for a file that has none."""
    endings = {"text": ".txt", "data": ".json"}
    guessed = mimetypes.guess_extension((part.media_type or "").partition(";")[0].strip())
    return f"file{guessed or endings.get(part.kind, '')}"


def _write_new(folder: Path, name: str, content: bytes) -> Path:
    """Write a file that does not exist yet: under this name, or with a number before its ending."""
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    for number in count():
        path = folder / (f"{stem}-{number}{dot}{ending}" if number else name)
        try:
            # Exclusive: an existing file is not overwritten, and no symbolic link is followed.
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is always a next number")
