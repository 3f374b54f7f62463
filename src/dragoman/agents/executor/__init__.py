"""Runs agents written for a2a-sdk: any `AgentExecutor`, unchanged.

a2a-sdk is not a dependency. Where it is installed, an executor gets its own types, those of 1.x or of 0.3; where it is
not, objects of the same shapes.
"""

from __future__ import annotations

from dragoman.agents.executor.adapter import is_executor as is_executor
from dragoman.agents.executor.run import ExecutorRuns as ExecutorRuns

__all__ = ["ExecutorRuns", "is_executor"]
