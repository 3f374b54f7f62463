"""An A2A 0.3 server made of an executor, a task store, event queues and a request handler.

The names are those of the source document. The classes are adapters over Dragoman's engine, stores and 0.3 dialect.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.compat.executor.adk import ADKExecutor, Converter
    from dragoman.compat.executor.bridge import AgentExecutor, RequestContext, run_of
    from dragoman.compat.executor.custom.interfaces import (
        PushConfigStoreInterface,
        PushSenderInterface,
        TaskStoreInterface,
    )
    from dragoman.compat.executor.event_queue import EventQueue, EventQueues, Subscription
    from dragoman.compat.executor.handler import RequestHandler
    from dragoman.compat.executor.ids import new_id
    from dragoman.compat.executor.jsonrpc import (
        Error,
        ErrorType,
        decode_request,
        encode_error,
        encode_response,
        error_code,
        error_type,
    )
    from dragoman.compat.executor.params import (
        AgentCapabilities,
        AgentCard,
        AgentProvider,
        AgentSkill,
        MessageSendConfig,
        MessageSendParams,
        PushAuthInfo,
        PushConfig,
        TaskIDParams,
        TaskPushConfig,
        TaskQueryParams,
    )
    from dragoman.compat.executor.task_store import TaskStore
    from dragoman.compat.executor.types import (
        Artifact,
        DataPart,
        Event,
        FileBytes,
        FilePart,
        FileURI,
        Message,
        Role,
        Task,
        TaskArtifactUpdateEvent,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
        TextPart,
        event_from_map,
        part_from_map,
        part_from_model,
    )
    from dragoman.compat.executor.webhooks import PushConfigStore, PushSender

__all__ = [
    "ADKExecutor",
    "AgentCapabilities",
    "AgentCard",
    "AgentExecutor",
    "AgentProvider",
    "AgentSkill",
    "Artifact",
    "Converter",
    "DataPart",
    "Error",
    "ErrorType",
    "Event",
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
    "PushConfigStoreInterface",
    "PushSender",
    "PushSenderInterface",
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
    "TaskStoreInterface",
    "TextPart",
    "decode_request",
    "encode_error",
    "encode_response",
    "error_code",
    "error_type",
    "event_from_map",
    "new_id",
    "part_from_map",
    "part_from_model",
    "run_of",
]

# Searched in this order when a name is first used, so that ids and JSON-RPC do not import a server.
_MODULES = (
    "ids",
    "jsonrpc",
    "types",
    "params",
    "custom.interfaces",
    "event_queue",
    "task_store",
    "webhooks",
    "bridge",
    "handler",
    "adk",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            value = getattr(import_module(f"{__name__}.{module}"), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
