"""A message of A2A 0.3."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import field

from dragoman.compat.executor.ids import new_id
from dragoman.compat.executor.parts import DataPart, FilePart, TextPart
from dragoman.compat.executor.wire import Wire, read, spelled
from dragoman.dialects.spelling import ROLE_WORDS, role_of
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.state import Role as ModelRole

if TYPE_CHECKING:
    from dragoman.model.message import Message as ModelMessage


class Role(StrEnum):
    """Who speaks. A word nobody knows is read as the user's."""

    USER = "user"
    AGENT = "agent"

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        return cls(ROLE_WORDS[role_of(value) or ModelRole.USER]) if isinstance(value, str) else None


class Message(Wire, frozen=True, tag_field="kind", tag="message"):
    """A message; one that is read without a `messageId` is given one."""

    role: Role
    parts: tuple[TextPart | FilePart | DataPart, ...]
    message_id: str = field(default_factory=new_id)
    context_id: str | None = None
    task_id: str | None = None
    reference_task_ids: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    def to_model(self) -> ModelMessage:
        """The message in the words of A2A 1.0. Raises BadResponse when a file is not base64."""
        return V03_RPC.message_from(self.to_map())

    @classmethod
    def from_model(cls, message: ModelMessage) -> Message:
        """Spell a message of A2A 1.0."""
        return read(cls, spelled(message))
