"""An A2A 0.3 server in the source document's own nouns: executor, task store, event queue, request handler.

They are faces: the engine, the stores and the 0.3 dialect behind them are Dragoman's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.compat.executor.agent_executor import AgentExecutor as AgentExecutor
    from dragoman.compat.executor.agent_executor import RequestContext as RequestContext
    from dragoman.compat.executor.bridge import run_of as run_of
    from dragoman.compat.executor.card import AgentCapabilities as AgentCapabilities
    from dragoman.compat.executor.card import AgentCard as AgentCard
    from dragoman.compat.executor.card import AgentSkill as AgentSkill
    from dragoman.compat.executor.event_queue import EventQueue as EventQueue
    from dragoman.compat.executor.event_queue import EventQueues as EventQueues
    from dragoman.compat.executor.event_queue import Subscription as Subscription
    from dragoman.compat.executor.events import TaskArtifactUpdateEvent as TaskArtifactUpdateEvent
    from dragoman.compat.executor.events import TaskStatusUpdateEvent as TaskStatusUpdateEvent
    from dragoman.compat.executor.events import event_from_map as event_from_map
    from dragoman.compat.executor.handler import RequestHandler as RequestHandler
    from dragoman.compat.executor.ids import new_id as new_id
    from dragoman.compat.executor.jsonrpc import Error as Error
    from dragoman.compat.executor.jsonrpc import ErrorType as ErrorType
    from dragoman.compat.executor.message import Message as Message
    from dragoman.compat.executor.message import Role as Role
    from dragoman.compat.executor.params import MessageSendConfig as MessageSendConfig
    from dragoman.compat.executor.params import MessageSendParams as MessageSendParams
    from dragoman.compat.executor.params import TaskIDParams as TaskIDParams
    from dragoman.compat.executor.params import TaskQueryParams as TaskQueryParams
    from dragoman.compat.executor.parts import DataPart as DataPart
    from dragoman.compat.executor.parts import FileBytes as FileBytes
    from dragoman.compat.executor.parts import FilePart as FilePart
    from dragoman.compat.executor.parts import FileURI as FileURI
    from dragoman.compat.executor.parts import TextPart as TextPart
    from dragoman.compat.executor.parts import part_from_map as part_from_map
    from dragoman.compat.executor.parts import part_from_model as part_from_model
    from dragoman.compat.executor.push import PushAuthInfo as PushAuthInfo
    from dragoman.compat.executor.push import PushConfig as PushConfig
    from dragoman.compat.executor.push import TaskPushConfig as TaskPushConfig
    from dragoman.compat.executor.push_sender import PushSender as PushSender
    from dragoman.compat.executor.push_store import PushConfigStore as PushConfigStore
    from dragoman.compat.executor.task import Artifact as Artifact
    from dragoman.compat.executor.task import Task as Task
    from dragoman.compat.executor.task import TaskState as TaskState
    from dragoman.compat.executor.task import TaskStatus as TaskStatus
    from dragoman.compat.executor.task_store import TaskStore as TaskStore

# Imported when first used: the JSON-RPC module alone must not bring a server with it.
_HOMES = {
    "AgentCapabilities": "card",
    "AgentCard": "card",
    "AgentExecutor": "agent_executor",
    "AgentSkill": "card",
    "Artifact": "task",
    "DataPart": "parts",
    "Error": "jsonrpc",
    "ErrorType": "jsonrpc",
    "EventQueue": "event_queue",
    "EventQueues": "event_queue",
    "FileBytes": "parts",
    "FilePart": "parts",
    "FileURI": "parts",
    "Message": "message",
    "MessageSendConfig": "params",
    "MessageSendParams": "params",
    "PushAuthInfo": "push",
    "PushConfig": "push",
    "PushConfigStore": "push_store",
    "PushSender": "push_sender",
    "RequestContext": "agent_executor",
    "RequestHandler": "handler",
    "Role": "message",
    "Subscription": "event_queue",
    "Task": "task",
    "TaskArtifactUpdateEvent": "events",
    "TaskIDParams": "params",
    "TaskPushConfig": "push",
    "TaskQueryParams": "params",
    "TaskState": "task",
    "TaskStatus": "task",
    "TaskStatusUpdateEvent": "events",
    "TaskStore": "task_store",
    "TextPart": "parts",
    "event_from_map": "events",
    "new_id": "ids",
    "part_from_map": "parts",
    "part_from_model": "parts",
    "run_of": "bridge",
}

__all__ = [
    "AgentCapabilities",
    "AgentCard",
    "AgentExecutor",
    "AgentSkill",
    "Artifact",
    "DataPart",
    "Error",
    "ErrorType",
    "EventQueue",
    "EventQueues",
    "FileBytes",
    "FilePart",
    "FileURI",
    "Message",
    "MessageSendConfig",
    "MessageSendParams",
    "PushAuthInfo",
    "PushConfig",
    "PushConfigStore",
    "PushSender",
    "RequestContext",
    "RequestHandler",
    "Role",
    "Subscription",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskIDParams",
    "TaskPushConfig",
    "TaskQueryParams",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "TaskStore",
    "TextPart",
    "event_from_map",
    "new_id",
    "part_from_map",
    "part_from_model",
    "run_of",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
