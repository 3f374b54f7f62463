"""Agents written for a2a-sdk: an `AgentExecutor` runs here as it is.

a2a-sdk is no dependency. Where it is installed, an executor meets its own types, those of 1.x or of 0.3; where it is
not, objects and dicts of the same shapes.
"""

from __future__ import annotations

from dragoman.agents.executor.adapter import is_executor as is_executor
from dragoman.agents.executor.run import ExecutorRuns as ExecutorRuns

__all__ = ["ExecutorRuns", "is_executor"]
