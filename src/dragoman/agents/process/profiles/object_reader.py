"""Reading lines that are JSON objects with a `type`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dragoman.agents.process.profiles.draft import Draft
from dragoman.agents.process.profiles.json_object import Found, object_of, text_in

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event


class ObjectReader(ABC):
    """A `LineReader` of objects. Programs of one kind differ in `read`."""

    def __init__(self) -> None:
        self.draft = Draft()

    def feed(self, line: bytes) -> Iterable[Event]:
        """See `LineReader.feed`."""
        found = None if self.draft.is_over else object_of(line)
        return () if found is None else self.read(text_in(found, "type"), found)

    @abstractmethod
    def read(self, kind: str, found: Found) -> list[Event]:
        """The events of an object of a kind. Kinds that are not known give none."""

    def close(self) -> Iterable[Event]:
        """See `LineReader.close`."""
        return self.draft.close()
