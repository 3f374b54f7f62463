"""Parts, the content of messages and artifacts: text, bytes, a URL or JSON data; and files."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct

PartKind = Literal["text", "raw", "url", "data"]


class Part(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One piece of content: exactly one of `text`, `raw`, `url` and `data`.

    `data` is any JSON value, `null` included, so its absence is `msgspec.UNSET`.

    Raises:
        ValueError: when none or more than one of the four is given.
    """

    text: str | None = None
    raw: bytes | None = None
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
        source: Path | str | bytes | None = None,
        *,
        url: str | None = None,
        name: str | None = None,
        media_type: str | None = None,
    ) -> None:
        if (source is None) == (url is None):
            raise ValueError("a file is a path or bytes, or a url")
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            source, url = None, source
        self.data: bytes | None = source if isinstance(source, bytes) else None
        self.path: Path | None = Path(source) if isinstance(source, (str, Path)) else None
        self.url = url
        self.name = name or (self.path.name if self.path else None)
        self.media_type = media_type or _guess(self.name or url)

    def part(self) -> Part:
        """Convert to a part. A path is read now. Raises OSError when that fails."""
        if self.url is not None:
            return Part(url=self.url, filename=self.name, media_type=self.media_type)
        data = self.data if self.path is None else self.path.read_bytes()
        return Part(raw=data, filename=self.name, media_type=self.media_type)


def _guess(name: str | None) -> str | None:
    return mimetypes.guess_type(name)[0] if name else None
