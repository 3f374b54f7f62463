"""Builds messages and requests from the arguments of `Client`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from dragoman.model.error import ConfigError
from dragoman.model.ids import is_uuid, new_id
from dragoman.model.message import Message, with_depth
from dragoman.model.operation import SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig
from dragoman.model.part import File, Part
from dragoman.model.state import Role
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.options import Attachment, MessageOptions


def task_id_of(task: Task | Message | str) -> str:
    """Return the id of a task, or of the task a message belongs to. Raises ConfigError when there is none."""
    if isinstance(task, str):
        return task
    task_id = task.id if isinstance(task, Task) else task.task_id
    if task_id is None:
        raise ConfigError("this answer is a bare message without a task: go on with context= instead of task=")
    return task_id


def build_message(options: MessageOptions) -> Message:
    """Build a message. Raises ConfigError when it would be empty, or the options contradict each other."""
    content, tool, arguments, data = options.text, options.tool, options.arguments, options.data
    task, context = options.task, options.context
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
    for file in options.files:
        parts.append(_to_part(file))
    if not parts:
        raise ConfigError("a message needs something to say: text, tool, data or files")
    context_id = context if context is None or isinstance(context, str) else context.context_id
    # The task's context is sent too: not every server looks it up.
    if context_id is None and isinstance(task, (Task, Message)):
        context_id = task.context_id or None
    return Message(
        options.message_id or new_id(),
        Role.USER,
        tuple(parts),
        context_id,
        None if task is None else task_id_of(task),
        with_depth(options.metadata, os.environ),
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
