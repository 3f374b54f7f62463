"""The types of session tasks and cards as JSON, named as in the source document."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict

from dragoman.compat.sessions.deps import TaskDeps

A2ATaskState: TypeAlias = Literal["submitted", "working", "completed", "failed"]
A2ATaskDeps = TaskDeps


class A2ATextPart(TypedDict):
    """A part of a message: a text."""

    type: Literal["text"]
    text: str


class A2AMessage(TypedDict):
    """A message of the caller or of the agent, with text parts."""

    role: Literal["user", "agent"]
    parts: list[A2ATextPart]


class A2ATask(TypedDict):
    """A task as `handle_task_send` and `handle_task_get` return it. Times are in ISO 8601."""

    id: str
    state: A2ATaskState
    messages: list[A2AMessage]
    sessionId: str
    createdAt: str
    updatedAt: str


class A2ATaskSendParams(TypedDict):
    """The `params` of a request. `timeoutMs` is in milliseconds, 5 minutes by default."""

    message: str
    skill: NotRequired[str]
    timeoutMs: NotRequired[int]


class A2ATaskSendRequest(TypedDict):
    """A request for `handle_task_send`. The members of `params` may be at the top level instead."""

    method: NotRequired[Literal["tasks/send"]]
    params: A2ATaskSendParams


class A2AProtocolExtension(TypedDict):
    """An entry of `supportedProtocols` on a card."""

    protocol: str
    description: str
    endpoint: NotRequired[str]
