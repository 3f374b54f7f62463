"""The ADK agent behind google-adk's own bridge, with its default executor. Runs in .peers/adk."""

from __future__ import annotations

from typing import Any

from google.adk.a2a.converters.request_converter import AgentRunRequest, convert_a2a_request_to_agent_run_request
from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor, A2aAgentExecutorConfig
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents.run_config import StreamingMode

from bench.agents.adk_words import agent


def _request(*args: Any) -> AgentRunRequest:
    """The request as it is read by default. Left to itself, the bridge would stream no chunks."""
    request = convert_a2a_request_to_agent_run_request(*args)
    parts = request.new_message.parts if request.new_message is not None else None
    if request.run_config is not None and parts and (parts[-1].text or "").startswith("count "):
        request.run_config.streaming_mode = StreamingMode.SSE
    return request


def served(*, new: bool) -> Any:
    """The ASGI app, with the one or the other of its executors."""
    config = A2aAgentExecutorConfig(request_converter=_request)
    return to_a2a(
        agent(),
        agent_executor_factory=lambda runner: A2aAgentExecutor(runner=runner, config=config, force_new_version=new),
    )


def app(_: str) -> Any:
    """The ASGI app; tasks are in memory."""
    return served(new=False)
