"""What a caller reads from a Task or a Message, in the same words for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model.part import Part

JSON_TYPE = "application/json"


class Answer:
    """Shared reading of results: `.text`, `.data`, `.files` over `.parts`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def parts(self) -> Sequence[Part]:
            """The parts of the answer, in order."""
            ...

    @property
    def text(self) -> str:
        """All text of the answer, joined."""
        return "".join(part.text for part in self.parts if part.text is not None)

    @property
    def data(self) -> Any:
        """The first data part's value, or a value sent as JSON text; None when there is none."""
        for part in self.parts:
            if part.kind == "data":
                return part.data
            if part.text is not None and part.media_type == JSON_TYPE:
                try:
                    return msgspec.json.decode(part.text)
                except msgspec.DecodeError:  # it says that it is JSON, and is not
                    continue
        return None

    @property
    def files(self) -> list[Part]:
        """The parts that are files: bytes or links."""
        return [part for part in self.parts if part.kind in ("raw", "url")]

    @property
    def value(self) -> Any:
        """The answer as one Python value: data, else the bytes of a file, else the text, else None."""
        for part in self.parts:
            if part.kind == "data" or (part.media_type == JSON_TYPE and _is_json(part.text)):
                return self.data
            if part.kind == "raw":
                return part.raw
            if part.kind == "url":
                return part.url
        return self.text if self.parts else None


def _is_json(text: str | None) -> bool:
    try:
        msgspec.json.decode(text or "")
    except msgspec.DecodeError:
        return False
    return True
