"""Dragoman makes agents talk: anything becomes an A2A agent, any A2A agent can be called, nothing is lost."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.client.client import Client as Client
    from dragoman.client.event import Event as Event
    from dragoman.engine.execute.context import Context as Context
    from dragoman.model.card import AgentCard as AgentCard
    from dragoman.model.error import Failed as Failed
    from dragoman.model.error import Rejected as Rejected
    from dragoman.model.message import Message as Message
    from dragoman.model.operation import TaskPushNotificationConfig as TaskPushNotificationConfig
    from dragoman.model.part import File as File
    from dragoman.model.part import Part as Part
    from dragoman.model.state import Role as Role
    from dragoman.model.state import State as State
    from dragoman.model.task import Artifact as Artifact
    from dragoman.model.task import Task as Task
    from dragoman.model.user import User as User
    from dragoman.server.agent.agent import Agent as Agent
    from dragoman.server.agent.server import Server as Server

__version__ = "0.2.0"

# Imported on first use, so that a client does not load the server.
_HOMES = {
    "Agent": "dragoman.server.agent.agent",
    "Server": "dragoman.server.agent.server",
    "Context": "dragoman.engine.execute.context",
    "Client": "dragoman.client.client",
    "Task": "dragoman.model.task",
    "Message": "dragoman.model.message",
    "Part": "dragoman.model.part",
    "Artifact": "dragoman.model.task",
    "File": "dragoman.model.part",
    "Event": "dragoman.client.event",
    "State": "dragoman.model.state",
    "Role": "dragoman.model.state",
    "User": "dragoman.model.user",
    "AgentCard": "dragoman.model.card",
    "TaskPushNotificationConfig": "dragoman.model.operation",
    "Failed": "dragoman.model.error",
    "Rejected": "dragoman.model.error",
}

__all__ = [  # noqa: RUF022 - in the order of the reference
    "Agent",
    "Server",
    "Context",
    "Client",
    "Task",
    "Message",
    "Part",
    "Artifact",
    "File",
    "Event",
    "State",
    "Role",
    "User",
    "AgentCard",
    "TaskPushNotificationConfig",
    "Failed",
    "Rejected",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
