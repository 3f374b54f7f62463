"""The agent of adk_script.py served by google-adk's own `to_a2a`, four times. Runs in .peers/adk.

/legacy and /v2 are its two executors, with its settings; tokens are streamed at /legacy-streaming and /v2-streaming,
which needs a converter of requests. In versions whose `to_a2a` takes no path there is one, at the root, as it is.
"""

import inspect
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import adk_script
from google.adk.a2a.converters.request_converter import AgentRunRequest, convert_a2a_request_to_agent_run_request
from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor, A2aAgentExecutorConfig
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents.run_config import StreamingMode
from google.adk.runners import Runner
from serving import serve
from starlette.applications import Starlette


def streamed(*args: Any) -> AgentRunRequest:
    """The request as it is read by default, and with tokens streamed."""
    request = convert_a2a_request_to_agent_run_request(*args)
    assert request.run_config is not None
    request.run_config.streaming_mode = StreamingMode.SSE
    return request


def executor(runner: Runner, *, new: bool, streaming: bool) -> A2aAgentExecutor:
    """One of the two executors."""
    config = A2aAgentExecutorConfig(request_converter=streamed) if streaming else None
    return A2aAgentExecutor(runner=runner, config=config, force_new_version=new)


def app_at(url: str) -> Any:
    """All four behind one address."""
    port = urlsplit(url).port or 0
    if "rpc_path" not in inspect.signature(to_a2a).parameters:
        return to_a2a(adk_script.agent(), host="127.0.0.1", port=port)

    def app(path: str, **options: bool) -> Starlette:
        return to_a2a(
            adk_script.agent(),
            host="127.0.0.1",
            port=port,
            rpc_path=path,
            agent_executor_factory=lambda runner: executor(runner, **options),
        )

    apps = {
        "legacy": app("legacy", new=False, streaming=False),
        "v2": app("v2", new=True, streaming=False),
        "legacy-streaming": app("legacy-streaming", new=False, streaming=True),
        "v2-streaming": app("v2-streaming", new=True, streaming=True),
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for each in apps.values():
                await stack.enter_async_context(each.router.lifespan_context(each))
            yield

    outer = Starlette(lifespan=lifespan)

    async def chosen(scope: Any, receive: Any, send: Any) -> None:
        name = scope.get("path", "").strip("/").partition("/")[0]
        await apps.get(name, outer)(scope, receive, send)

    return chosen


if __name__ == "__main__":
    serve(app_at)
