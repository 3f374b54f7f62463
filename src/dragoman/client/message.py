"""Builds messages and requests from the arguments of `Client`, and parses command-line arguments by skill schema."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import msgspec
from msgspec.structs import replace

from dragoman.client.remote import RemoteConnection
from dragoman.model.card import SKILL_SCHEMAS
from dragoman.model.error import ConfigError, DragomanError
from dragoman.model.ids import is_uuid, new_id
from dragoman.model.json import decode_any, encode
from dragoman.model.message import Message, with_depth
from dragoman.model.operation import SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig
from dragoman.model.part import File, Part
from dragoman.model.state import Role
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.client import Client

Attachment = File | Part | Path
Content = str | Mapping[str, Any] | list[Any]
"""What a message says: text, or JSON, which becomes a data part."""


class MessageOptions(TypedDict, total=False):
    """The options of a message in a conversation, which itself sets the task and the context."""

    tool: str | None
    arguments: Mapping[str, Any] | None
    data: Any
    files: Iterable[Attachment]
    metadata: Mapping[str, Any] | None
    push: str | TaskPushNotificationConfig | None
    message_id: str | None


class SendOptions(MessageOptions, total=False):
    """The options of a message whose answer is awaited."""

    wait: bool


def task_id_of(task: Task | Message | str) -> str:
    """Return the id of a task, or of the task a message belongs to. Raises ConfigError when there is none."""
    if isinstance(task, str):
        return task
    task_id = task.id if isinstance(task, Task) else task.task_id
    if task_id is None:
        raise ConfigError("this answer is a bare message without a task: go on with context= instead of task=")
    return task_id


def build_message(
    content: Content | None,
    *,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    data: Any = None,
    files: Iterable[Attachment] = (),
    task: Task | Message | str | None = None,
    context: Task | Message | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    message_id: str | None = None,
) -> Message:
    """Build a message. Raises ConfigError when it would be empty, or the arguments contradict each other."""
    parts: list[Part] = []
    if isinstance(content, str):
        parts.append(Part(text=content))
    elif isinstance(content, (Mapping, list)):
        parts.append(Part(data=content))
    elif content is not None:
        kind = type(content).__name__
        raise ConfigError(f"a message is text, a dict or a list, not {kind!r}: send data=, or files= with files")
    if tool is not None:
        values, attached = _detach_files(arguments or {})
        parts += (Part(data={"tool": tool, "arguments": values}), *attached)
    elif arguments is not None:
        raise ConfigError("arguments= are for a tool: name it with tool=, or send data=")
    if data is not None:
        parts.append(Part(data=data))
    for file in files:
        parts.append(_to_part(file))
    if not parts:
        raise ConfigError("a message needs something to say: text, tool, data or files")
    context_id = context if context is None or isinstance(context, str) else context.context_id
    # The task's context is sent too: not every server looks it up.
    if context_id is None and isinstance(task, (Task, Message)):
        context_id = task.context_id or None
    return Message(
        message_id or new_id(),
        Role.USER,
        tuple(parts),
        context_id,
        None if task is None else task_id_of(task),
        with_depth(metadata, os.environ),
    )


def build_send_request(message: Message, *, wait: bool, push: object = None) -> SendMessageRequest:
    """Build the request that sends a message. Raises ConfigError when `push` is not a webhook."""
    configuration = SendMessageConfiguration(
        return_immediately=not wait, task_push_notification_config=None if push is None else parse_push(push)
    )
    # In 0.1 the client chooses the task id; it stays the same when the request is retried.
    new_task_id = None
    if message.task_id is None:
        new_task_id = message.message_id if is_uuid(message.message_id) else new_id()
    return SendMessageRequest(message, configuration, new_task_id=new_task_id)


def parse_push(push: object) -> TaskPushNotificationConfig:
    """Return the webhook configuration for a URL or a configuration. Raises ConfigError."""
    if isinstance(push, TaskPushNotificationConfig):
        return push
    if isinstance(push, str) and push.startswith(("http://", "https://")):
        return TaskPushNotificationConfig(push)
    raise ConfigError("push= is the URL of a webhook, or a TaskPushNotificationConfig")


def _to_part(file: Attachment) -> Part:
    if isinstance(file, Part):
        return file
    return file.part() if isinstance(file, File) else File(file).part()


def _detach_files(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[Part]]:
    """Return arguments in which each file is the name of a part beside them, and these parts."""
    attached: dict[str, Part] = {}

    def detach(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [detach(each) for each in cast("list[Any]", value)]
        if not isinstance(value, (File, Part)):
            return value
        part = _to_part(value)
        name = part.filename or "file"
        while name in attached:
            name = f"{len(attached) + 1}-{part.filename or 'file'}"
        attached[name] = replace(part, filename=name)
        return name

    has_files = any(isinstance(each, (File, Part, list, tuple)) for each in arguments.values())
    values = {name: detach(each) for name, each in arguments.items()} if has_files else dict(arguments)
    return values, list(attached.values())


Json = dict[str, Any]

_MAX_BYTES = 4 * 1024 * 1024
# Schemas come from the agent and may be recursive: bounds for the subschemas visited and the choices tried.
_MAX_SUBSCHEMAS = 1_000
_MAX_CHOICES = 10_000
_MAX_REF_LENGTH = 1_000
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


async def fetch_schemas(client: Client) -> Json:
    """Fetch the schemas by skill id; empty when the agent's card has none, or they cannot be fetched.

    Raises:
        BadCard: there is no card, or it cannot be parsed.
        CannotConnect: the agent cannot be reached.
    """
    connection = await client._open()  # pyright: ignore[reportPrivateUsage] - of one package
    card = connection.cached_card or await connection.card()
    extension = next((each for each in card.capabilities.extensions if each.uri == SKILL_SCHEMAS), None)
    params = _object(extension and extension.params)
    schemas, url = params.get("schemas"), params.get("url")
    if schemas is None and isinstance(url, str) and isinstance(connection, RemoteConnection):
        try:
            schemas = decode_any(await connection.fetch_same_origin(url, _MAX_BYTES))
        except (DragomanError, msgspec.DecodeError, UnicodeError, RecursionError):
            schemas = None  # arguments then stay strings, and the agent validates them
    return _object(schemas)


def skill_schema(schemas: Json, skill: str) -> Json:
    """Return the schema of a skill's arguments, of those that `fetch_schemas` returns; empty when there is none."""
    return _object(_object(schemas.get(skill)).get("inputSchema"))


