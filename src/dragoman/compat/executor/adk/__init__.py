"""Google ADK behind an executor. Needs `dragoman[adk]`."""

from __future__ import annotations

from dragoman.server.agent.frameworks import require

require("google.adk", "adk")

from dragoman.compat.executor.adk.converter import Converter as Converter  # noqa: E402 - ADK may be missing
from dragoman.compat.executor.adk.executor import ADKExecutor as ADKExecutor  # noqa: E402

__all__ = ["ADKExecutor", "Converter"]
