"""A result of a task."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.part import Part


class Artifact(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A named result made of parts; `artifact_id` is unique within its task."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return "".join(part.text for part in self.parts if part.text is not None)
