"""The wire types of 0.3 over REST: ProtoJSON of package a2a.v1, in the order of its field numbers.

`aliases` are proto field names and JSON-RPC names that clients use instead of the JSON names.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import UNSET, Struct, field

from dragoman.dialects.v03.types import Push03
from dragoman.model.operation import Count


class ProtoFile(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file: its URL or its bytes. The last two are the names of JSON-RPC, which some clients send."""

    file_with_uri: str | None = None
    file_with_bytes: bytes | None = None
    mime_type: str | None = None
    name: str | None = None
    uri: str | None = None
    content: bytes | None = field(name="bytes", default=None)


class ProtoPart(Struct, frozen=True, omit_defaults=True):
    """A part, whose kind is that of the member that is set. `data` is wrapped in another `data`.

    With a `kind`, as JSON-RPC clients send it, the data is not wrapped.
    """

    text: str | None = None
    file: ProtoFile | None = None
    data: Any = UNSET
    metadata: dict[str, Any] | None = None
    kind: str | None = None


class ProtoMessage(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A message; its parts are in `content`."""

    aliases: ClassVar[dict[str, str]] = {"parts": "content"}

    message_id: str
    context_id: str | None = None
    task_id: str | None = None
    role: str | int = "ROLE_UNSPECIFIED"
    content: tuple[ProtoPart, ...]
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()


class ProtoArtifact(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An artifact of a task."""

    artifact_id: str
    name: str | None = None
    description: str | None = None
    parts: tuple[ProtoPart, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()


class ProtoStatus(Struct, frozen=True, omit_defaults=True):
    """The status of a task."""

    aliases: ClassVar[dict[str, str]] = {"update": "message"}

    state: str | int
    message: ProtoMessage | None = None
    timestamp: str | None = None


class ProtoTask(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A task."""

    id: str
    context_id: str
    status: ProtoStatus
    artifacts: tuple[ProtoArtifact, ...] = ()
    history: tuple[ProtoMessage, ...] = ()
    metadata: dict[str, Any] | None = None


class ProtoStatusUpdate(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A status update."""

    task_id: str
    context_id: str
    status: ProtoStatus
    final: bool = False
    metadata: dict[str, Any] | None = None


class ProtoArtifactUpdate(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An artifact update."""

    task_id: str
    context_id: str
    artifact: ProtoArtifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


class ProtoResponse(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A stream response, of which one member is set; a send result is one of the first two."""

    aliases: ClassVar[dict[str, str]] = {"msg": "message"}

    task: ProtoTask | None = None
    message: ProtoMessage | None = None
    status_update: ProtoStatusUpdate | None = None
    artifact_update: ProtoArtifactUpdate | None = None


class ProtoConfiguration(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The configuration of a send request. ProtoJSON omits false, so a missing `blocking` means false."""

    aliases: ClassVar[dict[str, str]] = {"pushNotificationConfig": "pushNotification"}

    accepted_output_modes: tuple[str, ...] = ()
    push_notification: Push03 | None = None
    history_length: Count | None = None
    blocking: bool | None = None


class ProtoSend(Struct, frozen=True, omit_defaults=True):
    """The body of `message:send` and `message:stream`."""

    aliases: ClassVar[dict[str, str]] = {"request": "message"}

    message: ProtoMessage
    configuration: ProtoConfiguration | None = None
    metadata: dict[str, Any] | None = None


class ProtoTaskName(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A task, by the id in the path or by its resource name `tasks/ID`."""

    id: str | int | None = None
    name: str | None = None
    history_length: Count | None = None


class ProtoTaskPush(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A webhook under its resource name `tasks/ID/pushNotificationConfigs/ID`."""

    name: str | None = None
    push_notification_config: Push03 | None = None


class ProtoPushes(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The webhooks of a task."""

    configs: tuple[ProtoTaskPush, ...] = ()
    next_page_token: str = ""


class ProtoPushCreate(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The body that creates a webhook; `taskId` comes from the path."""

    task_id: str | int | None = None
    parent: str | None = None
    config_id: str | None = None
    config: ProtoTaskPush | None = None
    # The members of `config`: some clients and servers omit the wrapper.
    name: str | None = None
    push_notification_config: Push03 | None = None


class ProtoPushName(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A webhook, or all webhooks of a task, by the ids in the path or by a resource name."""

    task_id: str | int | None = None
    id: str | None = None
    name: str | None = None
    parent: str | None = None
    page_size: Count | None = None
    page_token: str | None = None