def parse_argument(text: str, schemas: Json, skill: str, argument: str) -> Any:
    """Convert a text to an argument of a skill: a number where the schema requires one, the text where it is silent.

    A text that does not match stays as it is.
    """
    root = skill_schema(schemas, skill)
    kinds, choices = _accepted_values(_object(root.get("properties")).get(argument), root)
    for choice in choices:
        if text == (choice if isinstance(choice, str) else encode(choice).decode()):
            return choice
    if not kinds or "string" in kinds:
        return text
    try:
        value = decode_any((text.lower() if text in ("True", "False") else text).encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    kind = _KINDS.get(cast("type[Any]", type(value)), "null")
    if kind == "number" and "number" not in kinds and value.is_integer():
        kind, value = "integer", int(value)
    fits = kind in kinds or (kind == "integer" and "number" in kinds)
    return value if fits else text


def _accepted_values(schema: Any, root: Json) -> tuple[set[str], list[Any]]:
    """Return the types and the values that a schema accepts, as far as it lists them directly."""
    kinds: set[str] = set()
    choices: list[Any] = []
    pending: list[Any] = [schema]
    visited: set[int] = set()
    while pending and len(visited) < _MAX_SUBSCHEMAS:
        subschema = _object(pending.pop())
        if id(subschema) in visited:
            continue
        visited.add(id(subschema))
        kinds.update(str(each) for each in (_list(subschema.get("type")) or [subschema.get("type", "")]) if each)
        choices.extend(_list(subschema.get("enum")))
        choices.extend([subschema["const"]] if "const" in subschema else [])
        # A stack: reversed, so that subschemas are visited in their order.
        inner = [each for word in ("anyOf", "oneOf", "allOf") for each in _list(subschema.get(word))]
        pending.extend(reversed(inner[:_MAX_SUBSCHEMAS]))
        if isinstance(subschema.get("$ref"), str):
            pending.append(_resolve_ref(subschema["$ref"], root))
    return kinds, choices[:_MAX_CHOICES]


def _resolve_ref(ref: str, root: Json) -> Any:
    """Resolve a reference within the schema; nothing is fetched."""
    if not ref.startswith("#/") or len(ref) > _MAX_REF_LENGTH:
        return None
    target: Any = root
    for step in ref.split("/")[1:]:
        target = _object(target).get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
