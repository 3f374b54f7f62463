"""From what a caller says to a message of the protocol."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dragoman.model.depth import passed_on
from dragoman.model.error import ConfigError
from dragoman.model.file import File
from dragoman.model.ids import is_uuid, new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.push import TaskPushNotificationConfig
from dragoman.model.request import SendMessageConfiguration, SendMessageRequest
from dragoman.model.state import Role
from dragoman.model.task import Task

Attachment = File | Part | Path


def task_id_of(task: Task | Message | str) -> str:
    """The id of a task, or of what continues it. Raises ConfigError when there is none."""
    if isinstance(task, str):
        return task
    task_id = task.id if isinstance(task, Task) else task.task_id
    if task_id is None:
        raise ConfigError("this answer is a bare message without a task: go on with context= instead of task=")
    return task_id


def message_of(
    text: str | None,
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
    """One message with all that was given. Raises ConfigError when that is nothing, or does not go together."""
    parts: list[Part] = []
    if text is not None:
        parts.append(Part(text=text))
    if tool is not None:
        parts.append(Part(data={"tool": tool, "arguments": dict(arguments or {})}))
    elif arguments is not None:
        raise ConfigError("arguments= are for a tool: name it with tool=, or send data=")
    if data is not None:
        parts.append(Part(data=data))
    parts.extend(_part(file) for file in files)
    if not parts:
        raise ConfigError("a message needs something to say: text, tool, data or files")
    context_id = context if context is None or isinstance(context, str) else context.context_id
    # A task's own context goes along: not every server finds it out by itself.
    if context_id is None and isinstance(task, (Task, Message)):
        context_id = task.context_id or None
    return Message(
        message_id or new_id(),
        Role.USER,
        tuple(parts),
        context_id,
        None if task is None else task_id_of(task),
        passed_on(metadata, os.environ),
    )


def request_of(message: Message, *, wait: bool, push: object = None) -> SendMessageRequest:
    """The request that carries a message. Raises ConfigError when `push` is not a webhook."""
    configuration = SendMessageConfiguration(
        return_immediately=not wait, task_push_notification_config=None if push is None else push_of(push)
    )
    # A 0.1 server wants the id from us; it stays the same when the request is sent again.
    fresh = None
    if message.task_id is None:
        fresh = message.message_id if is_uuid(message.message_id) else new_id()
    return SendMessageRequest(message, configuration, new_task_id=fresh)


def push_of(push: object) -> TaskPushNotificationConfig:
    """A webhook from its URL or its configuration. Raises ConfigError."""
    if isinstance(push, TaskPushNotificationConfig):
        return push
    if isinstance(push, str) and push.startswith(("http://", "https://")):
        return TaskPushNotificationConfig(push)
    raise ConfigError("push= is the URL of a webhook, or a TaskPushNotificationConfig")


def _part(file: Attachment) -> Part:
    if isinstance(file, Part):
        return file
    return file.part() if isinstance(file, File) else File(file).part()
