"""Converts between the model and the objects of 0.3 over REST."""

from __future__ import annotations

from typing import Any, cast

from msgspec import UNSET

from dragoman.dialects.spelling import PROTO03_WORDS, role_of
from dragoman.dialects.v03.codec import Codec03, Event, data_part, pack, text_part
from dragoman.dialects.v03.codec import wrap as wrap_data
from dragoman.dialects.v03_proto.file_bytes import UNKNOWN, PeerFormat, unwrap, wrap
from dragoman.dialects.v03_proto.types import (
    ProtoArtifact,
    ProtoArtifactUpdate,
    ProtoFile,
    ProtoMessage,
    ProtoPart,
    ProtoResponse,
    ProtoStatus,
    ProtoStatusUpdate,
    ProtoTask,
)
from dragoman.model.error import InvalidParams
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role


class ProtoCodec(Codec03):
    """Converts tasks, messages and updates of 0.3 as ProtoJSON; `files` is the format of the peer's files."""

    status = ProtoStatus
    artifact = ProtoArtifact
    task = ProtoTask
    status_update = ProtoStatusUpdate
    artifact_update = ProtoArtifactUpdate
    words = PROTO03_WORDS

    def __init__(self, files: PeerFormat = UNKNOWN) -> None:
        self._files = files

    def part_to(self, part: Part) -> ProtoPart:
        """Convert a part to the wire."""
        kind = part.kind
        if kind in ("raw", "url"):
            raw = wrap(part.raw) if self._files.twice and part.raw is not None else part.raw
            file = ProtoFile(part.url, raw, part.media_type, part.filename if self._files.named else None)
            return ProtoPart(file=file, metadata=part.metadata)
        metadata = pack(part)
        if kind == "text":
            return ProtoPart(text=part.text, metadata=metadata)
        data, metadata = wrap_data(part.data, metadata)
        return ProtoPart(data={"data": data}, metadata=metadata)

    def part_from(self, part: ProtoPart, at: str) -> Part:
        """Convert a part at the path `at`. Raises InvalidParams."""
        has_data = part.data is not UNSET and part.data is not None
        if (part.text is not None) + (part.file is not None) + has_data != 1:
            raise InvalidParams(f"{at} must hold exactly one of text, file and data", field=at)
        if part.file is not None:
            return self._file_from(part.file, part, at)
        if part.text is not None:
            return text_part(part.text, part.metadata)
        return data_part(_unwrap_data(part), part.metadata)

    def _file_from(self, file: ProtoFile, part: ProtoPart, at: str) -> Part:
        uri = file.file_with_uri or file.uri
        raw = file.content if file.file_with_bytes is None else file.file_with_bytes
        name, mime_type = file.name or None, file.mime_type or None
        if raw is not None and not uri:
            raw = unwrap(raw, mime_type, likely=self._files.likely) if self._files.twice else raw
            return Part(raw=raw, filename=name, media_type=mime_type, metadata=part.metadata)
        if uri and raw is None:
            return Part(url=uri, filename=name, media_type=mime_type, metadata=part.metadata)
        raise InvalidParams(f"{at}.file must hold either fileWithUri or fileWithBytes", field=f"{at}.file")

    def message_to(self, message: Message) -> ProtoMessage:
        """Convert a message to the wire; it has no referenceTaskIds."""
        return ProtoMessage(
            message_id=message.message_id,
            content=tuple([self.part_to(part) for part in message.parts]),
            context_id=message.context_id,
            task_id=message.task_id,
            role=message.role.value,
            metadata=message.metadata,
            extensions=message.extensions,
        )

    def message_from(self, message: ProtoMessage, at: str) -> Message:
        return Message(
            message_id=message.message_id,
            role=role_of(message.role) or Role.USER,
            parts=self.parts_from(message.content, f"{at}.content"),
            context_id=message.context_id or None,
            task_id=message.task_id or None,
            metadata=message.metadata,
            extensions=message.extensions,
        )

    def response_to(self, event: Event, *, last: bool) -> ProtoResponse:
        """Convert an event to a stream response."""
        member = self.event_to(event, last=last)
        return ProtoResponse(**{_MEMBERS[type(member)]: member})

    def response_from(self, response: ProtoResponse) -> Event | None:
        """Convert a stream response to an event; None when it is empty. Raises InvalidParams when a part is invalid."""
        member = response.status_update or response.artifact_update or response.task or response.message
        return None if member is None else self.event_from(member, "artifactUpdate.artifact")


_MEMBERS: dict[type[Any], str] = {
    ProtoTask: "task",
    ProtoMessage: "message",
    ProtoStatusUpdate: "status_update",
    ProtoArtifactUpdate: "artifact_update",
}


def _unwrap_data(part: ProtoPart) -> Any:
    if part.kind is not None or not isinstance(part.data, dict):
        return part.data
    wrapper = cast("dict[str, Any]", part.data)
    return wrapper["data"] if wrapper.keys() == {"data"} else wrapper
