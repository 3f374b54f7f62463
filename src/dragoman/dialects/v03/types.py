"""The wire types of 0.3 over JSON-RPC: `kind` first, then the order of the specification's examples.

Parts, webhooks and the parameters that name a task are the same in 0.1.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, field

from dragoman.model.operation import Count


class File03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file: its bytes or its URL."""

    name: str | None = None
    mime_type: str | None = None
    content: bytes | None = field(name="bytes", default=None)
    uri: str | None = None


class Part03(Struct, frozen=True, omit_defaults=True):
    """A part of any kind; `kind` says which, or in 0.1 `type`."""

    kind: str | None = None
    type: str | None = None
    text: str | None = None
    file: File03 | None = None
    data: Any = UNSET
    metadata: dict[str, Any] | None = None


class Auth03(Struct, frozen=True, omit_defaults=True):
    """The schemes that the receiver accepts, best first, and the credentials."""

    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class Push03(Struct, frozen=True, omit_defaults=True):
    """A webhook without its task."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: Auth03 | None = None


class Message03(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="kind", tag="message"):
    """A message."""

    message_id: str
    role: str | int
    parts: tuple[Part03, ...]
    context_id: str | None = None
    task_id: str | None = None
    reference_task_ids: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class Artifact03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An artifact of a task."""

    artifact_id: str
    parts: tuple[Part03, ...]
    name: str | None = None
    description: str | None = None
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class Status03(Struct, frozen=True, omit_defaults=True):
    """The status of a task."""

    state: str | int
    message: Message03 | None = None
    timestamp: str | None = None


class Task03(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="kind", tag="task"):
    """A task."""

    id: str
    context_id: str
    status: Status03
    artifacts: tuple[Artifact03, ...] = ()
    history: tuple[Message03, ...] = ()
    metadata: dict[str, Any] | None = None


class StatusUpdate03(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="kind", tag="status-update"):
    """A status update; `final` is always written."""

    task_id: str
    context_id: str
    status: Status03
    final: bool
    metadata: dict[str, Any] | None = None


class ArtifactUpdate03(
    Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="kind", tag="artifact-update"
):
    """An artifact update."""

    task_id: str
    context_id: str
    artifact: Artifact03
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


Event03 = Task03 | Message03 | StatusUpdate03 | ArtifactUpdate03


class Configuration03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The configuration of a send request; without `blocking` the server chooses."""

    accepted_output_modes: tuple[str, ...] = ()
    blocking: bool | None = None
    history_length: Count | None = None
    push_notification_config: Push03 | None = None


class SendParams03(Struct, frozen=True, omit_defaults=True):
    """The parameters of `message/send` and `message/stream`."""

    message: Message03
    configuration: Configuration03 = Configuration03()
    metadata: dict[str, Any] | None = None


class TaskParams03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The parameters of operations on one task; a number is accepted as an id."""

    id: str | int | None = None
    history_length: Count | None = None
    metadata: dict[str, Any] | None = None


class TaskPush03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A webhook with its task id: the parameters and the result of `set`."""

    task_id: str | int
    push_notification_config: Push03


class PushParams03(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The parameters of `get`, `delete` and `list`; `id` is that of the task."""

    id: str | int
    push_notification_config_id: str | None = None


class NoParams03(Struct, frozen=True):
    """No parameters."""
