"""One piece of content: text, bytes, a link or JSON data."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct

PartKind = Literal["text", "raw", "url", "data"]


class Part(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A part holds exactly one of `text`, `raw`, `url` and `data`.

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
        given = (self.text is not None) + (self.raw is not None) + (self.url is not None) + (self.data is not UNSET)
        if given != 1:
            raise ValueError("a part holds exactly one of text, raw, url and data")

    @property
    def kind(self) -> PartKind:
        """Which of the four this part holds."""
        if self.text is not None:
            return "text"
        if self.raw is not None:
            return "raw"
        return "url" if self.url is not None else "data"
