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


class A2AAgentSkill(TypedDict):
    """A skill on a card: one tool."""

    id: str
    name: str
    description: str
    tags: list[str]
    inputModes: list[str]
    outputModes: list[str]


class A2AProtocolExtension(TypedDict):
    """An entry of `supportedProtocols` on a card."""

    protocol: str
    description: str
    endpoint: NotRequired[str]


class A2AAgentProvider(TypedDict):
    """The `provider` on a card."""

    organization: str
    url: str


class A2AAgentCapabilities(TypedDict):
    """The `capabilities` on a card."""

    streaming: bool
    pushNotifications: bool
    stateTransitionHistory: bool


class A2AAgentAuthentication(TypedDict):
    """The `authentication` on a card."""

    schemes: list[str]


class A2AAgentCard(TypedDict):
    """A card as `build_agent_card` and `build_agent_card_for_agent` return it.

    The cards of other servers, which `fetch_agent_card` returns, have at least `name` and `version`.
    """

    name: str
    description: str
    url: str
    provider: A2AAgentProvider
    version: str
    documentationUrl: str
    capabilities: A2AAgentCapabilities
    authentication: A2AAgentAuthentication
    defaultInputModes: list[str]
    defaultOutputModes: list[str]
    skills: list[A2AAgentSkill]
    supportedProtocols: list[A2AProtocolExtension]
