"""Session tasks, named as in the source document: a program works on a message, and the caller polls its task.

    from dragoman.compat.sessions import TaskDeps, handle_task_get, handle_task_send

    deps = TaskDeps(process_manager, list_agents)
    task = await handle_task_send(deps, {"params": {"message": "Hello"}})
    task = await handle_task_get(task["id"])

They are tasks of the engine in a store in memory, and end with the event loop in which they were sent. When there are
more than 1000, the oldest that have ended are dropped. To serve session tasks over HTTP, serve an agent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.compat.sessions.deps import TaskDeps
from dragoman.compat.sessions.errors import (
    AuthenticationError,
    AuthorizationError,
    ConflictError,
    ExternalServiceError,
    NotFoundError,
    RateLimitError,
    ValidationError,
    error_response,
)

if TYPE_CHECKING:
    from dragoman.compat.sessions.cards import build_agent_card, build_agent_card_for_agent, get_agent_bundles
    from dragoman.compat.sessions.tasks import clear_task_store, handle_task_get, handle_task_send
    from dragoman.compat.sessions.types import (
        A2AAgentCard,
        A2AAgentSkill,
        A2AMessage,
        A2AProtocolExtension,
        A2ATask,
        A2ATaskDeps,
        A2ATaskSendRequest,
        A2ATaskState,
    )

__all__ = [
    "A2AAgentCard",
    "A2AAgentSkill",
    "A2AMessage",
    "A2AProtocolExtension",
    "A2ATask",
    "A2ATaskDeps",
    "A2ATaskSendRequest",
    "A2ATaskState",
    "AuthenticationError",
    "AuthorizationError",
    "ConflictError",
    "ExternalServiceError",
    "NotFoundError",
    "RateLimitError",
    "TaskDeps",
    "ValidationError",
    "build_agent_card",
    "build_agent_card_for_agent",
    "clear_task_store",
    "error_response",
    "get_agent_bundles",
    "handle_task_get",
    "handle_task_send",
]


def __getattr__(name: str) -> Any:
    # Imported when first used: every server loads this package, and few run programs.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "types" if name.startswith("A2A") else "tasks" if name.endswith(("_send", "_get", "_store")) else "cards"
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value
