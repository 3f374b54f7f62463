"""The parts of a message as text for a model."""

from __future__ import annotations

import msgspec

from dragoman.model.part import Part


def text_of(part: Part) -> str | None:
    """A text, data as JSON, or the text of a text file; None for all other files."""
    if part.kind == "text":
        return part.text
    if part.kind == "data":
        return msgspec.json.encode(part.data).decode()
    if part.raw is None or not (part.media_type or "").startswith("text/"):
        return None
    try:
        text = part.raw.decode()
    except UnicodeDecodeError:
        return None
    return f"{part.filename}:\n{text}" if part.filename else text


def media_of(part: Part) -> str:
    """The media type of a file, or the one that says nothing."""
    return part.media_type or "application/octet-stream"
