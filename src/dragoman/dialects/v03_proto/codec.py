"""Between the model and the objects of 0.3 REST."""

from __future__ import annotations

from typing import Any, cast

from msgspec import UNSET

from dragoman.dialects.spelling import PROTO03_WORDS, role_of
from dragoman.dialects.v03.codec import Codec03, Event, data_part, pack, text_part, wrap
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
    """Tasks, messages and updates of 0.3 as ProtoJSON."""

    status = ProtoStatus
    artifact = ProtoArtifact
    task = ProtoTask
    status_update = ProtoStatusUpdate
    artifact_update = ProtoArtifactUpdate
    words = PROTO03_WORDS

    def part_to(self, part: Part) -> ProtoPart:
        """Spell a part."""
        return _part_to(part)

    def part_from(self, part: ProtoPart, at: str) -> Part:
        """Read a part that stands at the path `at`. Raises InvalidParams when it is wrong."""
        return _part_from(part, at)

    def message_to(self, message: Message) -> ProtoMessage:
        """Spell a message; it has no room for referenceTaskIds."""
        return ProtoMessage(
            message_id=message.message_id,
            content=tuple([_part_to(part) for part in message.parts]),
            context_id=message.context_id,
            task_id=message.task_id,
            role=message.role.value,
            metadata=message.metadata,
            extensions=message.extensions,
        )

    def message_from(self, message: ProtoMessage, at: str) -> Message:
        """See `Codec03.message_from`."""
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
        """Spell an event in the envelope of a stream."""
        member = self.event_to(event, last=last)
        return ProtoResponse(**{_MEMBERS[type(member)]: member})

    def response_from(self, response: ProtoResponse) -> Event | None:
        """Read an event; None when the envelope is empty. Raises InvalidParams when a part is wrong."""
        member = response.status_update or response.artifact_update or response.task or response.message
        return None if member is None else self.event_from(member, "artifactUpdate.artifact")


_MEMBERS: dict[type[Any], str] = {
    ProtoTask: "task",
    ProtoMessage: "message",
    ProtoStatusUpdate: "status_update",
    ProtoArtifactUpdate: "artifact_update",
}


def _part_to(part: Part) -> ProtoPart:
    kind = part.kind
    if kind in ("raw", "url"):
        file = ProtoFile(part.url, part.raw, part.media_type, part.filename)
        return ProtoPart(file=file, metadata=part.metadata)
    metadata = pack(part)
    if kind == "text":
        return ProtoPart(text=part.text, metadata=metadata)
    data, metadata = wrap(part.data, metadata)
    return ProtoPart(data={"data": data}, metadata=metadata)


def _part_from(part: ProtoPart, at: str) -> Part:
    has_data = part.data is not UNSET and part.data is not None
    if (part.text is not None) + (part.file is not None) + has_data != 1:
        raise InvalidParams(f"{at} must hold exactly one of text, file and data", field=at)
    if part.file is not None:
        return _file_from(part.file, part, at)
    if part.text is not None:
        return text_part(part.text, part.metadata)
    return data_part(_unwrap_data(part), part.metadata)


def _unwrap_data(part: ProtoPart) -> Any:
    if part.kind is not None or not isinstance(part.data, dict):
        return part.data
    wrapper = cast("dict[str, Any]", part.data)
    return wrapper["data"] if wrapper.keys() == {"data"} else wrapper


def _file_from(file: ProtoFile, part: ProtoPart, at: str) -> Part:
    uri = file.file_with_uri or file.uri
    raw = file.content if file.file_with_bytes is None else file.file_with_bytes
    name, mime_type = file.name or None, file.mime_type or None
    if raw is not None and not uri:
        return Part(raw=raw, filename=name, media_type=mime_type, metadata=part.metadata)
    if uri and raw is None:
        return Part(url=uri, filename=name, media_type=mime_type, metadata=part.metadata)
    raise InvalidParams(f"{at}.file must hold either fileWithUri or fileWithBytes", field=f"{at}.file")


CODEC = ProtoCodec()
