"""For Google's ADK: `RemoteAgent` uses a remote A2A agent as a local agent. Needs `dragoman[adk]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.agents.adk.remote.agent import RemoteAgent as RemoteAgent

__all__ = ["RemoteAgent"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dragoman.adk' has no attribute {name!r}")
    from dragoman.server.agent.frameworks import require

    require("google.adk", "adk")
    from dragoman.agents.adk.remote.agent import RemoteAgent

    globals()[name] = RemoteAgent
    return RemoteAgent


def __dir__() -> list[str]:
    return sorted(__all__)
